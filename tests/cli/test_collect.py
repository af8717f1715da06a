"""`tpufleet collect`, and what of all that there is a person wants home."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.project import Project, until

# A loss that falls with the seed, two checkpoints, a picture; told to, it goes on until it is let go.
SAVES = """\
import hashlib, json, os, pathlib, sys, time
run, seed = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"]), int(sys.argv[1])
print("seed", seed, flush=True)
(run / "metrics.jsonl").write_text(json.dumps({"step": 2, "test_loss": 3 - seed}) + "\\n")
(run / "completions.jsonl").write_text(json.dumps({"step": 2, "prompt": "a", "text": "b"}) + "\\n")
(run / "plots").mkdir()
(run / "plots/loss.svg").write_text("<svg/>")
for step in (1, 2):
    aside = run / f"checkpoints/.step-{step:08d}"
    aside.mkdir(parents=True)
    data = bytes([seed, step]) * 10_000
    (aside / "model.bin").write_bytes(data)
    files = [{"path": "model.bin", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}]
    (aside / "manifest.json").write_text(json.dumps({"step": step, "files": files}))
    aside.rename(run / f"checkpoints/step-{step:08d}")
deadline = time.monotonic() + 300
while "GATE" in os.environ and not pathlib.Path(os.environ["GATE"]).exists() and time.monotonic() < deadline:
    time.sleep(0.02)
"""

JOBS = """\
  saves: {{command: [python3, saves.py, "{{seed}}"], grid: {{seed: [0, 1, 2]}}, artifacts: ["plots/**"]}}
  waits: {{command: [python3, saves.py, "0"], env: {{GATE: "{gate}"}}}}
"""
SEEDS = [f"saves-seed{seed}" for seed in range(3)]
RECORDS = {"log.txt", "metrics.jsonl", "completions.jsonl"}
NEWEST = {"checkpoints/step-00000002/model.bin", "checkpoints/step-00000002/manifest.json"}
OLDER = {path.replace("2/", "1/") for path in NEWEST}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Two nodes; three runs that are done, one that goes on. Nothing is home."""
    top = tmp_path_factory.mktemp("collect")
    project = Project.make(top / "project", count=2, jobs=JOBS.format(gate=top / "gate"))
    (project.directory / "code/saves.py").write_text(SAVES)
    project.commit("A job that saves")
    try:
        project.run("create")
        project.run("run", "saves", "--follow")
        project.run("run", "waits")
        until(lambda: list(project.directory.rglob("waits/checkpoints/step-00000002")), "the run that goes on")
        yield project
    finally:
        (top / "gate").touch()
        project.stop()


@pytest.fixture
def done(hosts: Project) -> Project:
    """The same, with nothing at home."""
    shutil.rmtree(hosts.directory / "artifacts", ignore_errors=True)
    return hosts


def home(project: Project) -> Path:
    return project.directory / "artifacts/sherlock"


def at_home(project: Project, run: str) -> set[str]:
    """What was collected of a run, by its path."""
    top = home(project) / "runs" / run
    files = {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}
    return files - {"run.json", ".collected.json"}


def whys(answer: Any, run: str) -> set[tuple[str, str]]:
    return {(item["what"], item["why"]) for item in answer["missing"] if item["run"] == run}


def incomplete(project: Project) -> set[str]:
    runs = json.loads((home(project) / "runs.json").read_text())["runs"]
    return {run["id"] for run in runs if run.get("incomplete")}


def test_a_dry_run_says_what_would_come_from_where_and_changes_nothing(done: Project) -> None:
    found = done.json("collect", "--dry-run")
    assert not home(done).exists()
    assert found["dry_run"]
    assert sum(host["bytes"] for host in found["hosts"]) == found["bytes"] > 4 * 40_000
    assert found["free"] > 0
    said = done.run("collect", "--dry-run")
    assert f"tpu-0-w0: {found['hosts'][0]['files']} files" in said.stdout or "tpu-1-w0: " in said.stdout
    assert "4 runs: 31 files (" in said.stdout
    assert ") would come home, 8 checkpoints" in said.stdout
    brought = done.json("collect")
    assert (brought["files"], brought["bytes"], brought["checkpoints"]) == (found["files"], found["bytes"], 8)
    assert (done.json("collect", "--dry-run")["bytes"], done.json("collect")["bytes"]) == (0, 0)


