"""Answers about runs, their logs, and what comes home of them."""

from __future__ import annotations

from typing import Literal

from tpufleet.cli.answers.base import MAYBE, Answer, Part, Scalar, Time

State = Literal["queued", "running", "recovering", "done", "failed", "stopped"]


class Attempt(Part):
    """One start of a run."""

    n: int
    host: str
    chips: list[str]
    started: Time
    ended: Time | None
    exit_code: int | None
    """128+N for signal N"""
    reason: str | None


class Run(Part):
    """A run, here and in `runs.json` and `run.json`."""

    id: str
    job: str
    params: dict[str, Scalar]
    state: State
    reason: str | None
    host: str
    chips: list[str]
    """`tpu-0-w0:3`"""
    commit: str | None
    dirty: bool
    """its checkout was changed by hand"""
    command: list[str]
    attempts: list[Attempt]
    step: int | None
    metrics: dict[str, float | None]
    """the last value of each; null for one that is no finite number"""
    resumed_from: str | None
    submitted: Time
    pid: int | None
    slot: int
    """how many chips it takes"""
    priority: int
    group_limit: int | None
    """its host's share of `max_parallel`"""
    began: str
    """when this life of it was asked for: `--restart` begins another"""
    why: str | None
    """what it waits for, in its host's words"""
    fleet: str
    versions: dict[str, str] = MAYBE
    """of Python and of what computes, as of its newest start"""
    waits: str = MAYBE
    """while it is queued: what is on its host's chips, and what comes before it"""
    heard: Time | None = MAYBE
    """while it runs: its last sign of life"""
    incomplete: bool = MAYBE
    """it is done, and not all that it left is home"""
    mirrored_step: int | None = MAYBE
    """by `watch`: of what comes after it nothing is home"""


class Planned(Part):
    """A run that would be started."""

    id: str
    job: str
    params: dict[str, Scalar]
    command: list[str]
    host: str | None


class Started(Answer):
    dry_run: bool
    commit: str
    placed: dict[str, str]
    """run to host"""
    active: list[str]
    done: list[str]
    unknown: list[str]
    """sent to hosts that can't be heard now"""
    changed: list[str]
    """known with another command than now"""
    runs: list[Run | Planned]


class Runs(Answer):
    fleet: str
    runs: list[Run]


class Log(Answer):
    run: str
    log: str


class NamedLog(Part):
    run: str
    log: str


class Logs(Answer):
    """Of several runs."""

    logs: list[NamedLog]


class Stopped(Answer):
    dry_run: bool
    stopped: list[str]
    runs: list[Run]


class Coming(Part):
    name: str
    files: int
    bytes: int


class Missing(Part):
    run: str
    what: str
    why: str


class Collected(Answer):
    fleet: str
    home: str
    report: str
    exports: dict[str, str]
    """`metrics` (Parquet, where pyarrow is) and `tensorboard` (where it was asked for), to where they are"""
    dry_run: bool
    seconds: float
    runs: int
    files: int
    bytes: int
    checkpoints: int
    hosts: list[Coming]
    free: int | None
    """bytes at home"""
    problems: list[str]
    notes: list[str]
    """broken checkpoints that were told before, or that a newer one makes up for"""
    missing: list[Missing]
    """what isn't home yet, and why"""


class Reported(Answer):
    fleet: str
    report: str
    files: list[str]
    """all that is written"""


class WatchedNode(Part):
    name: str
    zone: str
    state: str


class Watched(Answer):
    fleet: str
    nodes: list[WatchedNode]
    runs: list[Run]
    lost: list[str]
    """runs that wait for a host"""


class Unit(Answer):
    unit: str
    changed: bool
