"""Full disks, at home, below the journal, on a host: said in one sentence, nothing lost, and typed again it goes on."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project import Done, Project, until

from .small_disk import SmallDisk, small_disk

# Three steps with a checkpoint of 200 kB after each; told to, it waits after the first.
SAVES = """\
import hashlib, json, os, pathlib, shutil, time
run = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"])
resume = os.environ.get("TPUFLEET_RESUME")
done = json.loads((pathlib.Path(resume) / "manifest.json").read_text())["step"] if resume else 0
print("from", done, flush=True)
for step in (1, 2, 3):
    if step <= done:
        continue
    aside = run / f"checkpoints/.step-{step:08d}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    data = bytes([step]) * 200_000
    try:
        (aside / "model.bin").write_bytes(data)
    except OSError:
        shutil.rmtree(aside)
        raise
    record = {"path": "model.bin", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (aside / "manifest.json").write_text(json.dumps({"step": step, "files": [record]}))
    aside.rename(run / f"checkpoints/step-{step:08d}")
    while step == 1 and not pathlib.Path(os.environ["GATE"]).exists():
        time.sleep(0.02)
"""

JOBS = """\
  job: {{command: [python3, job.py, "{{seed}}"], grid: {{seed: [0, 1, 2, 3]}}}}
  saves: {{command: [python3, saves.py], env: {{GATE: "{gate}"}}, mirror: 1s, retries: 3}}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Project]:
    """A project whose rehearsal cloud lies on another disk than its own state."""
    project = Project.make(tmp_path / "project", jobs=JOBS.format(gate=tmp_path / "gate"))
    project.env["TPUFLEET_EMULATOR"] = str(tmp_path / "emulator")
    (project.directory / "code/saves.py").write_text(SAVES)
    project.commit("A job that saves")
    yield project
    (tmp_path / "gate").touch()
    project.run("emulator", "stop")


def open_gate(project: Project) -> None:
    (project.directory.parent / "gate").touch()


def home(project: Project, run: str) -> Path:
    return project.directory / "artifacts/sherlock/runs" / run


def base_of(project: Project) -> Path:
    """Where the one host there is keeps what is tpufleet's."""
    (base,) = (project.directory.parent / "emulator/hosts").glob("*/root/var/lib/tpufleet")
    return base


def saved(project: Project, step: int) -> bool:
    return (base_of(project) / f"runs/saves/checkpoints/step-{step:08d}").exists()


def refused(project: Project, *words: str, where: str) -> None:
    """The command ends with one sentence that says what is full, and the next step."""
    done = project.run(*words, ok=False)
    assert done.exit_code == 8, done
    errors = [line for line in done.stderr.splitlines() if line.startswith(("error:", "  →"))]
    assert len(errors) == 2, done.stderr
    written = rf"the disk is full: no room for \S*{where}\S*"
    foreseen = rf"too little room at \S*{where}\S*: .+ are to come, and .+ may be used"
    assert re.fullmatch(f"error: ({written}|{foreseen})", errors[0]), errors
    assert errors[1] == "  → make room there, then run the same command again"


def unaffected(done: Done) -> None:
    assert "error:" not in done.stderr


def all_is_home(project: Project) -> None:
    """Everything that `saves` left, whole, with nothing half-done beside it."""
    there = home(project, "saves")
    assert sorted(path.name for path in (there / "checkpoints").iterdir()) == [f"step-{n:08d}" for n in (1, 2, 3)]
    for step in (1, 2, 3):
        assert (there / f"checkpoints/step-{step:08d}/model.bin").read_bytes() == bytes([step]) * 200_000
    assert json.loads((there / "run.json").read_text())["state"] == "done"
    assert list(there.parents[1].rglob("*.part")) == []
    assert not (there / ".parts").exists()


def test_with_a_full_disk_below_the_journal_nothing_is_begun_and_the_fleet_can_be_taken_down(fleet: Project) -> None:
    with small_disk(fleet.directory / ".tpufleet", "256k") as disk:
        disk.fill()
        refused(fleet, "create", where=r"/\.tpufleet/")
        disk.make_room()
        fleet.run("create")
        disk.fill()
        for words in (["sync"], ["run", "job"], ["collect"], ["watch", "--once"]):
            refused(fleet, *words, where=r"/\.tpufleet/journal\.db")
        assert len(fleet.json("status")["nodes"]) == 1
        disk.make_room()
        fleet.run("run", "job", "--follow")
        assert [run["state"] for run in fleet.json("runs", "job")["runs"]] == ["done"] * 4
        with contextlib.closing(sqlite3.connect(disk.path / "journal.db")) as journal:
            assert journal.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        disk.fill()
        done = fleet.run("delete", "--yes")
        assert "all zones: 0 nodes, 0 queued resources" in done.stdout
        assert "not on record" in done.stderr
        (node,) = fleet.json("emulator", "book")["nodes"]
        assert node["deleted"]


