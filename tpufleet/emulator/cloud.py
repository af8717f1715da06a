"""The cloud's state: nodes and operations, what may be asked of them when, and how they look on the wire.

No effects here: `keeper.py` boots and kills hosts and tells this module what came of it.

    (absent) --create--> CREATING --> READY <--> STOPPED (through STOPPING, STARTING)
    any state --delete--> DELETING --> (absent)      READY --preempt--> PREEMPTED
"""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tpufleet.accelerators import Accelerator, lookup
from tpufleet.emulator import schema, zones
from tpufleet.emulator.clock import Clock, rfc3339
from tpufleet.emulator.wire import TYPE_URL, ApiError, Json, Operation, bad_request, not_found

NODE_ID = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
UPDATABLE = ("metadata", "labels", "tags", "description")
# Cloud TPU workers answer each other on this port; nothing of the emulator listens there.
TPU_PORT = 8470

Thing = TypeVar("Thing", "NodeRecord", Operation)


@dataclass
class NodeRecord:
    """A node as it is stored. `label` begins its hosts' names and directories; `number` is N of 127.77.N.M."""

    name: str
    label: str
    resource: Json
    number: int | None = None
    host_keys: list[str] = field(default_factory=list[str])

    @property
    def accelerator(self) -> Accelerator:
        return lookup(self.resource["acceleratorType"])

    @property
    def state(self) -> str:
        return str(self.resource["state"])

    @property
    def zone(self) -> str:
        return self.name.split("/")[3]

    @property
    def project(self) -> str:
        return self.name.split("/")[1]

    @property
    def metadata(self) -> dict[str, str]:
        return self.resource.get("metadata", {})

    def address(self, worker: int) -> str:
        return f"127.77.{self.number}.{worker + 1}"

    def host_name(self, worker: int) -> str:
        return f"{self.label}-w{worker}"

    def wire(self) -> Json:
        """The node as the API shows it."""
        if self.number is None:
            return self.resource
        return self.resource | {
            "networkEndpoints": [self._endpoint(worker) for worker in range(self.accelerator.hosts)]
        }

    def _endpoint(self, worker: int) -> Json:
        endpoint: Json = {"ipAddress": self.address(worker), "port": TPU_PORT}
        if self.resource["networkConfig"].get("enableExternalIps"):
            endpoint["accessConfig"] = {"externalIp": self.address(worker)}
        return endpoint


