"""The API's v1, which knew TPU nodes without VMs: what `gcloud compute tpus list` and its sisters still ask of it."""

from __future__ import annotations

from tpufleet.emulator.calls import Call
from tpufleet.emulator.keeper import Keeper
from tpufleet.emulator.nodes import NodeRecord
from tpufleet.emulator.wire import ApiError, Json

# v1's Node has these as v2 has them.
SAME = ("name", "description", "acceleratorType", "state", "createTime", "health", "labels", "apiVersion", "symptoms")


class LegacyNodes:
    """v1's own methods; stop, start, delete and the catalogue are those of the later versions."""

    def __init__(self, keeper: Keeper) -> None:
        self._cloud = keeper.cloud

    async def list(self, call: Call) -> Json:
        return call.page([_shown(node) for node in self._cloud.nodes_in(*call.scope)], "nodes")

    async def get(self, call: Call) -> Json:
        return _shown(self._cloud.node(call.name("nodes")))

    async def create(self, call: Call) -> Json:
        del call
        raise ApiError("UNIMPLEMENTED", "TPU nodes without VMs are no longer made; use v2 of the API (tpu-vm create).")


def _shown(node: NodeRecord) -> Json:
    """The node in v1's shape: one network by its name, endpoints without external addresses."""
    now = node.wire()
    ends: list[Json] = [{"ipAddress": end["ipAddress"], "port": end["port"]} for end in now.get("networkEndpoints", [])]
    networks: list[Json] = now.get("networkConfigs") or [now["networkConfig"]]
    scheduling = {name: value for name, value in now["schedulingConfig"].items() if name in ("preemptible", "reserved")}
    return {
        **{name: now[name] for name in SAME if name in now},
        **({"ipAddress": ends[0]["ipAddress"], "port": str(ends[0]["port"])} if ends else {}),
        "tensorflowVersion": now["runtimeVersion"],
        "network": networks[0]["network"].rpartition("/")[2],
        "serviceAccount": now.get("serviceAccount", {}).get("email", ""),
        "schedulingConfig": scheduling,
        "networkEndpoints": ends,
    }