@pytest.mark.faults
def test_with_a_full_disk_at_home_collect_says_so_and_brings_the_rest_when_there_is_room(fleet: Project) -> None:
    fleet.run("create")
    open_gate(fleet)
    fleet.run("run", "saves", "--follow")
    with small_disk(fleet.directory / "artifacts", "1m") as disk:
        disk.fill()
        refused(fleet, "collect", where="/artifacts/")
        disk.make_room()
        disk.fill(leave=320_000)  # one of three
        refused(fleet, "collect", where="/artifacts/")
        for words in (["sync"], ["create"], ["status"], ["run", "saves"]):
            unaffected(fleet.run(*words))
        disk.make_room()
        fleet.run("collect")
        all_is_home(fleet)
        assert "nothing new" in fleet.run("collect").stdout
        fleet.run("delete", "--yes")


@pytest.mark.faults
def test_a_watch_says_once_that_the_disk_at_home_is_full_and_goes_on(fleet: Project) -> None:
    fleet.run("create")
    fleet.run("run", "saves")
    until(lambda: saved(fleet, 1), "a checkpoint")
    with small_disk(fleet.directory / "artifacts", "1m") as disk:
        disk.fill()
        watching = fleet.popen("watch", "--until-done", "--interval", "1s")
        lines = read_until(watching, "(going on)")
        disk.make_room()
        lines += read_until(watching, "home")
        open_gate(fleet)
        _, err = watching.communicate(timeout=60)
        assert watching.returncode == 0, err
        full = [line for line in [*lines, *err.splitlines()] if "disk is full" in line]
        assert len(full) == len({line.split(":")[0] for line in full}), full
        all_is_home(fleet)


@pytest.mark.faults
def test_a_watch_whose_journal_s_disk_is_full_makes_a_lost_node_anew_when_there_is_room(fleet: Project) -> None:
    with small_disk(fleet.directory / ".tpufleet", "256k") as disk:
        fleet.run("create")
        fleet.run("run", "saves")
        until(lambda: saved(fleet, 1), "a checkpoint")
        watching = fleet.popen("watch", "--until-done", "--interval", "1s")
        until((home(fleet, "saves") / "checkpoints/step-00000001").exists, "the mirror")
        disk.fill()
        fleet.run("emulator", "fault", "preempt", "tpu-0")
        said = read_until(watching, "(going on)")
        assert "disk is full" in said[-1], said
        disk.make_room()
        open_gate(fleet)
        _, err = watching.communicate(timeout=120)
        assert watching.returncode == 0, err
        (run,) = fleet.json("runs", "saves")["runs"]
        assert (run["state"], run["resumed_from"]) == ("done", "step-00000001")


def read_until(watching: subprocess.Popen[str], word: str) -> list[str]:
    assert watching.stderr
    lines = [watching.stderr.readline()]
    while word not in lines[-1]:
        lines.append(watching.stderr.readline())
        assert lines[-1], lines
    return lines


@pytest.mark.faults
def test_with_a_full_disk_on_the_host_code_and_runs_are_refused_and_what_is_there_comes_home(fleet: Project) -> None:
    fleet.run("create")
    with small_disk(base_of(fleet), "3m") as disk:
        open_gate(fleet)
        fleet.run("run", "saves", "--follow")
        (fleet.directory / "code/new").touch()
        fleet.commit("New")
        disk.fill()
        for words in (["sync"], ["create"], ["run", "job"]):
            done = fleet.run(*words, ok=False)
            assert done.exit_code == 5
            assert "error: tpu-0-w0: the host's disk is full\n  → tpufleet ssh tpu-0-w0 -- df -h" in done.stderr
        unaffected(fleet.run("status"))
        fleet.run("collect")
        all_is_home(fleet)
        disk.make_room()
        fleet.run("sync")
        fleet.run("run", "job", "--follow")
    fleet.run("delete", "--yes")


@pytest.mark.faults
def test_a_training_that_meets_a_full_disk_is_tried_again_and_goes_on_from_what_it_had(fleet: Project) -> None:
    fleet.run("create")
    with small_disk(base_of(fleet), "3m") as disk:
        fleet.run("run", "saves")
        until(lambda: saved(fleet, 1), "a checkpoint")
        disk.fill(leave=100_000)  # not enough for the second
        open_gate(fleet)
        until(lambda: fleet.json("runs", "saves")["runs"][0]["state"] == "recovering", "the failure to be seen")
        assert not saved(fleet, 2)
        fleet.run("collect")
        disk.make_room()
        fleet.run("run", "saves", "--follow")
        (run,) = fleet.json("runs", "saves")["runs"]
        assert [attempt["reason"] for attempt in run["attempts"]] == ["disk full", None]
        assert run["resumed_from"] == "step-00000001"
        fleet.run("collect")
        all_is_home(fleet)


def test_the_small_disk_is_really_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk:
        disk.fill()
        assert isinstance(disk, SmallDisk)
        with pytest.raises(OSError, match="No space left"):
            (disk.path / "more").write_bytes(b"x" * 10_000)
