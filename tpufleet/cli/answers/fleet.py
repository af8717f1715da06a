"""Answers about nodes, hosts and chips."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tpufleet.cli.answers.base import MAYBE, Answer, Part, Time


class Init(Answer):
    file: str
    fleet: str
    dry_run: bool


class Action(Part):
    action: Literal["create", "start", "await", "delete"]
    node: str
    zone: str
    zones: list[str] = MAYBE
    accelerator: str = MAYBE
    runtime: str = MAYBE
    spot: bool = MAYBE
    queued: bool = MAYBE
    usd_per_hour: float | None = MAYBE
    why: str = MAYBE
    """of `delete`"""
    queued_resource: str | None = MAYBE
    """of `delete`"""


class Plan(Answer):
    """What would be done, with `--dry-run`."""

    fleet: str
    dry_run: bool
    changed: bool
    actions: list[Action]
    conflicts: list[str]


class MadeHost(Part):
    name: str
    address: str
    chips: int
    commit: str | None


class Created(Plan):
    hosts: list[MadeHost]


class Memory(Part):
    """Bytes."""

    total: int
    available: int


class Disk(Part):
    """Bytes of the disk that runs are written to."""

    total: int
    free: int


class Code(Part):
    """A repository on a host."""

    repo: str
    commit: str
    dirty: bool


class Chip(Part):
    name: str
    """`tpu-0-w0:3`"""
    state: Literal["free", "run", "person", "busy"]
    """`busy`: in use, and nobody asked for it"""
    seat: str | None
    run: str | None
    person: str | None
    user: str | None
    pid: int | None
    command: str | None
    suspect: bool
    """the TPU's initialisation failed on it"""
    hbm_used: int | None
    hbm_total: int | None
    """bytes"""
    duty_pct: float | None


class Host(Part):
    name: str
    address: str
    state: Literal["ready", "bare", "unreachable"]
    error: str | None
    chips: list[Chip]
    disk: Disk = MAYBE
    memory: Memory = MAYBE
    code: list[Code] = MAYBE
    uptime_s: float = MAYBE


class Node(Part):
    name: str
    zone: str
    state: str
    """as Google names it"""
    health: str
    accelerator: str
    created: Time | None
    expires: Time | None
    adopted: bool
    queued: str | None
    """the queued resource that it belongs to"""
    hosts: list[Host]


class Queued(Part):
    """A queued resource."""

    name: str
    zone: str
    state: str
    node: str
    accelerator: str
    why: str


class Status(Answer):
    fleet: str
    nodes: list[Node]
    queued: list[Queued]


class BusyChip(Chip):
    """A chip, and how far the run on it is."""

    step: int | None
    steps: int | None
    """how many it will take"""
    steps_per_second: float | None
    left_s: float | None


class TopHost(Part):
    name: str
    state: Literal["ready", "bare", "unreachable"]
    error: str | None
    load: list[float] | None
    """of 1, 5 and 15 minutes"""
    memory: Memory | None
    disk: Disk | None
    uptime_s: float | None
    chips: list[BusyChip]


class Top(Answer):
    fleet: str
    hosts: list[TopHost]


class Adopted(Answer):
    fleet: str
    node: str
    zone: str
    released: bool
    changed: bool
    dry_run: bool


class Result(Part):
    host: str
    exit_code: int | None
    stdout: str
    stderr: str
    error: str | None


class Executed(Answer):
    command: list[str]
    results: list[Result]


class SyncedHost(Part):
    name: str
    before: str | None
    dirty: bool | None
    setup: str | None


class Synced(Answer):
    dry_run: bool
    commit: str
    uncommitted: int
    changed: bool
    hosts: list[SyncedHost]


class Proof(Part):
    """What a zone still holds of the fleet; the zone `-` means all there are."""

    zone: str
    nodes: int
    queued_resources: int
    granted: bool


class Deleted(Answer):
    fleet: str
    dry_run: bool
    deleted: list[str]
    proof: list[Proof]


class Finding(Part):
    check: str
    ok: bool
    text: str
    fix: str | None


class Doctor(Answer):
    ok: bool
    findings: list[Finding]


class SshConfig(Answer):
    config: str
    file: str
    hosts: list[str]


class Emulator(Answer):
    running: bool
    changed: bool = MAYBE
    pid: int = MAYBE
    url: str = MAYBE
    ssh_port: int = MAYBE


class Environment(Answer):
    env: dict[str, str]


class BilledNode(Part):
    name: str
    id: str
    created: Time
    deleted: Time | None
    node_seconds: float = Field(alias="nodeSeconds")


class BilledQueued(Part):
    name: str
    created: Time
    deleted: Time | None
    seconds: float


class Book(Answer):
    calls: dict[str, int]
    """by method"""
    processes: dict[str, int]
    """by host"""
    nodes: list[BilledNode]
    queued_resources: list[BilledQueued] = Field(alias="queuedResources")


class EmulatorSettings(Part):
    path: list[str]
    create_seconds: float = Field(alias="createSeconds")
    manual: bool


class Settings(Answer):
    settings: EmulatorSettings
    changed: bool


class Step(Answer):
    name: str
    stepped: bool


class Faults(Answer):
    faults: list[dict[str, Any]]
    """`kind`, `target` and the fault's own options"""


class Fault(Answer):
    kind: str
    target: str
    in_force: bool
