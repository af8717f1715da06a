"""Promises that matter when something goes wrong: one start per run, nothing lost, checkpoints whole or absent."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.project import Project

CHECKPOINT_JOB = """\
import hashlib, json, os, pathlib
run = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"])
aside, there = run / "checkpoints/.step-00000010", run / "checkpoints/step-00000010"
aside.mkdir(parents=True)
data = os.urandom(300_000)
(aside / "model.bin").write_bytes(data)
files = [{"path": "model.bin", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}]
(aside / "manifest.json").write_text(json.dumps({"step": 10, "files": files}))
aside.rename(there)
"""

UNKNOWING_JOB = """\
for step in range(1, 4):
    print(f"training loss: {3 / step:.2f}", flush=True)
    print("continuation: 'my dear Watson'", flush=True)
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory):
    jobs = r"""  job: {command: [python3, job.py, "{seed}"], grid: {seed: [0, 1, 2, 3]}, env: {GATE: "%s"}}
  waits: {command: [sleep, "600"]}
  saves: {command: [python3, saves.py]}
  unknowing: {command: [python3, unknowing.py], metrics: {train_loss: 'training loss:\s+([\d.]+)'}}
  secret: {command: [python3, -c, "import os; print(len(os.environ['TOKEN']))"], secrets: [TOKEN]}
"""
    directory = tmp_path_factory.mktemp("promises")
    gate = directory / "gate"
    project = Project.make(directory / "project", count=2, jobs=jobs % gate)
    (project.directory / "code" / "saves.py").write_text(CHECKPOINT_JOB)
    (project.directory / "code" / "unknowing.py").write_text(UNKNOWING_JOB)
    project.commit("More jobs")
    project.run("create")
    yield project
    gate.touch()
    project.stop()


def starts(project: Project, run: str) -> int:
    """How often a training began, by its own log on whichever host."""
    root = project.directory / ".tpufleet" / "emulator" / "hosts"
    return sum(log.read_text().count("chip ") for log in root.glob(f"*/root/var/lib/tpufleet/runs/{run}/log.txt"))


def gate(project: Project) -> Path:
    return project.directory.parent / "gate"


