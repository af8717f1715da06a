"""A node: what may be asked for, and how it looks. Pure: states are `cloud.py`'s, effects `keeper.py`'s."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from typing import Any

from tpufleet.accelerators import Accelerator, lookup
from tpufleet.emulator import schema, zones
from tpufleet.emulator.capacity import Use
from tpufleet.emulator.wire import Json, bad_request, project_number

NODE_ID = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
# https://cloud.google.com/compute/docs/labeling-resources and /docs/networking/network-tags
LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
DISK = re.compile(r"projects/[^/]+/(?:zones|regions)/([^/]+)/disks/[^/]+")
DISK_MODES = ("DISK_MODE_UNSPECIFIED", "READ_WRITE", "READ_ONLY")

# Cloud TPU workers answer each other on this port; nothing of the emulator listens there.
TPU_PORT = 8470
# Compute Engine's default access scopes; the TPU API is not among them.
DEFAULT_SCOPES = tuple(
    f"https://www.googleapis.com/auth/{scope}"
    for scope in (
        *("devstorage.read_only", "logging.write", "monitoring.write"),
        *("service.management.readonly", "servicecontrol", "trace.append"),
    )
)


@dataclass
class NodeRecord:
    """A node as it is stored. `label` begins its hosts' names and directories; `number` is N of 127.77.N.M.

    `allocated` says that the zone's chips are its own; `maintenance` are the workers that are told of one.
    """

    name: str
    label: str
    resource: Json
    number: int | None = None
    host_keys: list[str] = field(default_factory=list[str])
    allocated: bool = False
    maintenance: list[int] = field(default_factory=list[int])
    moved: dict[str, str] = field(default_factory=dict[str, str])  # worker -> the address it has got instead

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

    @property
    def queued_resource(self) -> str | None:
        """The full name of the queued resource that it belongs to."""
        return self.resource.get("queuedResource")

    @property
    def use(self) -> Use:
        return use_of(self.zone, self.resource)

    def address(self, worker: int) -> str:
        return self.moved.get(str(worker)) or f"127.77.{self.number}.{worker + 1}"

    def host_name(self, worker: int) -> str:
        return f"{self.label}-w{worker}"

    def wire(self) -> Json:
        """The node as the API shows it, the fields of every version together."""
        if self.number is None:
            return self.resource
        workers = range(self.accelerator.hosts)
        networks = self.resource.get("networkConfigs") or [self.resource["networkConfig"]]
        # worker by worker, and within a worker network by network: `gcloud` takes every n-th as a worker's first
        ends = [self._endpoint(worker, at, network) for worker in workers for at, network in enumerate(networks)]
        return self.resource | {"networkEndpoints": ends}

    def _endpoint(self, worker: int, at: int, network: Json) -> Json:
        """Only the first network's address is a host's; those of further networks are shown and answer nothing."""
        address = self.address(worker) if at == 0 else f"127.{77 + at}.{self.number}.{worker + 1}"
        endpoint: Json = {"ipAddress": address, "port": TPU_PORT}
        return endpoint | ({"accessConfig": {"externalIp": address}} if network.get("enableExternalIps") else {})


def use_of(zone: str, resource: Json) -> Use:
    """What a node takes of the zone and of the quota."""
    scheduling: Json = resource.get("schedulingConfig", {})
    return Use(
        zone,
        lookup(resource["acceleratorType"]),
        spot=bool(
            scheduling.get("spot") or scheduling.get("preemptible") or scheduling.get("provisioningModel") == "SPOT"
        ),
        reserved=bool(scheduling.get("reserved") or scheduling.get("reservationName")),
    )


def check_id(node_id: str, what: str = "node") -> None:
    if not NODE_ID.fullmatch(node_id):
        raise bad_request(f"invalid {what} id {node_id!r}: it must match {NODE_ID.pattern}")


def new_resource(project: str, zone: str, wanted: Json) -> Json:
    """The node that `wanted` (checked against its table) asks for, with what Google fills in; without name and state.

    Raises ApiError (INVALID_ARGUMENT).
    """
    accelerator = zones.accelerator_in(zone, _type_name(wanted))
    runtime = wanted.get("runtimeVersion") or ""
    if runtime not in zones.RUNTIMES:
        raise bad_request(f"the runtime version {runtime} was not found in zone {zone}")
    chosen = {key: value for key, value in wanted.items() if key not in schema.OUTPUT_ONLY}
    _check_words(chosen)
    return chosen | {
        "acceleratorType": accelerator.name,
        "acceleratorConfig": {
            "type": zones.CONFIG_TYPES[accelerator.generation.name][0],
            "topology": accelerator.topology,
        },
        **_networks(project, zone, wanted),
        **({"dataDisks": disks(wanted["dataDisks"], zone, accelerator.hosts)} if wanted.get("dataDisks") else {}),
        "serviceAccount": _service_account(project, wanted.get("serviceAccount", {})),
        "schedulingConfig": wanted.get("schedulingConfig", {}),
        "id": str(uuid.uuid4().int >> 65),  # a positive int64
        "multisliceNode": False,
    }


def _type_name(wanted: Json) -> str:
    config: Json = wanted.get("acceleratorConfig") or {}
    if config and not wanted.get("acceleratorType"):
        return zones.name_of_config(config.get("type", ""), config.get("topology", ""))
    return wanted.get("acceleratorType") or ""


def _check_words(node: Json) -> None:
    for key, value in node.get("labels", {}).items():
        if not LABEL_KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(value):
            raise bad_request(f"invalid label {key!r}: {value!r}")
    for tag in node.get("tags", []):
        if not NODE_ID.fullmatch(tag):
            raise bad_request(f"invalid tag {tag!r}")


def check_update(fields: Json) -> None:
    """Raises ApiError unless the new values of labels and tags are well formed."""
    _check_words(fields)


def _networks(project: str, zone: str, wanted: Json) -> Json:
    """`networkConfig` or `networkConfigs` with full names, as Google shows them."""
    several: list[Json] = wanted.get("networkConfigs") or []
    if several and wanted.get("networkConfig"):
        raise bad_request("only one of network_config and network_configs may be set")
    if several:
        return {"networkConfigs": [_network(project, zone, one) for one in several]}
    return {"networkConfig": _network(project, zone, wanted.get("networkConfig") or {"enableExternalIps": True})}


def _network(project: str, zone: str, wanted: Json) -> Json:
    network = wanted.get("network") or "default"
    subnetwork = wanted.get("subnetwork") or network.rpartition("/")[2]
    if "/" not in network:
        network = f"projects/{project}/global/networks/{network}"
    if "/" not in subnetwork:
        subnetwork = f"projects/{project}/regions/{zones.region_of(zone)}/subnetworks/{subnetwork}"
    return wanted | {"network": network, "subnetwork": subnetwork}


def _service_account(project: str, wanted: Json) -> Json:
    """Who the hosts are to Google: Compute Engine's default account with its default scopes where nothing is said."""
    default = f"{project_number(project)}-compute@developer.gserviceaccount.com"
    return {"email": wanted.get("email") or default, "scope": wanted.get("scope") or list(DEFAULT_SCOPES)}


def disks(wanted: list[Any], zone: str, hosts: int) -> list[Json]:
    """The data disks of a node; raises ApiError for one that can't be attached."""
    found: list[Json] = []
    for disk in wanted:
        source: str = disk.get("sourceDisk", "").removeprefix("https://www.googleapis.com/compute/v1/")
        mode = schema.enum_name(disk.get("mode", "READ_WRITE"), DISK_MODES) or "?"
        place = DISK.fullmatch(source)
        if not place or place.group(1) not in (zone, zones.region_of(zone)):
            raise bad_request(f"data disk {source!r} is not a disk in zone {zone}: projects/P/zones/{zone}/disks/NAME")
        if mode not in DISK_MODES[1:]:
            raise bad_request(f"invalid mode {disk.get('mode')!r} of data disk {source!r}")
        if mode == "READ_WRITE" and hosts > 1:
            raise bad_request(f"data disk {source!r} can be attached to several workers in mode READ_ONLY only")
        found.append(disk | {"sourceDisk": source, "mode": mode})
    return found