def test_only_brings_its_kinds_and_makes_no_run_look_complete(done: Project) -> None:
    brought = done.json("collect", "--only", "metrics", "--only", "completions")
    assert at_home(done, "saves-seed1") == {"metrics.jsonl", "completions.jsonl"}
    by_option = {("log.txt", "left out by --only"), ("plots/loss.svg", "left out by --only")}
    steps = {("step-00000001", "left out by --only"), ("step-00000002", "left out by --only")}
    assert whys(brought, "saves-seed1") == by_option | steps
    assert incomplete(done) == {*SEEDS}
    assert brought["problems"] == [], "what a person left out is no failure"
    done.run("collect")
    assert at_home(done, "saves-seed1") == RECORDS | NEWEST | OLDER | {"plots/loss.svg"}
    assert incomplete(done) == set()
    assert whys(done.json("collect", "--only", "logs"), "saves-seed1") == set(), "all of it is home"
    assert incomplete(done) == set()


def test_the_best_bring_their_newest_checkpoint_and_all_bring_everything_else(done: Project) -> None:
    brought = done.json("collect", "saves", "--best", "1")
    assert at_home(done, "saves-seed2") == RECORDS | NEWEST | {"plots/loss.svg"}, "the lowest test_loss"
    assert at_home(done, "saves-seed1") == RECORDS | {"plots/loss.svg"}
    assert at_home(done, "waits") == set()
    assert whys(brought, "saves-seed2") == {("step-00000001", "left out by --best")}
    assert incomplete(done) == {*SEEDS}
    said = done.run("collect", "saves", "--best", "1")
    assert "saves-seed0, saves-seed1: step-00000002 (left out by --best)" in said.stderr


def test_since_brings_what_was_alive_then(done: Project) -> None:
    done.run("collect", "--since", "2000-01-01", "--only", "logs")
    assert [at_home(done, run) for run in (*SEEDS, "waits")] == [{"log.txt"}] * 4
    shutil.rmtree(home(done))
    until(lambda: done.json("collect", "--since", "1s", "--only", "logs")["runs"] == 1, "the others to be over for 1 s")
    assert at_home(done, "waits") == {"log.txt"}


def test_what_goes_on_comes_as_it_stands_and_is_said_to_go_on(done: Project) -> None:
    brought = done.json("collect")
    assert at_home(done, "waits") == RECORDS | NEWEST | OLDER
    assert brought["missing"] == [{"run": "waits", "what": "what is still to come", "why": "it is under way"}]
    assert "not home yet: waits: what is still to come (it is under way)\n" in done.run("collect").stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--only", "log"], "--only brings one of logs, metrics, completions, checkpoints, artifacts, not 'log'"),
        (["--best", "0"], "--best must be from 1 to 100000, not 0"),
        (["--since", "tuesday"], "--since takes a length of time or a moment, not 'tuesday'"),
        (["--since", "2999-01-01"], "--since 2999-01-01 is still to come"),
    ],
)
def test_a_wrong_value_is_one_sentence_before_anything_happens(tmp_path: Path, words: list[str], says: str) -> None:
    refused = Project(tmp_path).run("collect", *words, ok=False)
    assert refused.exit_code == 2
    assert f"error: {says}\n" in refused.stderr


def test_of_a_silent_host_it_is_said_which_runs_are_not_home(done: Project) -> None:
    hosts = {run["id"]: run["host"] for run in done.json("runs")["runs"]}
    lost = {run for run, host in hosts.items() if host == "tpu-1-w0"}
    assert lost
    done.run("emulator", "fault", "partition", "tpu-1-w0")
    try:
        brought = done.run("--json", "collect", ok=False)
        answer = json.loads(brought.stdout.splitlines()[0])
        assert brought.exit_code == 6
        everything = {item["run"] for item in answer["missing"] if item["what"] == "everything"}
        assert everything == lost
        assert all(item["why"].startswith("tpu-1-w0: ") for item in answer["missing"] if item["run"] in lost)
        assert all(at_home(done, run) for run in hosts if run not in lost)
        aside = (done.directory / "artifacts").rename(done.directory / "aside")
        try:
            told = done.run("runs").stderr
        finally:
            aside.rename(done.directory / "artifacts")
        assert all(run in told for run in lost), "those of which nothing is home are named at least"
        assert not any(run in told for run in hosts if run not in lost)
        assert "sent there, not heard of and not home" in told
    finally:
        done.run("emulator", "fault", "clear")