def until_done(project: Project, job: str, limit_s: float = 60) -> list[dict[str, object]]:
    """The runs of `job` when all have ended; each look is a real command, so there is no need to pause."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        runs = project.json("runs", job)["runs"]
        if runs and all(run["state"] in ("done", "failed", "stopped") for run in runs):
            return runs
    raise AssertionError(f"{job} did not end: {runs}")


def test_two_commands_at_the_same_moment_start_every_run_once_and_a_killed_one_loses_nothing(fleet: Project) -> None:
    first, second = fleet.popen("run", "job"), fleet.popen("run", "job")
    for process in (first, second):
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, (out, err)
    follower = fleet.popen("run", "job", "--follow")
    while "job-seed" not in (line := follower.stderr.readline()):
        assert line, "the follower ended early"
    os.kill(follower.pid, signal.SIGKILL)
    follower.communicate()
    gate(fleet).touch()
    runs = until_done(fleet, "job")
    assert [run["state"] for run in runs] == ["done"] * 4
    assert [starts(fleet, str(run["id"])) for run in runs] == [1] * 4
    fleet.run("collect", "job")
    for run in runs:
        assert "done" in (fleet.directory / "artifacts/sherlock/runs" / str(run["id"]) / "log.txt").read_text()


def test_ctrl_c_ends_the_watching_and_says_that_the_runs_go_on(fleet: Project) -> None:
    follower = fleet.popen("run", "waits", "--follow", "--restart")
    assert follower.stderr
    while "running on" not in (line := follower.stderr.readline()):
        assert line, "the follower ended early"
    follower.send_signal(signal.SIGINT)
    _, err = follower.communicate(timeout=30)
    assert follower.returncode == 130
    assert "what the cloud and the hosts were asked for goes on" in err
    assert fleet.json("runs", "waits")["runs"][0]["state"] == "running"
    assert fleet.json("stop", "waits")["runs"][0]["state"] == "stopped"


def test_a_repository_that_knows_nothing_of_tpufleet_has_its_numbers_in_the_report(fleet: Project) -> None:
    fleet.run("run", "unknowing", "--follow")
    report = Path(fleet.json("collect", "unknowing")["report"])
    home = report.parent.parent / "runs" / "unknowing"
    records = [json.loads(line) for line in (home / "metrics.jsonl").read_text().splitlines()]
    assert [record["train_loss"] for record in records] == [3.0, 1.5, 1.0]
    assert "continuation: 'my dear Watson'" in (home / "log.txt").read_text()
    assert "unknowing" in report.read_text()


def test_a_checkpoint_comes_home_whole_or_not_at_all(fleet: Project) -> None:
    fleet.run("run", "saves", "--follow")
    assert fleet.json("collect", "saves")["checkpoints"] == 1
    home = fleet.directory / "artifacts/sherlock/runs/saves"
    saved = home / "checkpoints/step-00000010"
    data = (saved / "model.bin").read_bytes()
    there = next((fleet.directory / ".tpufleet/emulator/hosts").glob("*/root/var/lib/tpufleet/runs/saves"))
    assert data == (there / "checkpoints/step-00000010/model.bin").read_bytes()

    fleet.run("run", "saves", "--restart", "--follow")
    changed = next((fleet.directory / ".tpufleet/emulator/hosts").glob("*/root/var/lib/tpufleet/runs/saves"))
    model = changed / "checkpoints/step-00000010/model.bin"
    whole = model.read_bytes()
    model.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    done = fleet.run("collect", "saves", ok=False)
    assert done.exit_code == 6
    assert "not as its manifest says" in done.stderr
    assert not saved.exists() or (saved / "model.bin").read_bytes() == data


def test_a_secret_is_in_no_file_at_home_and_in_no_log(fleet: Project) -> None:
    token = "s3cret-0123456789abcdef"
    fleet.env["TOKEN"] = token
    try:
        fleet.run("run", "secret", "--follow")
    finally:
        del fleet.env["TOKEN"]
    fleet.run("collect", "secret")
    assert fleet.run("logs", "secret").stdout.strip() == str(len(token))
    emulator = fleet.directory / ".tpufleet" / "emulator"
    for file in fleet.directory.rglob("*"):
        if file.is_file() and file.name != "secrets.json":
            assert token.encode() not in file.read_bytes(), file
    for file in emulator.rglob("secrets.json"):
        assert file.stat().st_mode & 0o777 == 0o600


def test_the_journal_may_be_deleted_without_losing_a_node_or_a_run(fleet: Project) -> None:
    before = fleet.json("runs")["runs"]
    for file in (fleet.directory / ".tpufleet").glob("journal.db*"):
        file.unlink()
    assert fleet.json("runs")["runs"] == before
    assert "nothing to do" in fleet.run("create").stdout


def test_another_key_than_the_pinned_one_is_refused(fleet: Project) -> None:
    pins = fleet.directory / ".tpufleet" / "hostkeys.json"
    text = pins.read_text()
    keys = json.loads(text)
    first, second = sorted(keys)[:2]
    keys[first]["key"], keys[second]["key"] = keys[second]["key"], keys[first]["key"]
    pins.write_text(json.dumps(keys))
    try:
        done = fleet.run("exec", "--", "true", ok=False)
        assert done.exit_code == 6
        status = fleet.json("status")
        assert {host["state"] for node in status["nodes"] for host in node["hosts"]} == {"unreachable"}
        assert "another machine answers" in status["nodes"][0]["hosts"][0]["error"]
        assert fleet.run("ssh", "tpu-0", "--", "true", ok=False).exit_code == 255
    finally:
        pins.write_text(text)
