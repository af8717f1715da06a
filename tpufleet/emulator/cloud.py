"""The cloud's state: nodes, queued resources and operations, and what may be asked of them when.

No effects here: `keeper.py` and `queue.py` boot and kill hosts and tell this module what came of it.

    (absent) --create--> CREATING --> READY <--> STOPPED (through STOPPING, STARTING)
    any state --delete--> DELETING --> (absent)      READY --preempt--> PREEMPTED
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tpufleet.emulator import schema, zones
from tpufleet.emulator.capacity import Capacity, Use
from tpufleet.emulator.clock import Clock, rfc3339
from tpufleet.emulator.nodes import NodeRecord, check_id, check_update, disks, new_resource, use_of
from tpufleet.emulator.operations import Operation, Operations, inside
from tpufleet.emulator.queued import QueuedRecord, new_record, refuse_delete
from tpufleet.emulator.wire import ApiError, Json, bad_request, not_found

UPDATABLE = ("metadata", "labels", "tags", "description", "dataDisks", "networkConfig.enableExternalIps")
API_VERSIONS = {"v2": "V2", "v2alpha1": "V2_ALPHA1"}  # Node.ApiVersion


class Cloud:
    """Everything that the API knows; every method is a step of the state and takes no time."""

    def __init__(self, clock: Clock, stored: Json | None = None) -> None:
        self._clock = clock
        stored = stored or {}
        self.nodes = {name: NodeRecord(**record) for name, record in stored.get("nodes", {}).items()}
        self.queued = {name: QueuedRecord(**record) for name, record in stored.get("queued", {}).items()}
        self.operations = Operations(clock, stored.get("operations", {}))
        self.capacity = Capacity(stored.get("capacity"))
        # the metadata of each project that was given some, as Compute Engine keeps it
        self.projects: dict[str, dict[str, str]] = stored.get("projects", {})

    def stored(self) -> Json:
        """All of it as JSON; not a copy."""
        return {
            "nodes": {name: vars(node) for name, node in self.nodes.items()},
            "queued": {name: vars(queued) for name, queued in self.queued.items()},
            "operations": self.operations.stored(),
            "capacity": self.capacity.stored(),
            "projects": self.projects,
        }

    def node(self, name: str) -> NodeRecord:
        if name not in self.nodes:
            raise not_found(name)
        return self.nodes[name]

    def nodes_in(self, project: str, zone: str) -> list[NodeRecord]:
        """The nodes of a zone by name; zone `-` is all zones."""
        if zone != "-":
            zones.check_zone(zone)
        return inside(self.nodes.values(), project, zone)

    def queued_resource(self, name: str) -> QueuedRecord:
        if name not in self.queued:
            raise not_found(name)
        return self.queued[name]

    def queued_in(self, project: str, zone: str) -> list[QueuedRecord]:
        if zone != "-":
            zones.check_zone(zone)
        return inside(self.queued.values(), project, zone)

    # Nodes.

    def create(
        self, project: str, zone: str, node_id: str, body: Any, *, version: str = "v2", request_id: str = ""
    ) -> Operation:
        """A new node in state CREATING. Raises ApiError."""
        zones.check_zone(zone)
        wanted = schema.check(body, schema.TABLES["Node", version], "node")
        check_id(node_id)
        name = f"projects/{project}/locations/{zone}/nodes/{node_id}"
        self._refuse_taken(name, self.nodes)
        resource = new_resource(project, zone, wanted) | {"apiVersion": API_VERSIONS[version]}
        self.capacity.check_quota(project, [use_of(zone, resource)], self._used(project))
        self._recorded(name, resource)
        return self.operations.begin("create", name, request_id)

    def _recorded(self, name: str, resource: Json) -> NodeRecord:
        made = {"name": name, "state": "CREATING", "createTime": rfc3339(self._clock.now())}
        self.nodes[name] = NodeRecord(name, self._free_label(name), {"apiVersion": "V2"} | resource | made)
        return self.nodes[name]

    def _free_label(self, name: str) -> str:
        """The node's id, with its zone and project added where another node has the same id."""
        _, project, _, zone, _, node_id = name.split("/")
        taken = {node.label for node in self.nodes.values()}
        candidates = (node_id, f"{node_id}.{zone}", f"{node_id}.{zone}.{project}")
        return next(label for label in candidates if label not in taken)

    def _used(self, project: str) -> Iterable[Use]:
        """What counts against the project's quota: nodes in any state, queued resources with or without nodes."""
        prefix = f"projects/{project}/"
        for node in self.nodes.values():
            if node.name.startswith(prefix) and node.queued_resource not in self.queued:
                yield node.use
        for queued in self.queued.values():
            if queued.name.startswith(prefix):
                yield from queued.uses

    def allocate(self, nodes: list[NodeRecord]) -> None:
        """Gives the nodes their zone's chips, all or none; raises ApiError when there are too few."""
        held = [node.use for node in self.nodes.values() if node.allocated and node not in nodes]
        self.capacity.check_room([node.use for node in nodes], held)
        for node in nodes:
            node.allocated = True

    def delete(self, name: str) -> Operation:
        node = self.node(name)
        if node.state == "DELETING":
            raise _not_while("delete", node)
        if running := self.operations.unfinished(name):
            self.operations.fail(running, ApiError("CANCELLED", "The operation was cancelled."))
        node.resource["state"] = "DELETING"
        return self.operations.begin("delete", name)

    def stop(self, name: str) -> Operation:
        """Not of slices, nor of what a queued resource has: https://cloud.google.com/tpu/docs/managing-tpus-tpu-vm."""
        node = self._in_state("stop", name, "READY")
        if node.accelerator.hosts > 1 or node.queued_resource:
            raise bad_request("stop is not supported for TPU slices and nodes of queued resources; delete it instead")
        node.resource["state"] = "STOPPING"
        return self.operations.begin("stop", name)

    def start(self, name: str) -> Operation:
        self._in_state("start", name, "STOPPED").resource["state"] = "STARTING"
        return self.operations.begin("start", name)

    def restart(self, name: str) -> None:
        """A READY node boots again, as part of another operation."""
        self._in_state("reset", name, "READY").resource["state"] = "RESTARTING"

    def update(self, name: str, mask: list[str], body: Any, version: str = "v2") -> Operation:
        """Replaces the masked fields at once; the operation it returns is done."""
        node = self.node(name)
        wanted = schema.check(body, schema.TABLES["Node", version], "node")
        paths = [_camel(path) for path in mask]
        if not paths:
            raise bad_request("update_mask must name at least one field")
        for path in paths:
            if path not in UPDATABLE:
                raise bad_request(f"field {path!r} in update_mask can't be updated")
        self._in_state("update", name, "READY")
        check_update({path: wanted[path] for path in ("labels", "tags") if path in paths and path in wanted})
        if "dataDisks" in wanted:
            wanted = wanted | {"dataDisks": disks(wanted["dataDisks"], node.zone, node.accelerator.hosts)}
        for path in paths:
            _replace(node.resource, wanted, path)
        operation = self.operations.begin("update", name)
        self.operations.end(operation, "Node", node.wire())
        return operation

    def maintenance(self, name: str, workers: list[int]) -> Operation:
        """Workers of a READY node are told of a maintenance; the operation it returns is done."""
        node = self._in_state("simulateMaintenanceEvent", name, "READY")
        node.maintenance = workers
        node.resource["health"] = "UNHEALTHY_MAINTENANCE"
        node.resource["upcomingMaintenance"] = {"type": "UNSCHEDULED", "maintenanceStatus": "ONGOING"}
        operation = self.operations.begin("simulateMaintenanceEvent", name)
        self.operations.end(operation, "Node", node.wire())
        return operation

    def maintenance_over(self, name: str) -> None:
        node = self.node(name)
        node.maintenance = []
        node.resource.pop("upcomingMaintenance", None)
        if node.state == "READY":
            node.resource["health"] = "HEALTHY"

    def became(self, name: str, state: str) -> None:
        """Node `name` has reached `state`; its operation is done."""
        node = self.nodes[name]
        node.resource["state"] = state
        node.resource.pop("health", None)
        self.maintenance_over(name)
        self._hold(node, state == "READY")
        if running := self.operations.unfinished(name):
            self.operations.end(running, "Node", node.wire())

    def failed_to_start(self, name: str, error: ApiError) -> None:
        """A STARTING node found no room; it stays STOPPED."""
        self.nodes[name].resource["state"] = "STOPPED"
        self._fail(name, error)

    def removed(self, name: str, error: ApiError | None = None) -> None:
        """Node `name` is gone: deleted, or never made because of `error`."""
        self._hold(self.nodes.pop(name), held=False)
        if error:
            self._fail(name, error)
        elif running := self.operations.unfinished(name):
            self.operations.end(running)

    def _fail(self, target: str, error: ApiError) -> None:
        if running := self.operations.unfinished(target):
            self.operations.fail(running, error)

    def _hold(self, node: NodeRecord, held: bool) -> None:
        freed = node.allocated and not held
        node.allocated = held
        if freed:
            self.capacity.freed()

    def _in_state(self, verb: str, name: str, state: str) -> NodeRecord:
        node = self.node(name)
        if node.state != state:
            raise _not_while(verb, node)
        return node

    # Queued resources.

    def enqueue(
        self, project: str, zone: str, queued_id: str, body: Any, *, version: str, request_id: str
    ) -> tuple[Operation, QueuedRecord]:
        """A new queued resource, CREATING. Raises ApiError."""
        zones.check_zone(zone)
        parent = f"projects/{project}/locations/{zone}"
        record = new_record(parent, queued_id, body, version, rfc3339(self._clock.now()))
        self._refuse_taken(record.name, self.queued)
        for node in record.nodes:
            self._refuse_taken(node, self.nodes)
        self.capacity.check_quota(project, record.uses, self._used(project))
        self.queued[record.name] = record
        return self.operations.begin("create", record.name, request_id), record

    def grant(self, record: QueuedRecord) -> list[NodeRecord]:
        """Makes the nodes of a queued resource, CREATING, with their chips; raises ApiError, having made none."""
        for name in record.nodes:
            self._refuse_taken(name, self.nodes)
        nodes = [self._recorded(name, resource) for name, resource in record.node_resources().items()]
        try:
            self.allocate(nodes)
        except ApiError:
            for node in nodes:
                del self.nodes[node.name]
            raise
        for node in nodes:
            self.operations.begin("create", node.name)
        return nodes

    def dequeue(self, name: str, request_id: str, *, force: bool) -> Operation:
        """The queued resource is DELETING from now on."""
        record = self.queued_resource(name)
        refuse_delete(record, force=force)
        if running := self.operations.unfinished(name):
            self.operations.fail(running, ApiError("CANCELLED", "The operation was cancelled."))
        record.became("DELETING", "USER")
        return self.operations.begin("delete", name, request_id)

    def reset(self, name: str) -> Operation:
        record = self.queued_resource(name)
        if record.state != "ACTIVE":
            raise bad_request(f"reset is not supported while in state {record.state}")
        return self.operations.begin("reset", name)

    def queued_done(self, record: QueuedRecord) -> None:
        """What was asked of the queued resource is done."""
        if running := self.operations.unfinished(record.name):
            self.operations.end(running, "QueuedResource", record.wire())

    def dequeued(self, record: QueuedRecord) -> None:
        """The queued resource is gone."""
        del self.queued[record.name]
        if running := self.operations.unfinished(record.name):
            self.operations.end(running)

    def _refuse_taken(self, name: str, things: Iterable[str]) -> None:
        if name in things:
            raise ApiError("ALREADY_EXISTS", f"Resource '{name}' already exists")


def _not_while(verb: str, node: NodeRecord) -> ApiError:
    return bad_request(f"{verb} is not supported while in state {node.state}")


def _camel(path: str) -> str:
    """`data_disks` as `dataDisks`: field masks come either way."""
    return re.sub(r"_([a-z])", lambda match: match.group(1).upper(), path)


def _replace(resource: Json, wanted: Json, path: str) -> None:
    """Sets the field at `path` to what it is in `wanted`, or removes it."""
    *outer, last = path.split(".")
    for name in outer:
        resource, wanted = resource.setdefault(name, {}), wanted.get(name, {})
    resource.pop(last, None)
    if last in wanted:
        resource[last] = wanted[last]
