"""The API's messages ↔ our model. Pure; the only module that knows the fields of google.cloud.tpu_v2's messages."""

# Google's messages are only partly typed: what comes out of them is `Any` until it is named here.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from google.cloud import tpu_v2
from google.protobuf import duration_pb2, json_format

from tpufleet import labels
from tpufleet.accelerators import lookup
from tpufleet.cloud.port import NodeRequest
from tpufleet.model import ENDED_QUEUED_STATES, GONE_STATES, Node, NodeState, Queued, QueuedState

# Fixed at creation; Google's default can only read storage.
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
REQUESTS = uuid.uuid5(uuid.NAMESPACE_URL, "https://tpu.googleapis.com/v2/queuedResources")


def node_to_make(request: NodeRequest, project: str) -> tpu_v2.Node:
    node = tpu_v2.Node(
        accelerator_type=request.accelerator,
        runtime_version=request.runtime,
        labels=dict(request.labels),
        metadata=dict(request.metadata),
        network_config=tpu_v2.NetworkConfig(
            network=request.network or "",
            subnetwork=request.subnetwork or "",
            enable_external_ips=request.external_ips,
        ),
        service_account=tpu_v2.ServiceAccount(
            email=request.service_account or "", scope=list(request.scopes or SCOPES)
        ),
    )
    if not request.queued:  # a queued resource says itself whether it is spot
        node.scheduling_config = tpu_v2.SchedulingConfig(spot=request.spot)
    if request.data_disk:
        node.data_disks = [_disk(request, project)]
    return node


def _disk(request: NodeRequest, project: str) -> tpu_v2.AttachedDisk:
    """A disk of several hosts (or nodes) can only be read (https://cloud.google.com/tpu/docs/attach-durable-block-storage)."""
    disk = request.data_disk or ""
    mode = tpu_v2.AttachedDisk.DiskMode
    return tpu_v2.AttachedDisk(
        source_disk=disk if "/" in disk else f"projects/{project}/zones/{request.zone}/disks/{disk}",
        mode=mode.READ_ONLY if request.disk_is_shared or lookup(request.accelerator).hosts > 1 else mode.READ_WRITE,
    )


def queued_to_make(request: NodeRequest, project: str) -> tpu_v2.QueuedResource:
    """A queued resource for one node, which has its name."""
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(
        parent=f"projects/{project}/locations/{request.zone}",
        node_id=request.name,
        node=node_to_make(request, project),
    )
    queued = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
    if request.spot:
        queued.spot = tpu_v2.QueuedResource.Spot()
    else:
        queued.guaranteed = tpu_v2.QueuedResource.Guaranteed()
    if request.valid_s is not None:
        until = duration_pb2.Duration(seconds=int(request.valid_s))
        queued.queueing_policy = tpu_v2.QueuedResource.QueueingPolicy(valid_until_duration=until)
    return queued


def request_id(request: NodeRequest, project: str, life: int) -> str:
    """What tells Google that a request is the same as one before, for about an hour (https://google.aip.dev/155).

    Derived, so that whoever makes the same wish after a crash says the same; `life` counts how often the name has
    been made and deleted before, since a new life of it is another wish (see `tpu_api`).
    """
    parts = (project, request.zone, request.name, request.accelerator, request.runtime, request.spot, life)
    return str(uuid.uuid5(REQUESTS, "\n".join(str(part) for part in parts)))


def node_from(raw: Any) -> Node:
    ends = list(raw.network_endpoints)
    return Node(
        name=short(raw.name),
        zone=zone_of(raw.name),
        accelerator=str(raw.accelerator_type),
        state=_node_state(raw),
        health=_name(raw.health),
        uid=str(raw.id),
        addresses=tuple(str(end.access_config.external_ip or end.ip_address) for end in ends),
        internal=tuple(str(end.ip_address) for end in ends),
        labels=dict(raw.labels),
        metadata=dict(raw.metadata),
        created=raw.create_time.rfc3339() if raw.create_time else None,
        spot=bool(raw.scheduling_config.spot or raw.scheduling_config.preemptible),
        queued=short(raw.queued_resource) or None,
        runtime=str(raw.runtime_version),
    )


