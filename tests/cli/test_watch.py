"""`watch` and what it promises: a sweep ends as if nothing had happened, whatever becomes of its machines."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project import Project, until

# Two steps, a checkpoint after each; after the first it waits for a file. Its model tells all steps that made it.
SAVES = """\
import hashlib, json, os, pathlib, time
run = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"])
resume = os.environ.get("TPUFLEET_RESUME")
done = json.loads((pathlib.Path(resume) / "manifest.json").read_text())["step"] if resume else 0
model = (pathlib.Path(resume) / "it's a model.bin").read_text() if resume else ""
print("from", done, "attempt", os.environ["TPUFLEET_ATTEMPT"], flush=True)
for step in (10, 20):
    if step <= done:
        continue
    model += f"{step};"
    aside = run / f"checkpoints/.step-{step:08d}"
    aside.mkdir(parents=True)
    (aside / "it's a model.bin").write_text(model)
    record = {"path": "it's a model.bin", "size": len(model), "sha256": hashlib.sha256(model.encode()).hexdigest()}
    (aside / "manifest.json").write_text(json.dumps({"step": step, "files": [record]}))
    aside.rename(run / f"checkpoints/step-{step:08d}")
    with (run / "metrics.jsonl").open("a") as file:
        print(json.dumps({"step": step, "test_loss": 1 / step}), file=file)
    deadline = time.monotonic() + 120
    while step == 10 and not pathlib.Path(os.environ["GATE"]).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
"""

JOBS = """\
  saves: {{command: [python3, saves.py, "{{seed}}"], grid: {{seed: [0, 1]}}, env: {{GATE: "{gate}"}}, mirror: 1s}}
  plain: {{command: [python3, job.py], env: {{GATE: "{gate}"}}}}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Project]:
    """Two nodes; the jobs wait for `gate`."""
    project = Project.make(tmp_path / "project", count=1, jobs=JOBS.format(gate=tmp_path / "gate"))
    (project.directory / "code" / "saves.py").write_text(SAVES)
    project.commit("A job that saves")
    project.run("create")
    yield project
    (tmp_path / "gate").touch()
    project.stop()


def gate(project: Project) -> Path:
    return project.directory.parent / "gate"


def home(project: Project, run: str) -> Path:
    return project.directory / "artifacts/sherlock/runs" / run


def on_host(project: Project, run: str) -> list[Path]:
    """The run's directories on all hosts that there are."""
    return list((project.directory / ".tpufleet/emulator/hosts").glob(f"*/root/var/lib/tpufleet/runs/{run}"))


def saved(project: Project, run: str) -> bool:
    return any((there / "checkpoints/step-00000010").exists() for there in on_host(project, run))


def is_home(project: Project, run: str) -> bool:
    return (home(project, run) / "checkpoints/step-00000010/manifest.json").exists()


def fault(project: Project, *words: str) -> None:
    project.run("emulator", "fault", *words)


def finish(watching: subprocess.Popen[str], seconds: float = 90) -> tuple[str, str]:
    out, err = watching.communicate(timeout=seconds)
    assert watching.returncode == 0, (out, err)
    assert "Traceback" not in err
    return out, err


@pytest.mark.parametrize("kind", ["preempt", "vanish"])
def test_runs_on_a_node_that_goes_away_go_on_from_the_step_that_was_mirrored(fleet: Project, kind: str) -> None:
    fleet.run("run", "saves")
    watching = fleet.popen("watch", "--until-done", "--interval", "1s")
    for run in ("saves-seed0", "saves-seed1"):
        until(lambda run=run: is_home(fleet, run), f"step 10 of {run} to be home")
    fault(fleet, kind, "tpu-0")
    gate(fleet).touch()
    finish(watching)
    for state in fleet.json("runs", "saves")["runs"]:
        assert state["state"] == "done"
        assert state["resumed_from"] == "step-00000010"
        assert [(attempt["n"], attempt["reason"]) for attempt in state["attempts"]] == [(1, "preempted"), (2, None)]
        there = home(fleet, state["id"])
        assert json.loads((there / "run.json").read_text())["state"] == "done"
        assert (there / "checkpoints/step-00000020/it's a model.bin").read_text() == "10;20;"
        log = (there / "log.txt").read_text().splitlines()
        assert [line for line in log if line.startswith("from")] == ["from 0 attempt 1", "from 10 attempt 2"]
        records = [json.loads(line)["step"] for line in (there / "metrics.jsonl").read_text().splitlines()]
        assert records == [10, 20]
    book = fleet.json("emulator", "book")
    assert len(book["nodes"]) == 2, "one machine that went, one in its place"


