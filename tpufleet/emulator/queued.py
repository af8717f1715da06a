"""A queued resource: what may be asked for, its states, and how it looks. Pure: what happens is `queue.py`'s.

    CREATING -> ACCEPTED -> [WAITING_FOR_RESOURCES ->] PROVISIONING -> ACTIVE -> SUSPENDING -> SUSPENDED
    any of the first four -> FAILED         FAILED, SUSPENDED: until deleted         any -> DELETING -> (absent)

Sources: the v2 discovery document; Google's "Manage queued resources".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tpufleet.emulator import schema
from tpufleet.emulator.capacity import Use
from tpufleet.emulator.clock import parse_rfc3339
from tpufleet.emulator.nodes import check_id, new_resource, use_of
from tpufleet.emulator.wire import ApiError, Json, bad_request

WAITING = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES")
# Without `force` only these can be deleted: nothing is, or is being, provisioned for them.
DELETABLE = (*WAITING, "FAILED", "SUSPENDED")
TIERS = ("spot", "guaranteed", "bestEffort")
MOST_SLICES = 256  # a bound of our own
DURATION = re.compile(r"(\d+(?:\.\d+)?)s")


@dataclass
class QueuedRecord:
    """A queued resource as it is stored: `resource` is the API's message, `nodes` the nodes' full names."""

    name: str
    resource: Json
    nodes: list[str]

    @property
    def state(self) -> str:
        return str(self.resource["state"]["state"])

    @property
    def zone(self) -> str:
        return self.name.split("/")[3]

    @property
    def spec(self) -> Json:
        """Its one node spec."""
        return self.resource["tpu"]["nodeSpec"][0]

    @property
    def uses(self) -> list[Use]:
        """What its nodes take, whether they are there or not."""
        return [use_of(self.zone, self.spec["node"])] * len(self.nodes)

    def became(self, state: str, initiator: str = "SERVICE", error: ApiError | None = None) -> None:
        """It is in `state` now, by USER or SERVICE; FAILED says the `error`."""
        now: Json = {"state": state, "stateInitiator": initiator}
        if state != "WAITING_FOR_RESOURCES":  # the only state without a message of its own
            now[f"{state.lower()}Data"] = {"error": error.rpc_status()} if error else {}
        self.resource["state"] = now

    def window(self) -> tuple[datetime | None, datetime | None]:
        """When it may be fulfilled: from, until."""
        policy: Json = self.resource.get("queueingPolicy", {})
        created = parse_rfc3339(self.resource["createTime"])
        interval: Json = policy.get("validInterval", {})
        return (
            _moment(
                interval.get("startTime") or policy.get("validAfterTime"), policy.get("validAfterDuration"), created
            ),
            _moment(interval.get("endTime") or policy.get("validUntilTime"), policy.get("validUntilDuration"), created),
        )

    def node_resources(self) -> dict[str, Json]:
        """The nodes to be made, by their full names."""
        project = self.name.split("/")[1]
        return {
            name: new_resource(project, self.zone, self.spec["node"])
            | {"queuedResource": self.name, "multisliceNode": "multisliceParams" in self.spec}
            for name in self.nodes
        }

    def wire(self) -> Json:
        """As the API shows it: one node spec per node, which is how `gcloud` counts and finds them."""
        spec = {key: value for key, value in self.spec.items() if key != "multisliceParams"}
        specs = [spec | {"nodeId": name.rpartition("/")[2]} for name in self.nodes]
        return self.resource | {"tpu": {"nodeSpec": specs}}


def new_record(parent: str, queued_id: str, body: Any, version: str, created: str) -> QueuedRecord:
    """The queued resource that `body` asks for, CREATING; `parent` is its zone's full name. Raises ApiError."""
    check_id(queued_id, "queued resource")
    wanted = schema.check(body, schema.TABLES["QueuedResource", version], "queued_resource")
    specs: list[Json] = wanted.get("tpu", {}).get("nodeSpec", [])
    if len(specs) != 1:
        raise bad_request("exactly one node_spec is expected in queued_resource.tpu")
    tiers = [tier for tier in TIERS if tier in wanted]
    if len(tiers) > 1:
        raise bad_request(f"only one of {', '.join(tiers)} may be set")
    scheduling = {
        "spot": "spot" in tiers or "bestEffort" in tiers,
        "reserved": bool(wanted.get("reservationName") or wanted.get("guaranteed", {}).get("reserved")),
    }
    spec = _spec(parent, specs[0], {key: value for key, value in scheduling.items() if value})
    resource = {key: value for key, value in wanted.items() if key not in ("name", "state")}
    resource |= {"name": f"{parent}/queuedResources/{queued_id}", "createTime": created, "tpu": {"nodeSpec": [spec]}}
    record = QueuedRecord(resource["name"], resource, [f"{parent}/nodes/{one}" for one in _node_ids(queued_id, spec)])
    record.became("CREATING", "USER")
    start, end = record.window()
    if end and (end <= parse_rfc3339(created) or (start and end <= start)):
        raise bad_request("the valid interval of queueing_policy must end in the future, and after its start")
    return record


