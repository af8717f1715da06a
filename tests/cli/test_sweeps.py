"""Sweeps on the rehearsal cloud: which runs there are, which start, which wait and why, and what `run` again does."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.project import Project

JOBS = """\
  job: {command: [python3, job.py, "{seed}"], grid: {seed: [0, 1, 2, 3, 4, 5]}}
  one: {command: [python3, job.py]}
  whole: {command: [python3, job.py], whole_host: true}
  narrow: {command: [python3, job.py, "{seed}"], grid: {seed: [0, 1, 2, 3, 4, 5]}, max_parallel: 2}
  pairs: {command: [python3, job.py, "{width}"], grid: {seed: [0, 1]}, zip: {size: [small, big], width: [64, 512]}}
  points: {command: [python3, job.py, "{lr}"], points: [{lr: 0.1, seed: 3}, {lr: 0.2}]}
"""


@pytest.fixture
def sweeps(tmp_path: Path) -> Iterator[Project]:
    """A project with one node of four chips that is up; its runs stay until `gate` exists."""
    project = Project.make(tmp_path / "project", jobs=JOBS)
    project.run("create")
    yield project
    gate(project).touch()
    project.stop()


def gate(project: Project) -> Path:
    return project.directory / "gate"


def held(project: Project) -> tuple[str, str]:
    """The option that makes runs wait for the gate."""
    return "--env", f"GATE={gate(project)}"


def states(project: Project, job: str) -> dict[str, dict[str, Any]]:
    return {run["id"]: run for run in project.json("runs", job)["runs"]}


def until(project: Project, job: str, wanted: Callable[[dict[str, dict[str, Any]]], bool]) -> dict[str, dict[str, Any]]:
    """The job's runs once they are as `wanted`."""
    deadline = time.monotonic() + 60
    while not wanted(found := states(project, job)):
        assert time.monotonic() < deadline, found
    return found


def all_done(found: dict[str, dict[str, Any]]) -> bool:
    return all(run["state"] == "done" for run in found.values())


def change(project: Project, old: str, new: str) -> None:
    file = project.directory / "tpufleet.yaml"
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def test_what_a_sweep_stands_for_can_be_looked_at_before(sweeps: Project) -> None:
    def planned(*words: str) -> list[str]:
        return [run["id"] for run in sweeps.json("run", *words, "--dry-run")["runs"]]

    assert planned("pairs") == [
        "pairs-seed0-sizesmall-width64",
        "pairs-seed0-sizebig-width512",
        "pairs-seed1-sizesmall-width64",
        "pairs-seed1-sizebig-width512",
    ]
    assert planned("pairs", "--set", "size=big", "--grid", "seed=7") == ["pairs-seed7-sizebig-width512"]
    assert planned("points") == ["points-lr0.1-seed3", "points-lr0.2"]
    assert sweeps.run("run", "points", "--grid", "lr=1,2", "--dry-run", ok=False).exit_code == 2
    assert sweeps.run("run", "job", "--max-parallel", "0", "--dry-run", ok=False).exit_code == 2
    assert sweeps.run("run", "job", "--priority", "1001", "--dry-run", ok=False).exit_code == 2


def test_a_run_that_waits_says_why_and_the_most_urgent_is_next(sweeps: Project) -> None:
    shown = sweeps.run("run", "job", *held(sweeps)).stdout
    assert "queued: no free chip " in shown
    assert " tpu-0-w0: 4 of 4 chips in use; 1 before it\n" in shown
    sweeps.run("run", "one", "--priority", "5", *held(sweeps))
    found = states(sweeps, "job") | states(sweeps, "one")
    assert "before it" not in found["one"]["waits"]
    assert found["job-seed5"]["waits"].endswith("; 2 before it")
    assert "2 before it" in sweeps.run("runs").stdout
    sweeps.run("stop", "job-seed0")
    after = until(sweeps, "one", lambda runs: runs["one"]["state"] == "running")
    assert after["one"]["chips"] == ["tpu-0-w0:0"]
    assert states(sweeps, "job")["job-seed4"]["state"] == "queued"
    assert "waits" not in after["one"]


def test_at_most_so_many_of_a_job_run_at_once_and_leave_the_other_chips_to_others(sweeps: Project) -> None:
    answer = sweeps.json("run", "narrow", *held(sweeps))
    assert Counter(run["state"] for run in answer["runs"]) == {"running": 2, "queued": 4}
    assert {run["reason"] for run in answer["runs"] if run["state"] == "queued"} == {"max_parallel reached"}
    more = sweeps.json("run", "narrow", "--grid", "seed=6,7", "--max-parallel", "3", *held(sweeps))
    assert Counter(run["state"] for run in more["runs"]) == {"running": 1, "queued": 1}
    assert sweeps.json("run", "one", *held(sweeps))["runs"][0]["state"] == "running"
    gate(sweeps).touch()
    done = until(sweeps, "narrow", all_done)
    assert len(done) == 8


def test_a_run_of_a_whole_host_has_all_its_chips(sweeps: Project) -> None:
    sweeps.run("run", "one", *held(sweeps))
    assert "1 of 4 chips in use" in sweeps.run("run", "whole", *held(sweeps)).stdout
    with sweeps.popen("logs", "-f") as reading:
        assert reading.stdout and reading.stdout.readline().startswith("one   │ chip 0 ")
        gate(sweeps).touch()
        assert "whole │ chip 0,1,2,3 argv []\n" in reading.stdout.read(), "what still waits is followed, too"
        assert reading.wait(60) == 0
    done = until(sweeps, "whole", all_done)
    assert done["whole"]["chips"] == [f"tpu-0-w0:{index}" for index in range(4)]
    assert "chip 0,1,2,3 " in sweeps.run("logs", "whole").stdout


