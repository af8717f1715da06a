"""Failures of runs are told once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tpufleet.ops.failures import untold
from tpufleet.state.store import Journal


def ended(state: str, at: str = "2026-11-21T05:00:00Z") -> dict[str, Any]:
    return {"state": state, "attempts": [{"n": 1, "ended": at}]}


def test_a_failure_is_told_once_and_a_new_one_of_the_same_run_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    ends = {"good": ended("done"), "bad": ended("failed")}
    assert untold(journal, ends) == ends
    assert list(untold(Journal(tmp_path / "journal.db"), ends)) == ["good"]
    again = {"bad": ended("failed", at="2026-11-22T05:00:00Z")}
    assert untold(journal, again) == again


def test_a_run_that_failed_without_an_attempt_is_told_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    assert list(untold(journal, {"bad": {"state": "failed"}})) == ["bad"]
    assert untold(journal, {"bad": {"state": "failed"}}) == {}
