"""Chips that failed two runs in a row: told from the records of the runs that this host has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tpufleet.host.records import Attempt, RunState
from tpufleet.restart import Reason

IN_A_ROW = 2
# Ends that say nothing of the chip: somebody else had it, or ended the attempt.
SILENT = (Reason.TPU_BUSY, Reason.STOPPED, Reason.LOST, Reason.HOST_REBOOTED)


def suspects(states: Iterable[RunState]) -> list[str]:
    """The chips (`tpu-0-w0:3`) on which the TPU could not be initialised the last two times."""
    ended = [
        attempt
        for state in states
        for attempt in state.attempts
        if attempt.ended is not None and attempt.host == state.host and attempt.reason not in SILENT
    ]
    ended.sort(key=lambda attempt: attempt.ended or "")
    return sorted({chip for attempt in ended for chip in attempt.chips if _failed_last(chip, ended)})


def why(chips: Sequence[str]) -> str | None:
    """The same as a sentence; None where no chip is suspect."""
    return f"TPU initialisation failed {IN_A_ROW} times in a row on {', '.join(chips)}" if chips else None


def _failed_last(chip: str, ended: Sequence[Attempt]) -> bool:
    last = [attempt.reason for attempt in ended if chip in attempt.chips][-IN_A_ROW:]
    return last == [Reason.TPU_INIT_FAILED] * IN_A_ROW