def test_the_same_run_typed_again_goes_on_from_home(fleet: Project) -> None:
    fleet.run("run", "saves", "--set", "seed=0")
    until(lambda: saved(fleet, "saves-seed0"), "a checkpoint")
    fleet.run("collect")
    fault(fleet, "preempt", "tpu-0")
    fleet.run("create")
    gate(fleet).touch()
    done = fleet.run("run", "saves", "--set", "seed=0", "--follow")
    assert "goes on from step 10, which is home" in done.stderr
    (state,) = fleet.json("runs", "saves")["runs"]
    assert state["resumed_from"] == "step-00000010"
    assert [attempt["reason"] for attempt in state["attempts"]] == ["preempted", None]


def test_without_the_journal_a_watch_says_what_it_cannot_send_on_and_run_typed_again_does(fleet: Project) -> None:
    fleet.run("run", "saves", "--set", "seed=0")
    until(lambda: saved(fleet, "saves-seed0"), "a checkpoint")
    fleet.run("watch", "--once")
    for file in (fleet.directory / ".tpufleet").glob("journal.db*"):
        file.unlink()
    fault(fleet, "vanish", "tpu-0")
    assert "saves-seed0 had not ended" in fleet.run("watch", "--once").stderr
    gate(fleet).touch()
    fleet.run("run", "saves", "--set", "seed=0", "--follow")
    assert fleet.json("runs", "saves")["runs"][0]["resumed_from"] == "step-00000010"


def test_done_again_from_the_start_it_does_not_go_on_from_home(fleet: Project) -> None:
    gate(fleet).touch()
    fleet.run("run", "saves", "--set", "seed=0", "--follow")
    fleet.run("collect")
    fleet.run("delete", "--yes")
    fleet.run("create")
    fleet.run("run", "saves", "--set", "seed=0", "--follow", "--restart")
    (state,) = fleet.json("runs", "saves")["runs"]
    assert state["resumed_from"] is None
    fleet.run("collect")
    assert (home(fleet, "saves-seed0").parents[1] / "earlier/saves-seed0.1/run.json").exists()


def test_a_look_that_finds_all_well_changes_nothing_and_says_nothing(fleet: Project) -> None:
    gate(fleet).touch()
    fleet.run("run", "plain", "--follow")
    fleet.run("watch", "--once")
    before = fleet.json("emulator", "book")["calls"]
    done = fleet.run("--json", "watch", "--once")
    assert [run["state"] for run in done.json["runs"]] == ["done"]
    after = fleet.json("emulator", "book")["calls"]
    assert {name for name in after if after[name] != before.get(name)} <= {"ListNodes", "ListQueuedResources"}


def test_of_two_watches_one_works_and_the_other_says_who_does(fleet: Project) -> None:
    first = fleet.popen("watch", "--interval", "1s")
    until((fleet.directory / ".tpufleet/watch.lock").exists, "the lock")
    second = until(lambda: (done := fleet.run("watch", "--once", ok=False)).exit_code and done, "a refusal")
    assert second.exit_code == 8
    assert f"tpufleet watch (pid {first.pid})" in second.stderr
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=10)
    assert first.returncode == 130
    assert "nothing" not in fleet.run("watch", "--once").stderr


def test_a_watch_that_is_killed_in_the_middle_of_mending_is_gone_on_with_by_the_next(fleet: Project) -> None:
    fleet.run("run", "saves")
    for run in ("saves-seed0", "saves-seed1"):
        until(lambda run=run: saved(fleet, run), f"step 10 of {run}")
    fleet.run("watch", "--once")
    fault(fleet, "preempt", "tpu-0")
    killed = fleet.popen("watch", "--interval", "1s")
    assert killed.stderr
    assert any("creating v2-8" in line for line in killed.stderr)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    gate(fleet).touch()
    finish(fleet.popen("watch", "--until-done", "--interval", "1s"))
    runs = fleet.json("runs", "saves")["runs"]
    assert [(run["state"], run["resumed_from"], len(run["attempts"])) for run in runs] == [
        ("done", "step-00000010", 2)
    ] * 2


