"""The nouns of tpufleet as frozen dataclasses and enums: what is wanted, what is there, what is to run.

No I/O and no library types in here. What is wanted (`Spec` and its parts) is filled by `config`; what is there
(`Snapshot`) by `ops.observe`; what to do about it stands in `actions`. The words are those of docs/architecture.md.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tpufleet.accelerators import Accelerator, lookup
from tpufleet.labels import ADOPTED, expiry
from tpufleet.names import (
    Address,
    Duration,
    FleetName,
    GitRef,
    HostName,
    JobName,
    LabelKey,
    LabelValue,
    LoginName,
    NodeName,
    ParamName,
    ProjectId,
    Resource,
    Seat,
    ServiceAccount,
    UserName,
    Zone,
)
from tpufleet.publickey import PublicKeyLine

Scalar = str | int | float | bool
OPERATOR = UserName("tpufleet")
PRIORITIES = (-1000, 1000)  # of jobs, as the hosts take them (host/specs.py)
PARALLEL = (1, 10_000)
MIRROR_EVERY = Duration("5m")

# ---------------------------------------------------------------------------------------------- what is wanted


class Provider(enum.StrEnum):
    EMULATOR = "emulator"
    GCP = "gcp"
    INVENTORY = "inventory"  # hosts that are there already, reached over SSH alone


class HostKind(enum.StrEnum):
    """Of the rehearsal cloud: plain processes, or machines of their own (Linux, as root)."""

    PROCESS = "process"
    NAMESPACE = "namespace"


@dataclass(frozen=True)
class EmulatorSpec:
    """The rehearsal cloud: directories put first on the hosts' PATH, how long a node takes, the kind of hosts."""

    path: tuple[str, ...] = ()
    create_seconds: float = 1.0
    hosts: HostKind = HostKind.PROCESS


@dataclass(frozen=True)
class InventoryHost:
    """A host that somebody gave access to; it is worker 0 of a node of its own called `name`.

    `user` is the fleet's (`ssh.user`) unless it is named; `host_key` is `ssh-ed25519 AAAA…`, where it is known.
    """

    name: NodeName
    address: Address
    accelerator: str
    user: LoginName | None = None
    port: int = 22
    host_key: str | None = None


@dataclass(frozen=True)
class CloudSpec:
    """`zones` are tried in this order. `trc`: the project's TPUs are paid by a TPU Research Cloud grant."""

    provider: Provider = Provider.EMULATOR
    project: ProjectId | None = None
    zones: tuple[Zone, ...] = ()
    network: Resource | None = None
    subnetwork: Resource | None = None
    external_ips: bool = True
    service_account: ServiceAccount | None = None
    scopes: tuple[str, ...] = ()
    trc: bool = False
    hosts: tuple[InventoryHost, ...] = ()
    emulator: EmulatorSpec = field(default_factory=EmulatorSpec)


@dataclass(frozen=True)
class NodePool:
    """`count` nodes of one kind, named `name-0`, `name-1`, …

    `queued` asks for them as queued resources, which wait for capacity until `valid_until` has passed since the
    asking. `ttl` after its creation a node is deleted. `data_disk` is attached to each node at its creation,
    `startup_script` (a file beside the fleet file) runs as root at each boot.
    """

    name: NodeName
    accelerator: str
    count: int = 1
    runtime: str | None = None
    spot: bool = False
    queued: bool = False
    valid_until: Duration | None = None
    ttl: Duration | None = None
    labels: Mapping[LabelKey, LabelValue] = field(default_factory=dict[LabelKey, LabelValue])
    data_disk: Resource | None = None
    startup_script: str | None = None

    @property
    def type(self) -> Accelerator:
        return lookup(self.accelerator)


@dataclass(frozen=True)
class SshSpec:
    """`key` is a private key file of the person's own, used instead of the one that tpufleet makes.

    `jump` is a host that the person's own `ssh` reaches (`user@bastion`, or a name of their ~/.ssh/config); all
    hosts are then reached through it, by their internal addresses.
    """

    user: UserName = OPERATOR
    key: str | None = None
    jump: str | None = None