# ------------------------------------------------------------------------------------------------------ typed again


def test_typed_again_it_starts_what_is_new_or_ended_badly_and_says_what_was_changed(sweeps: Project) -> None:
    sweeps.run("run", "job", "--set", "seed=0", "--follow")
    sweeps.run("run", "job", "--set", "seed=1", *held(sweeps))
    sweeps.run("stop", "job-seed1")
    sweeps.run("run", "job", "--set", "seed=2", *held(sweeps))
    change(sweeps, "grid: {seed: [0, 1, 2, 3, 4, 5]}}\n  one", "grid: {seed: [0, 1, 2, 7]}}\n  one")
    again = sweeps.json("run", "job", *held(sweeps))
    assert (again["done"], again["active"]) == (["job-seed0"], ["job-seed2"])
    assert (sorted(again["placed"]), again["changed"]) == (["job-seed1", "job-seed7"], [])
    assert "nothing to do" in sweeps.run("run", "job").stdout
    gate(sweeps).touch()
    until(sweeps, "job", all_done)
    change(sweeps, 'job: {command: [python3, job.py, "{seed}"]', 'job: {command: [python3, job.py, again, "{seed}"]')
    shown = sweeps.run("run", "job").stdout
    assert "another command than now: 4 (job-seed0, job-seed1, job-seed2, job-seed7); --restart does them" in shown
    assert "nothing to do" in shown
    restarted = sweeps.run("run", "job", "--restart", "--follow").stdout
    assert "with another command than before: 4" in restarted
    assert {run["command"][2] for run in states(sweeps, "job").values()} == {"again"}


def test_runs_on_a_host_that_is_not_heard_are_not_called_nothing_to_do(sweeps: Project) -> None:
    change(sweeps, "count: 1", "count: 2")
    sweeps.run("create")
    placed = sweeps.json("run", "job", *held(sweeps))["placed"]
    there = sorted(run for run, host in placed.items() if host == "tpu-1-w0")
    sweeps.run("emulator", "fault", "partition", "tpu-1-w0")
    again = sweeps.run("run", "job", ok=False)
    assert again.exit_code == 6
    assert f"not heard of: {len(there)} ({', '.join(there)})" in again.stdout
    assert "nothing to do" not in again.stdout
    sweeps.run("emulator", "fault", "clear")


# ------------------------------------------------------------------------------------------------------------ drift


def test_a_checkout_that_was_changed_by_hand_gets_no_run(sweeps: Project) -> None:
    sweeps.run("exec", "--", "echo '# mine' >> $TPUFLEET_HOST_ROOT/var/lib/tpufleet/code/*/trees/*/job.py")
    refused = sweeps.run("run", "one", ok=False)
    assert refused.exit_code == 2
    assert "on tpu-0-w0 was changed by hand" in refused.stderr
    assert "sync --restore" in refused.stderr
    assert sweeps.json("runs")["runs"] == []
    sweeps.run("run", "one", "--allow-dirty", "--follow")
    assert states(sweeps, "one")["one"]["dirty"] is True
    assert "changed on the host" in sweeps.run("sync").stdout
    assert "restored" in sweeps.run("sync", "--restore").stdout
    assert "nothing to do" in sweeps.run("sync", "--restore").stdout
    sweeps.run("run", "one", "--restart", "--follow")
    assert states(sweeps, "one")["one"]["dirty"] is False


def test_another_set_up_waits_for_runs_that_were_planned_with_the_old_one(sweeps: Project) -> None:
    sweeps.run("run", "one", *held(sweeps))
    change(sweeps, "code: {repo: code}", 'code: {repo: code, setup: ["echo first > made"]}')
    sweeps.run("run", "whole", *held(sweeps), "--dry-run")
    refused = sweeps.run("run", "whole", ok=False)
    assert refused.exit_code == 5
    assert "in use by one" in refused.stderr
    gate(sweeps).touch()
    until(sweeps, "one", all_done)
    sweeps.run("run", "whole", "--follow")
    assert sweeps.run("exec", "--", "cat $TPUFLEET_HOST_ROOT/var/lib/tpufleet/code/*/trees/*/made").stdout == "first\n"


# ------------------------------------------------------------------------------------------------------- --follow


def test_following_says_in_a_pipe_what_changes_and_how_it_ended(sweeps: Project) -> None:
    done = sweeps.run("run", "job", "--follow", "--set", "seed=0")
    assert "job-seed0: done on tpu-0-w0:0  test_loss 1" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout


def test_following_on_a_terminal_is_a_table_that_ends_with_the_runs(sweeps: Project) -> None:
    ours, theirs = pty.openpty()
    command = f"exec {shlex.quote(sys.executable)} -m tpufleet run job --follow --set seed=0"
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(
        ["sh", "-c", command], cwd=sweeps.directory, env=env, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:
        pass  # Linux's word for the end of a terminal
    finally:
        os.close(ours)
    assert process.wait(timeout=60) == 0
    text = shown.decode(errors="replace")
    assert "Traceback" not in text
    assert "job-seed0" in text
    assert "done" in text
    assert "\x1b[" in text, "it moves"
    assert text.rstrip().endswith("\x1b[?25h") or "\x1b[?25h" in text, "the cursor is back"
