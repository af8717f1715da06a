"""Which failures are news: the exit code of a command that stays to the end tells each of them once.

So `watch --until-done` doesn't fail for what failed days ago, but does for a run that failed just before it began.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpufleet.restart import State
from tpufleet.state.store import Journal

TOLD = "failure told"  # a mark of a run in the journal: the end of the attempt that was told of


def untold(journal: Journal, ends: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The `ends` of runs without the failures that were told before; those that are left are told from now on."""
    marks = journal.marks()
    failed = {run: _end_of(state) for run, state in ends.items() if state["state"] == State.FAILED}
    news = {run: end for run, end in failed.items() if marks.get((run, TOLD)) != end}
    for run, end in news.items():
        journal.mark(run, TOLD, end)
    return {run: state for run, state in ends.items() if run not in failed or run in news}


def _end_of(state: Mapping[str, Any]) -> str:
    attempts = state.get("attempts")
    return str(attempts[-1]["ended"]) if attempts else ""