def queued_from(raw: Any) -> Queued:
    """Of several node specs (not ours) the first speaks for all."""
    spec = _spec(raw)
    return Queued(
        name=short(raw.name),
        zone=zone_of(raw.name),
        state=_queued_state(raw),
        node=str(spec.node_id or spec.multislice_params.node_id_prefix),
        accelerator=str(spec.node.accelerator_type),
        labels=dict(spec.node.labels),
        why=_why(raw.state),
    )


def unlike_node(raw: Any, request: NodeRequest) -> str | None:
    """What keeps the node that is there from being the one that is asked for; None when nothing does."""
    spot = bool(raw.scheduling_config.spot or raw.scheduling_config.preemptible)
    state = _node_state(raw)
    ended = state in GONE_STATES or state is NodeState.DELETING
    return _unlike(raw, request, spot=spot) or (f"it is {state}: its name is free when it is gone" if ended else None)


def unlike_queued(raw: Any, request: NodeRequest) -> str | None:
    """As `unlike_node`, for a queued resource."""
    state = _queued_state(raw)
    ended = state in ENDED_QUEUED_STATES or state is QueuedState.DELETING
    why = _why(raw.state)
    return _unlike(_spec(raw).node, request, spot="spot" in raw) or (
        f"it is {state}{f' ({why})' if why else ''}: its name is free when it is deleted" if ended else None
    )


def _unlike(raw: Any, request: NodeRequest, *, spot: bool) -> str | None:
    theirs, ours = labels.fleet_of(raw.labels), labels.fleet_of(request.labels)
    if theirs != ours:
        return f"it belongs to the fleet {theirs}" if theirs else "it is not tpufleet's (it bears no fleet's label)"
    pairs = (
        ("type", str(raw.accelerator_type), request.accelerator),
        ("runtime", str(raw.runtime_version), request.runtime),
        ("kind", _kind(spot=spot), _kind(spot=request.spot)),
    )
    differing = [f"its {what} is {there}, not {wanted}" for what, there, wanted in pairs if there != wanted]
    return ", ".join(differing) or None


def _kind(*, spot: bool) -> str:
    return "spot" if spot else "on demand"


def details_of(status: Any) -> list[dict[str, Any]]:
    """A google.rpc.Status's details as JSON, as far as their kinds are known."""
    known = [detail for detail in status.details if detail.TypeName().startswith("google.rpc.")]
    return [json_format.MessageToDict(detail) for detail in known]


def host_key(worker: Any) -> str | None:
    """The ed25519 key of one worker's guest attributes, as a line; None while the worker has written none."""
    keys = {str(item.key): str(item.value) for item in worker.query_value.items}
    return f"ssh-ed25519 {keys['ssh-ed25519']}" if "ssh-ed25519" in keys else None


def short(name: str) -> str:
    return str(name).rpartition("/")[2]


def zone_of(name: str) -> str:
    """`projects/P/locations/Z/nodes/N` → Z."""
    parts = str(name).split("/")
    return parts[3] if len(parts) > 3 else ""


def _spec(raw: Any) -> Any:
    return raw.tpu.node_spec[0] if raw.tpu.node_spec else tpu_v2.QueuedResource.Tpu.NodeSpec()


def _why(state: Any) -> str:
    return str(state.failed_data.error.message)


def _node_state(raw: Any) -> NodeState:
    return NodeState.__members__.get(_name(raw.state), NodeState.UNKNOWN)


def _queued_state(raw: Any) -> QueuedState:
    return QueuedState.__members__.get(_name(raw.state.state), QueuedState.UNKNOWN)


def _name(value: Any) -> str:
    """An enum's name; a value that this client doesn't know yet comes as a bare number."""
    return str(getattr(value, "name", "UNKNOWN"))


def changes(name: str, labels_: Mapping[str, str] | None, metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """The arguments of an update of `name`: the node, and the mask of what is replaced whole."""
    wanted = {"labels": labels_, "metadata": metadata}
    given = {field: dict(value) for field, value in wanted.items() if value is not None}
    return {"node": {"name": name, **given}, "update_mask": {"paths": sorted(given)}}
