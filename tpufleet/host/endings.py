"""How an attempt ended, and what that makes of its run. Pure, but for the two places that look at the host."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import NamedTuple

from tpufleet.host import clock
from tpufleet.host.records import Attempt, RunState
from tpufleet.host.specs import RunSpec
from tpufleet.restart import Policy, Reason, Restart, State, decide

COMMAND_NOT_FOUND_CODE = 127  # what shells say, and our own exec says
DISK_FULL_BELOW = 4 << 20
DISK_FULL_TEXTS = (b"No space left on device", b"Disk quota exceeded")
LOG_TAIL = 8 << 10

# libtpu's and torch_xla's own words (openxla tpu_initialize_util.cc, torch_xla, jax); not seen on real hardware yet.
TPU_BUSY_TEXTS = (
    re.compile(rb"The TPU is already in use by"),
    re.compile(rb"libtpu multi-process lockfile"),
    re.compile(rb"/dev/(?:vfio/|accel)\d+[^\n]*(?:Device or resource busy|Operation not permitted)"),
    re.compile(rb"Couldn't open device: /dev/"),
)
TPU_INIT_TEXTS = (b"TPU initialization failed", b"Unable to initialize backend 'tpu'", b"Failed to initialize TPU")


class Hints(NamedTuple):
    """What the host shows besides the exit status."""

    killed_by_us: bool = False
    memory_ran_out: bool = False
    disk_is_full: bool = False
    tpu: Reason | None = None  # what the log says of the TPU


class Ending(NamedTuple):
    """How an attempt ended: `reason` None is success; `exit_code` is 128+N after signal N, None if nobody saw it."""

    exit_code: int | None
    reason: Reason | None


def from_wait_status(status: int, hints: Hints) -> Ending:
    """The ending that a wait status (of os.waitpid) and the hints tell."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        out_of_memory = -code == signal.SIGKILL and hints.memory_ran_out and not hints.killed_by_us
        return Ending(128 - code, Reason.OUT_OF_MEMORY if out_of_memory else hints.tpu or Reason.SIGNAL)
    if code == 0:
        return Ending(0, None)
    if code == COMMAND_NOT_FOUND_CODE:
        return Ending(code, Reason.COMMAND_NOT_FOUND)
    return Ending(code, Reason.DISK_FULL if hints.disk_is_full else hints.tpu or Reason.EXIT_NONZERO)


def tpu_trouble(log_tail: bytes) -> Reason | None:
    """What the last words of a training say of the TPU. A busy chip shows as a failed initialisation, too."""
    if any(text.search(log_tail) for text in TPU_BUSY_TEXTS):
        return Reason.TPU_BUSY
    return Reason.TPU_INIT_FAILED if any(text in log_tail for text in TPU_INIT_TEXTS) else None


def conclude(state: RunState, spec: RunSpec, ending: Ending, now_s: float, *, stopped: bool) -> RunState:
    """The run's state after its attempt ended at `now_s` (epoch seconds).

    `stopped` says that a person ended it: then it is stopped, even if it took its leave with exit code 0.
    """
    reason = Reason.STOPPED if stopped else ending.reason
    closed = _close_last(state.attempts, Ending(ending.exit_code, reason), clock.rfc3339(now_s))
    after = state._replace(attempts=closed, reason=reason, pid=None, why=None, not_before=0.0)
    if reason is None:
        return after._replace(state=State.DONE)
    if stopped:
        return after._replace(state=State.STOPPED)
    decision = decide(Policy(spec.retries), closed[state.forgiven :], reason)
    if isinstance(decision, Restart):
        return after._replace(state=State.RECOVERING, not_before=now_s + decision.after_s)
    return after._replace(state=State.FAILED)


def stop_before_start(state: RunState) -> RunState:
    """A run that was queued or recovering when a person stopped it."""
    return state._replace(state=State.STOPPED, reason=Reason.STOPPED, why=None, not_before=0.0)


def memory_kills() -> int:
    """How many processes the kernel has killed for memory since boot (/proc/vmstat, Linux 4.13 and later)."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def disk_is_full(run_dir: Path, log_tail: bytes) -> bool:
    """Whether the disk has no room, or had none when the run last spoke (what it could not write is gone by now)."""
    disk = os.statvfs(run_dir)
    return disk.f_bavail * disk.f_frsize < DISK_FULL_BELOW or any(text in log_tail for text in DISK_FULL_TEXTS)


def _close_last(attempts: tuple[Attempt, ...], ending: Ending, ended: str) -> tuple[Attempt, ...]:
    last = attempts[-1]._replace(ended=ended, exit_code=ending.exit_code, reason=ending.reason)
    return (*attempts[:-1], last)