def _spec(parent: str, given: Json, scheduling: Json) -> Json:
    """The node spec as it is kept: v2's names, the type filled in, the tier in the node's scheduling."""
    _, project, _, zone = parent.split("/")
    _check_parent(given.get("parent") or parent, parent)
    spec = {key: value for key, value in given.items() if key != "multiNodeParams"}
    if "multiNodeParams" in given:
        spec["multisliceParams"] = given["multiNodeParams"]
    if ("nodeId" in spec) == ("multisliceParams" in spec):
        raise bad_request("exactly one of node_id and multislice_params is expected in a node_spec")
    node: Json = spec.get("node", {})
    made = new_resource(project, zone, node)
    kept = node | {name: made[name] for name in ("acceleratorType", "acceleratorConfig")}
    if scheduling:
        kept["schedulingConfig"] = node.get("schedulingConfig", {}) | scheduling
    return spec | {"parent": parent, "node": kept}


def _check_parent(given: str, parent: str) -> None:
    if given.split("/")[3:] != parent.split("/")[3:]:
        raise bad_request(f"the node_spec's parent {given!r} is not the queued resource's zone {parent!r}")


def _node_ids(queued_id: str, spec: Json) -> list[str]:
    if "nodeId" in spec:
        check_id(spec["nodeId"])
        return [spec["nodeId"]]
    slices: Json = spec["multisliceParams"]
    count = slices.get("nodeCount", 0)
    if not 1 <= count <= MOST_SLICES:
        raise bad_request(f"invalid node_count {count} in multislice_params")
    ids = [f"{slices.get('nodeIdPrefix') or queued_id}-{number}" for number in range(count)]
    for one in ids:
        check_id(one)
    return ids


def _moment(time: str | None, duration: str | None, created: datetime) -> datetime | None:
    try:
        if time:
            return parse_rfc3339(time).astimezone(UTC)
    except ValueError as error:
        raise bad_request(f"invalid time in queueing_policy: {error}") from error
    if not duration:
        return None
    seconds = DURATION.fullmatch(duration)
    if not seconds:
        raise bad_request(f"invalid duration {duration!r} in queueing_policy")
    return created + timedelta(seconds=float(seconds.group(1)))


def refuse_delete(record: QueuedRecord, *, force: bool) -> None:
    """Raises ApiError where a delete isn't possible (yet). The wording is ours; no answer of Google's was at hand."""
    if record.state == "DELETING" or (record.state not in DELETABLE and not force):
        raise ApiError(
            "FAILED_PRECONDITION",
            f"Queued resource '{record.name}' can't be deleted while in state {record.state}; delete its nodes first, "
            "or set force=true to delete them with it.",
        )
