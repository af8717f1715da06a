"""The API's methods on nodes, in v2 and v2alpha1."""

from __future__ import annotations

from tpufleet.emulator import schema
from tpufleet.emulator.calls import Call
from tpufleet.emulator.keeper import Keeper
from tpufleet.emulator.nodes import NodeRecord
from tpufleet.emulator.wire import Json, bad_request


class Nodes:
    """One method per API method: takes the call, returns the answer's JSON, raises ApiError."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._cloud = keeper.cloud

    async def list(self, call: Call) -> Json:
        return call.page([_shown(node, call) for node in self._cloud.nodes_in(*call.scope)], "nodes")

    async def get(self, call: Call) -> Json:
        return _shown(self._cloud.node(call.name("nodes")), call)

    async def create(self, call: Call) -> Json:
        options = {"version": call.version, "request_id": call.query("requestId")}
        return call.shown(self._keeper.create(*call.scope, call.query("nodeId"), await call.body(), **options))

    async def update(self, call: Call) -> Json:
        mask = [path for path in call.query("updateMask").split(",") if path]
        return call.shown(self._keeper.update(call.name("nodes"), mask, await call.body(), call.version))

    async def delete(self, call: Call) -> Json:
        return call.shown(self._keeper.delete(call.name("nodes")))

    async def stop(self, call: Call) -> Json:
        await call.message({})
        return call.shown(self._keeper.stop(call.name("nodes")))

    async def start(self, call: Call) -> Json:
        await call.message({})
        return call.shown(self._keeper.start(call.name("nodes")))

    async def simulate_maintenance(self, call: Call) -> Json:
        """Without worker ids the first worker: https://cloud.google.com/sdk/gcloud (simulate-maintenance-event)."""
        asked = await call.message(schema.SIMULATE_MAINTENANCE)
        node = self._cloud.node(call.name("nodes"))
        workers = _workers(asked.get("workerIds") or ["0"], node.accelerator.hosts)
        return call.shown(self._keeper.simulate_maintenance(node.name, workers))

    async def guest_attributes(self, call: Call) -> Json:
        asked = await call.message(schema.GUEST_ATTRIBUTES)
        keys = self._keeper.host_keys(call.name("nodes"))
        chosen = [keys[worker] for worker in _workers(asked.get("workerIds", []), len(keys))]
        return {"guestAttributes": [_attributes(asked.get("queryPath", ""), key) for key in chosen]}


def _shown(node: NodeRecord, call: Call) -> Json:
    return schema.view("Node", node.wire(), call.version)


def _workers(ids: list[str], count: int) -> list[int]:
    """Worker indices for `workerIds`; none, or one empty one, means all."""
    if not any(ids):
        return list(range(count))
    for one in ids:
        if not one.isdecimal() or int(one) >= count:
            raise bad_request(f"worker id {one!r} is invalid")
    return [int(one) for one in ids]


def _attributes(query: str, host_key: str | None) -> Json:
    """What a host that is up has written of itself: its SSH host key."""
    entry = {"namespace": "hostkeys", "key": "ssh-ed25519", "value": host_key}
    matches = host_key is not None and "hostkeys/ssh-ed25519".startswith(query)
    return {"queryPath": query, "queryValue": {"items": [entry] if matches else []}}