@dataclass(frozen=True)
class CodeSpec:
    """The training repository; `setup` lines run once per host and commit."""

    repo: str
    ref: GitRef | None = None
    setup: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobSpec:
    """How to start one training; `command` and `env` may hold `{name}` of its points.

    The points are the product of `grid`, times the lists of `zip` taken together, or those of `points` alone.
    `whole_host` takes all chips of a host. `max_parallel` bounds how many of its runs are on at once. A run that
    takes longer than `time_limit`, or says nothing and makes no step for `stalled_after`, is ended; `stop_on_nan` ends
    one whose loss is no number any more. Checkpoints are mirrored home every `mirror` while `tpufleet watch` is on.
    """

    command: tuple[str, ...]
    workdir: str = "."
    chips: int = 1
    device: str = "tpu"
    grid: Mapping[ParamName, tuple[Scalar, ...]] = field(default_factory=dict[ParamName, tuple[Scalar, ...]])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: tuple[ParamName, ...] = ()
    artifacts: tuple[str, ...] = ()
    metrics: Mapping[ParamName, str] = field(default_factory=dict[ParamName, str])
    retries: int = 0
    zip: Mapping[ParamName, tuple[Scalar, ...]] = field(default_factory=dict[ParamName, tuple[Scalar, ...]])
    points: tuple[Mapping[ParamName, Scalar], ...] = ()
    whole_host: bool = False
    priority: int = 0
    max_parallel: int | None = None
    time_limit: Duration | None = None
    stalled_after: Duration | None = None
    stop_on_nan: bool = False
    mirror: Duration = MIRROR_EVERY
    log_limit_mb: int = 100


@dataclass(frozen=True)
class Person:
    """Somebody who has an account on the hosts: by which key, until when (UTC), and where they must sit, if fixed.

    `share`: they agreed that the operator shows their completions and keeps what they trained.
    """

    name: UserName
    key: PublicKeyLine
    expires: datetime | None = None
    seat: Seat | None = None
    note: str = ""
    share: bool = False


@dataclass(frozen=True)
class Spec:
    """One fleet file, checked, with the list of people that it names."""

    fleet: FleetName
    nodes: tuple[NodePool, ...] = ()
    cloud: CloudSpec = field(default_factory=CloudSpec)
    ssh: SshSpec = field(default_factory=SshSpec)
    code: CodeSpec | None = None
    jobs: Mapping[JobName, JobSpec] = field(default_factory=dict[JobName, JobSpec])
    people: tuple[Person, ...] = ()


# ------------------------------------------------------------------------------------------------ what is there


class NodeState(enum.StrEnum):
    """Cloud TPU's node states (google.cloud.tpu_v2.Node.State)."""

    CREATING = "CREATING"
    READY = "READY"
    RESTARTING = "RESTARTING"
    REIMAGING = "REIMAGING"
    DELETING = "DELETING"
    REPAIRING = "REPAIRING"
    STOPPED = "STOPPED"
    STOPPING = "STOPPING"
    STARTING = "STARTING"
    PREEMPTED = "PREEMPTED"
    TERMINATED = "TERMINATED"
    HIDING = "HIDING"
    HIDDEN = "HIDDEN"
    UNHIDING = "UNHIDING"
    UNKNOWN = "UNKNOWN"


GONE_STATES = frozenset({NodeState.PREEMPTED, NodeState.TERMINATED})  # these nodes never come back by themselves


class QueuedState(enum.StrEnum):
    """Cloud TPU's queued resource states (google.cloud.tpu_v2.QueuedResourceState.State)."""

    CREATING = "CREATING"
    ACCEPTED = "ACCEPTED"
    PROVISIONING = "PROVISIONING"
    FAILED = "FAILED"
    DELETING = "DELETING"
    ACTIVE = "ACTIVE"
    SUSPENDING = "SUSPENDING"
    SUSPENDED = "SUSPENDED"
    WAITING_FOR_RESOURCES = "WAITING_FOR_RESOURCES"
    UNKNOWN = "UNKNOWN"


