"""What is written down about a run: its state with its attempts, and the handle to the processes of the last one.

Stored data is read leniently (a field of a newer version is passed over, a missing one has its default).
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from tpufleet.host.files import JsonObject, as_object
from tpufleet.restart import Reason, State


class Attempt(NamedTuple):
    """One start of a run; times in RFC 3339. A process ended by signal N has exit code 128+N, as shells say it."""

    n: int
    host: str
    chips: tuple[str, ...]
    started: str
    ended: str | None = None
    exit_code: int | None = None
    reason: Reason | None = None


class RunState(NamedTuple):
    """A run as `runs.json` shows it (docs: the run contract), and below that what only the host needs."""

    id: str
    job: str
    params: JsonObject
    host: str
    command: tuple[str, ...]
    submitted: str
    state: State = State.QUEUED
    reason: Reason | None = None
    chips: tuple[str, ...] = ()
    commit: str | None = None
    dirty: bool = False
    attempts: tuple[Attempt, ...] = ()
    step: int | None = None
    metrics: dict[str, float | None] = {}  # noqa: RUF012 - a default of a NamedTuple; never changed in place
    resumed_from: str | None = None
    pid: int | None = None
    slot: int = 1  # how many chips it takes
    priority: int = 0
    group_limit: int | None = None  # how many runs of its job this host may have on at once
    began: str = ""  # when this life of the run was asked for: done again from the start, it has another one
    why: str | None = None  # what it waits for, as a sentence
    versions: dict[str, str] = {}  # noqa: RUF012 - as above; of Python and what is installed, as of the newest attempt
    fleet: str = ""  # whose it is: several fleets may share a host that was lent to them
    forgiven: int = 0  # attempts before a person asked again: they don't count against the retries
    not_before: float = 0.0  # epoch seconds before which a recovering run is not started

    @property
    def public(self) -> JsonObject:
        """The state as others see it."""
        shown = self._asdict()
        del shown["forgiven"], shown["not_before"]
        shown["attempts"] = [attempt._asdict() for attempt in self.attempts]
        return shown

    @property
    def stored(self) -> JsonObject:
        return {**self.public, "forgiven": self.forgiven, "not_before": self.not_before}

    @property
    def chip_indices(self) -> tuple[int, ...]:
        return tuple(index_of(chip) for chip in self.chips)


def index_of(chip: str) -> int:
    """3 for `tpu-0-w0:3`."""
    return int(chip.rpartition(":")[2])


class Handle(NamedTuple):
    """How to find the processes of an attempt again: pids are told from reused ones by boot id and start time."""

    boot_id: str
    attempt: int
    pid: int
    start: int
    supervisor: int
    supervisor_start: int
    chips: tuple[int, ...]
    tmp: str
    metrics_from: int = 0  # the size of metrics.jsonl when the attempt began


def state_from(stored: JsonObject) -> RunState:
    """The state that `RunState.stored` wrote."""
    known: dict[str, Any] = {name: stored[name] for name in RunState._fields if name in stored}
    known["state"] = State(stored["state"])
    known["reason"] = _reason(stored.get("reason"))
    known["command"] = tuple(stored["command"])
    known["chips"] = tuple(stored.get("chips") or ())
    known["attempts"] = tuple(attempt_from(item) for item in stored.get("attempts") or ())
    return RunState(**known)


def handle_from(stored: JsonObject | None) -> Handle | None:
    """The handle that was written as `Handle._asdict()`; None for none."""
    if stored is None:
        return None
    known: dict[str, Any] = {name: stored[name] for name in Handle._fields if name in stored}
    known["chips"] = tuple(stored["chips"])
    return Handle(**known)


def attempt_from(stored: object) -> Attempt:
    """The attempt that was written as `Attempt._asdict()`."""
    fields = as_object(stored) or {}
    known: dict[str, Any] = {name: fields[name] for name in Attempt._fields if name in fields}
    known["chips"] = tuple(cast("list[str]", fields["chips"]))
    known["reason"] = _reason(fields.get("reason"))
    return Attempt(**known)


def _reason(stored: object) -> Reason | None:
    return None if stored is None else Reason(stored)
