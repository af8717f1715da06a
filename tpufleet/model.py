"""The nouns of tpufleet as frozen dataclasses and enums: what is wanted, what is there, and what to do about it.

No I/O and no library types in here. What is wanted (`Spec` and its parts) is filled by `config`; what is there
(`Snapshot`) by `ops.observe`; what to do (`Plan`) by `plan`. The words are those of docs/architecture.md.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpufleet.accelerators import Accelerator, lookup
from tpufleet.names import FleetName, GitRef, HostName, JobName, NodeName, ParamName, ProjectId, UserName, Zone

Scalar = str | int | float | bool
OPERATOR = UserName("operator")

# ---------------------------------------------------------------------------------------------- what is wanted


class Provider(enum.StrEnum):
    EMULATOR = "emulator"
    GCP = "gcp"


@dataclass(frozen=True)
class EmulatorSpec:
    """The rehearsal cloud: directories put first on the hosts' PATH, and how long a node takes to be made."""

    path: tuple[str, ...] = ()
    create_seconds: float = 1.0


@dataclass(frozen=True)
class CloudSpec:
    provider: Provider = Provider.EMULATOR
    project: ProjectId | None = None
    zones: tuple[Zone, ...] = ()
    emulator: EmulatorSpec = field(default_factory=EmulatorSpec)


@dataclass(frozen=True)
class NodePool:
    """`count` nodes of one kind, named `name-0`, `name-1`, …"""

    name: NodeName
    accelerator: str
    count: int = 1
    runtime: str | None = None
    spot: bool = False

    @property
    def type(self) -> Accelerator:
        return lookup(self.accelerator)


@dataclass(frozen=True)
class SshSpec:
    user: UserName = OPERATOR


@dataclass(frozen=True)
class CodeSpec:
    """The training repository; `setup` lines run once per host and commit."""

    repo: str
    ref: GitRef | None = None
    setup: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobSpec:
    """How to start one training; `command` and `env` may hold `{name}` of the grid."""

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


@dataclass(frozen=True)
class Spec:
    """One fleet file, checked."""

    fleet: FleetName
    nodes: tuple[NodePool, ...]
    cloud: CloudSpec = field(default_factory=CloudSpec)
    ssh: SshSpec = field(default_factory=SshSpec)
    code: CodeSpec | None = None
    jobs: Mapping[JobName, JobSpec] = field(default_factory=dict[JobName, JobSpec])


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


@dataclass(frozen=True)
class Node:
    """One Cloud TPU resource as the cloud shows it; `addresses` holds each worker's, in the workers' order."""

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


@dataclass(frozen=True)
class Host:
    """One VM of a node, and where SSH reaches it; host keys are pinned to its `identity` (node id and worker)."""

    name: HostName
    node: str
    zone: str
    worker: int
    address: str
    port: int
    identity: str


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
    """What is there at one moment: the fleet's nodes (found by label) and their hosts."""

    nodes: tuple[Node, ...] = ()
    hosts: tuple[HostView, ...] = ()


# ---------------------------------------------------------------------------------------------------- what to do


@dataclass(frozen=True)
class CreateNode:
    name: NodeName
    zone: Zone
    pool: NodePool


@dataclass(frozen=True)
class StartNode:
    name: NodeName
    zone: str


@dataclass(frozen=True)
class AwaitNode:
    """A node that is on its way already (somebody asked for it before us)."""

    name: NodeName
    zone: str


@dataclass(frozen=True)
class DeleteNode:
    """`surplus`: the node runs, but the file doesn't want it (any more)."""

    name: str
    zone: str
    why: str
    surplus: bool = False


Action = CreateNode | StartNode | AwaitNode | DeleteNode


@dataclass(frozen=True)
class Plan:
    """The actions on nodes, and what stands in the way (`conflicts`, one sentence each)."""

    actions: tuple[Action, ...] = ()
    conflicts: tuple[str, ...] = ()


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