def test_a_node_that_a_person_deletes_is_not_made_again(fleet: Project) -> None:
    watching = fleet.popen("watch", "--interval", "1s")
    until((fleet.directory / ".tpufleet/watch.lock").exists, "the watch")
    fleet.run("delete", "--yes")
    _, err = finish(watching)
    assert "nothing is left to watch" in err
    assert fleet.json("status")["nodes"] == []


def test_a_node_whose_time_is_over_goes_and_does_not_come_back(fleet: Project) -> None:
    file = fleet.directory / "tpufleet.yaml"
    fleet.run("delete", "--yes")
    file.write_text(file.read_text().replace("accelerator: v2-8}", "accelerator: v2-8, ttl: 3s}"))
    fleet.run("create")
    _, err = finish(fleet.popen("watch", "--interval", "1s"))
    assert "nothing is left to watch" in err
    assert fleet.json("status")["nodes"] == []
    assert "nothing is left" in fleet.run("watch", "--until-done").stderr


def test_a_silent_cloud_is_said_once_and_watched_through(fleet: Project) -> None:
    fleet.run("run", "saves")
    fault(fleet, "api", "503", "--next", "400")
    watching = fleet.popen("watch", "--until-done", "--interval", "1s")
    assert watching.stderr
    said = [watching.stderr.readline()]
    while "cloud" not in said[-1]:
        said.append(watching.stderr.readline())
        assert said[-1], "it ended early"
    fault(fleet, "clear")
    gate(fleet).touch()
    _, err = finish(watching)
    assert sum("(going on)" in line for line in [*said, *err.splitlines()]) == 1
    assert [run["state"] for run in fleet.json("runs", "saves")["runs"]] == ["done", "done"]


def test_the_unit_has_absolute_paths_and_no_secret(fleet: Project, tmp_path: Path) -> None:
    fleet.env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    done = fleet.run("watch", "--install")
    unit = tmp_path / "config/systemd/user/tpufleet-sherlock.service"
    text = unit.read_text()
    assert f'"{fleet.directory}/tpufleet.yaml"' in text
    assert "systemctl --user enable --now tpufleet-sherlock.service" in done.stdout
    assert "unchanged" in fleet.run("watch", "--install").stdout
    fleet.run("watch", "--uninstall")
    assert not unit.exists()


def test_a_broken_checkpoint_of_a_run_that_has_ended_is_a_problem_once(fleet: Project) -> None:
    gate(fleet).touch()
    fleet.run("run", "saves", "--set", "seed=0", "--follow")
    (there,) = on_host(fleet, "saves-seed0")
    model = there / "checkpoints/step-00000020/it's a model.bin"
    model.write_text("10;21;")
    first = fleet.run("collect", ok=False)
    assert first.exit_code == 6
    assert "not as its manifest says" in first.stderr
    second = fleet.json("collect")
    assert second["problems"] == []
    assert "step-00000020" in second["notes"][0]


def test_on_a_terminal_it_is_a_table_with_the_step_that_is_home(fleet: Project) -> None:
    fleet.run("run", "saves")
    terminal, screen = pty.openpty()
    words = [sys.executable, "-m", "tpufleet", "watch", "--until-done", "--interval", "1s"]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "150"}
    watching = subprocess.Popen(words, cwd=fleet.directory, env=env, stdin=screen, stdout=screen, stderr=screen)
    os.close(screen)
    seen = b""
    until(lambda: is_home(fleet, "saves-seed0") and is_home(fleet, "saves-seed1"), "step 10 to be home")
    gate(fleet).touch()
    with contextlib.suppress(OSError):  # Linux's way to say that nobody has the terminal open any more
        while chunk := os.read(terminal, 65536):
            seen += chunk
    os.close(terminal)
    assert watching.wait(timeout=30) == 0, seen.decode(errors="replace")[-2000:]
    assert b"HOME" in seen
    assert b"READY" in seen
    assert b"Traceback" not in seen
