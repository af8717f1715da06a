"""Restart or give up: a pure function of the policy, the attempts so far and why the last one ended.

A run's `State` says what it is, its `Reason` why. Both live here because the hosts and the person's own machine use
them alike; this file therefore needs nothing but the standard library of Python 3.10.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol, Union


class State(str, enum.Enum):
    """What a run is.

    queued --> running --> done | failed | stopped
       |        ^   |
       |        |   v
       |      recovering --> stopped
       +--> stopped | failed
    """

    QUEUED = "queued"
    RUNNING = "running"
    RECOVERING = "recovering"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


class Reason(str, enum.Enum):
    """Why a run is what it is, or why an attempt ended."""

    PREEMPTED = "preempted"
    HOST_REBOOTED = "host rebooted"
    LOST = "lost"
    EXIT_NONZERO = "exit nonzero"
    SIGNAL = "signal"
    OUT_OF_MEMORY = "out of memory"
    DISK_FULL = "disk full"
    COMMAND_NOT_FOUND = "command not found"
    CANNOT_START = "cannot start"
    TPU_BUSY = "TPU busy"
    TPU_INIT_FAILED = "TPU initialisation failed"
    TIME_LIMIT = "time limit"
    STALLED = "stalled"
    NOT_A_NUMBER = "loss is not a number"
    STOPPED = "stopped by a person"
    NO_FREE_CHIP = "no free chip"
    JOB_IS_FULL = "max_parallel reached"


FINAL_STATES = frozenset({State.DONE, State.FAILED, State.STOPPED})

# Not the run's fault: these never count against its retries.
FREE_REASONS = frozenset({Reason.PREEMPTED, Reason.HOST_REBOOTED, Reason.LOST, Reason.TPU_BUSY})

# The same command on the same host would end the same way: trying again helps nobody.
HOPELESS_REASONS = frozenset(
    {Reason.COMMAND_NOT_FOUND, Reason.CANNOT_START, Reason.TIME_LIMIT, Reason.NOT_A_NUMBER, Reason.STOPPED}
)

# A run that is lost so often in a row brings its host down. A chip that is busy for a quarter of an hour (with the
# waits below) is not about to be given back. Hosts that vanish (preempted, rebooted) have no bound.
MOST_IN_A_ROW = {Reason.LOST: 5, Reason.TPU_BUSY: 20}

# What it takes for things to change: others have to end (memory), or to be cleared away (disk).
FIRST_WAIT_S = {Reason.OUT_OF_MEMORY: 10.0, Reason.DISK_FULL: 60.0, Reason.TPU_INIT_FAILED: 10.0}
LONGEST_WAIT_S = 60.0


class Policy(NamedTuple):
    """How often a failed run is started again."""

    retries: int = 0


class EndedAttempt(Protocol):
    """What `decide` needs to know of an attempt."""

    @property
    def reason(self) -> Reason | None: ...


class Restart(NamedTuple):
    """Start the run again, `after_s` seconds from now."""

    after_s: float


class GiveUp(NamedTuple):
    """Leave the run failed; `why` is a sentence."""

    why: str


Decision = Union[Restart, GiveUp]


def decide(policy: Policy, attempts: Sequence[EndedAttempt], reason: Reason) -> Decision:
    """Whether a run whose last attempt ended for `reason` is started again.

    `attempts` are those that count, oldest first, the one that just ended included. Waits between retries double
    up to a minute, from one second or the reason's own first wait.
    """
    if reason in HOPELESS_REASONS:
        return GiveUp(f"{reason.value}: starting it again would end the same way")
    if reason in FREE_REASONS:
        times = _in_a_row(attempts, reason)
        if times >= MOST_IN_A_ROW.get(reason, math.inf):
            return GiveUp(f"{reason.value} {times} times in a row")
        return _after(1.0, times) if reason is Reason.TPU_BUSY else Restart(0.0)
    failures = sum(1 for attempt in attempts if attempt.reason not in FREE_REASONS)
    if failures > policy.retries:
        return GiveUp(f"{reason.value}: failed {failures} times with {policy.retries} retries allowed")
    return _after(FIRST_WAIT_S.get(reason, 1.0), failures)


def _after(first_s: float, times: int) -> Restart:
    return Restart(min(LONGEST_WAIT_S, first_s * 2.0 ** (times - 1)))


def _in_a_row(attempts: Sequence[EndedAttempt], reason: Reason) -> int:
    """How many of the newest attempts ended for `reason` without another between."""
    count = 0
    for attempt in reversed(attempts):
        if attempt.reason is not reason:
            break
        count += 1
    return count
