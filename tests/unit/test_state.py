"""The journal and the lock, with real processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tpufleet.errors import StateError
from tpufleet.state.lock import locked
from tpufleet.state.store import Journal, Placement


def test_an_intent_is_on_disk_before_its_effect_and_ends_after_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    with journal.intent("create", "create-node", "tpu-0", zone="z"):
        assert [item["subject"] for item in Journal(tmp_path / "journal.db").unfinished()] == ["tpu-0"]
    assert journal.unfinished() == ()


def test_a_failed_effect_ends_its_intent_and_the_error_goes_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    with pytest.raises(ZeroDivisionError), journal.intent("create", "create-node", "tpu-0"):
        raise ZeroDivisionError
    assert journal.unfinished() == ()


def test_a_killed_command_leaves_its_intent_open(tmp_path: Path) -> None:
    script = (
        "import os, sys, signal; from pathlib import Path; from tpufleet.state.store import Journal\n"
        "with Journal(Path(sys.argv[1])).intent('create', 'create-node', 'tpu-0'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "journal.db")], check=False)
    assert [item["action"] for item in Journal(tmp_path / "journal.db").unfinished()] == ["create-node"]


def test_placements_are_remembered_and_replaced(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    journal.placed((Placement("a", "tpu-0-w0", "1-w0"), Placement("b", "tpu-1-w0", "2-w0")))
    journal.placed((Placement("a", "tpu-1-w0", "2-w0"),))
    assert {run: item.host for run, item in journal.placements().items()} == {"a": "tpu-1-w0", "b": "tpu-1-w0"}


def test_a_file_that_is_no_database_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_text("this is not a database, but it is long enough to look at" * 20)
    with pytest.raises(StateError, match="can't be used"):
        Journal(tmp_path / "journal.db")


def test_a_journal_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "journal.db").execute("PRAGMA user_version = 99")
    with pytest.raises(StateError, match="newer"):
        Journal(tmp_path / "journal.db")


def test_eight_processes_open_a_new_journal_at_once(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tpufleet.state.store import Journal; Journal(Path(sys.argv[1]))"
    )
    started = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "journal.db")]) for _ in range(8)]
    assert [process.wait() for process in started] == [0] * 8


def test_a_second_command_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tpufleet.state.lock import locked\n"
        "with locked(Path(sys.argv[1]), 'create', wait_s=0, waiting=print): print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin and holder.stdout
    assert holder.stdout.readline() == "held\n"
    told: list[str] = []
    held_by = pytest.raises(StateError, match=rf"tpufleet create \(pid {holder.pid}\)")
    with held_by, locked(tmp_path / "lock", "run", wait_s=0, waiting=told.append):
        pass
    holder.kill()
    holder.wait()
    with locked(tmp_path / "lock", "run", wait_s=5, waiting=told.append):
        assert told == []