class Cloud:
    """All nodes and operations; every method is a step of the state and takes no time."""

    def __init__(self, clock: Clock, stored: Json | None = None) -> None:
        self._clock = clock
        stored = stored or {}
        self.nodes = {name: NodeRecord(**record) for name, record in stored.get("nodes", {}).items()}
        self.operations = {name: Operation(**record) for name, record in stored.get("operations", {}).items()}

    def stored(self) -> Json:
        return {
            "nodes": {name: dataclasses.asdict(node) for name, node in self.nodes.items()},
            "operations": {name: operation.stored() for name, operation in self.operations.items()},
        }

    def node(self, name: str) -> NodeRecord:
        if name not in self.nodes:
            raise not_found(name)
        return self.nodes[name]

    def nodes_in(self, project: str, zone: str) -> list[NodeRecord]:
        """The nodes of a zone by name; zone `-` is all zones."""
        if zone != "-":
            zones.check_zone(zone)
        return _inside(self.nodes.values(), project, zone)

    def operation(self, name: str) -> Operation:
        if name not in self.operations:
            raise not_found(name)
        return self.operations[name]

    def operations_in(self, project: str, zone: str) -> list[Operation]:
        return _inside(self.operations.values(), project, zone)

    def unfinished(self, target: str) -> Operation | None:
        """The operation at work on the node named `target`."""
        running = (one for one in self.operations.values() if one.target == target and one.ended is None)
        return next(running, None)

    def create(self, project: str, zone: str, node_id: str, body: Any) -> Operation:
        """A new node in state CREATING. Raises ApiError."""
        zones.check_zone(zone)
        wanted = schema.check(body, schema.NODE, "node")
        if not NODE_ID.fullmatch(node_id):
            raise bad_request(f"invalid node id {node_id!r}: it must match {NODE_ID.pattern}")
        name = f"projects/{project}/locations/{zone}/nodes/{node_id}"
        if name in self.nodes:
            raise ApiError("ALREADY_EXISTS", f"Resource '{name}' already exists")
        resource = self._new_resource(name, zone, wanted)
        self.nodes[name] = NodeRecord(name, self._free_label(name), resource)
        return self._begin("create", name)

    def _new_resource(self, name: str, zone: str, wanted: Json) -> Json:
        accelerator = zones.accelerator_in(zone, _type_name(wanted))
        runtime = wanted.get("runtimeVersion") or ""
        if runtime not in zones.RUNTIMES:
            raise bad_request(f"the runtime version {runtime} was not found in zone {zone}")
        chosen = {key: value for key, value in wanted.items() if key not in schema.OUTPUT_ONLY}
        network = {"network": "default", "subnetwork": "default", "enableExternalIps": True}
        return chosen | {
            "name": name,
            "acceleratorType": accelerator.name,
            "acceleratorConfig": {
                "type": zones.CONFIG_TYPES[accelerator.generation.name][0],
                "topology": accelerator.topology,
            },
            "state": "CREATING",
            "createTime": rfc3339(self._clock.now()),
            "networkConfig": wanted.get("networkConfig", network),
            "schedulingConfig": wanted.get("schedulingConfig", {}),
            "id": str(uuid.uuid4().int >> 65),  # a positive int64
            "apiVersion": "V2",
            "multisliceNode": False,
        }

    def _free_label(self, name: str) -> str:
        """The node's id, with its zone and project added where another node has the same id."""
        _, project, _, zone, _, node_id = name.split("/")
        taken = {node.label for node in self.nodes.values()}
        candidates = (node_id, f"{node_id}.{zone}", f"{node_id}.{zone}.{project}")
        return next(label for label in candidates if label not in taken)

    def delete(self, name: str) -> Operation:
        self._refuse_in("delete", name, ("DELETING",))
        if running := self.unfinished(name):
            self._end(running, error=ApiError("CANCELLED", "The operation was cancelled."))
        self.node(name).resource["state"] = "DELETING"
        return self._begin("delete", name)

    def stop(self, name: str) -> Operation:
        self._require_state("stop", name, "READY")
        self.node(name).resource["state"] = "STOPPING"
        return self._begin("stop", name)

    def start(self, name: str) -> Operation:
        self._require_state("start", name, "STOPPED")
        self.node(name).resource["state"] = "STARTING"
        return self._begin("start", name)

    def update(self, name: str, mask: list[str], body: Any) -> Operation:
        """Replaces the masked fields at once; the operation it returns is done."""
        node = self.node(name)
        wanted = schema.check(body, schema.NODE, "node")
        if not mask:
            raise bad_request("update_mask must name at least one field")
        for path in mask:
            if path not in UPDATABLE:
                raise bad_request(f"field {path!r} in update_mask can't be updated")
        self._require_state("update", name, "READY")
        for path in mask:
            node.resource.pop(path, None)
            if path in wanted:
                node.resource[path] = wanted[path]
        operation = self._begin("update", name)
        self._end(operation, response=node)
        return operation

    def became(self, name: str, state: str) -> None:
        """Node `name` has reached `state`; its operation is done."""
        node = self.nodes[name]
        node.resource["state"] = state
        node.resource.pop("health", None)
        if state == "READY":
            node.resource["health"] = "HEALTHY"
        if running := self.unfinished(name):
            self._end(running, response=node)

    def removed(self, name: str, error: ApiError | None = None) -> None:
        """Node `name` is gone: deleted, or never made because of `error`."""
        del self.nodes[name]
        if running := self.unfinished(name):
            self._end(running, error=error)

    def _begin(self, verb: str, target: str) -> Operation:
        _, project, _, zone, _, _ = target.split("/")
        stamp = self._clock.now()
        name = f"projects/{project}/locations/{zone}/operations/operation-{uuid.uuid4()}"
        self.operations[name] = Operation(name, target, verb, rfc3339(stamp))
        return self.operations[name]

    def _end(self, operation: Operation, *, response: NodeRecord | None = None, error: ApiError | None = None) -> None:
        operation.ended = rfc3339(self._clock.now())
        if error is not None:
            operation.error = error.rpc_status()
        elif response is not None:
            operation.response = {"@type": f"{TYPE_URL}.Node", **response.wire()}
        else:
            operation.response = {"@type": "type.googleapis.com/google.protobuf.Empty"}

    def _require_state(self, verb: str, name: str, state: str) -> None:
        if self.node(name).state != state:
            raise bad_request(f"{verb} is not supported while in state {self.node(name).state}")

    def _refuse_in(self, verb: str, name: str, states: tuple[str, ...]) -> None:
        if self.node(name).state in states:
            raise bad_request(f"{verb} is not supported while in state {self.node(name).state}")


def _type_name(wanted: Json) -> str:
    config: Json = wanted.get("acceleratorConfig") or {}
    if config and not wanted.get("acceleratorType"):
        return zones.name_of_config(config.get("type", ""), config.get("topology", ""))
    return wanted.get("acceleratorType") or ""


def _inside(things: Iterable[Thing], project: str, zone: str) -> list[Thing]:
    """Those of `things` in the zone (`-` is any) of the project, by name."""
    zone_pattern = "[^/]+" if zone == "-" else re.escape(zone)
    pattern = re.compile(f"projects/{re.escape(project)}/locations/{zone_pattern}/")
    return sorted((thing for thing in things if pattern.match(thing.name)), key=lambda thing: thing.name)