ENDED_QUEUED_STATES = frozenset({QueuedState.FAILED, QueuedState.SUSPENDING, QueuedState.SUSPENDED})


@dataclass(frozen=True)
class Node:
    """One Cloud TPU resource as the cloud shows it.

    `addresses` holds where each worker is reached (external, else internal), `internal` its internal address, both
    in the workers' order. `queued` is the queued resource that the node belongs to, by its short name.
    """

    name: str
    zone: str
    accelerator: str
    state: NodeState
    health: str
    uid: str
    addresses: tuple[str, ...]
    labels: Mapping[str, str]
    created: str | None = None
    spot: bool = False
    internal: tuple[str, ...] = ()
    queued: str | None = None
    runtime: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def adopted(self) -> bool:
        return ADOPTED in self.labels

    @property
    def expires(self) -> float | None:
        """The end of its ttl in seconds of Unix time, if it has one."""
        return expiry(self.labels, self.created)


@dataclass(frozen=True)
class Queued:
    """A queued resource: a wish for a node, which Google keeps until it can be fulfilled.

    `node` is the node it is for (ours have one each), `why` what Google says of a FAILED or SUSPENDED one.
    """

    name: str
    zone: str
    state: QueuedState
    node: str
    accelerator: str
    labels: Mapping[str, str]
    why: str = ""


@dataclass(frozen=True)
class Host:
    """One VM of a node, and where SSH reaches it; host keys are pinned to its `identity` (node id and worker).

    `chips` is how many its type promises, 0 where that isn't known.
    """

    name: HostName
    node: str
    zone: str
    worker: int
    address: str
    port: int
    identity: str
    user: str | None = None  # where it isn't the fleet's own (`ssh.user`)
    chips: int = 0


@dataclass(frozen=True)
class HostView:
    """A host and what was heard from it: its probe, an `error`, or that it is `bare` (nothing of ours there)."""

    host: Host
    probe: Mapping[str, Any] | None = None
    error: str | None = None
    bare: bool = False
    impostor: bool = False  # another machine answers than the one that was made

    @property
    def chips(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.probe["chips"]) if self.probe else ()

    @property
    def runs(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.probe["runs"]) if self.probe else ()

    def commit_of(self, repo_id: str) -> str | None:
        """The commit that the host has of a repository; None when it has none, or wasn't heard."""
        trees: list[Mapping[str, Any]] = self.probe["code"] if self.probe else []
        return next((str(tree["commit"]) for tree in trees if tree["repo"] == repo_id), None)


@dataclass(frozen=True)
class Snapshot:
    """What is there at one moment: the fleet's nodes and queued resources (found by label) and their hosts.

    `others` are nodes of the same zones that are not the fleet's: their names are taken. Zones that are `not_granted`
    to the project could not be looked at.
    """

    nodes: tuple[Node, ...] = ()
    hosts: tuple[HostView, ...] = ()
    queued: tuple[Queued, ...] = ()
    others: tuple[Node, ...] = ()
    not_granted: tuple[str, ...] = ()


# --------------------------------------------------------------------------------------------------- what is to run


@dataclass(frozen=True)
class RunSpec:
    """A job with one point of its grid, ready to be placed: nothing left to fill in but the host."""

    id: str
    job: str
    params: Mapping[str, Scalar]
    command: tuple[str, ...]
    env: Mapping[str, str]
    spec: JobSpec


@dataclass(frozen=True)
class Code:
    """The training repository, resolved: `url` for hosts that clone, else `directory` at home that is bundled."""

    repo_id: str
    commit: str
    setup: tuple[str, ...]
    url: str | None = None
    directory: Path | None = None
    uncommitted: int = 0
    shallow: tuple[str, ...] = ()  # where a shallow clone ends (as a CI checkout does)


@dataclass(frozen=True)
class Event:
    """Something a person may want to see while an operation goes on: about `subject`, in `text`."""

    subject: str
    text: str
    state: str = "info"  # info | done | failed
