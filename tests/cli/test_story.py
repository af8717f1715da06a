"""The main job from `init` to the proof of deletion, typed as a person types it; and typed twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.project import Project, missing


def test_from_create_to_the_proof_that_all_is_gone(tmp_path: Path) -> None:
    project = Project.make(tmp_path / "project", count=2)
    commit = project.git("rev-parse", "HEAD")
    try:
        planned = project.json("create", "--dry-run")
        assert [action["node"] for action in planned["actions"]] == ["tpu-0", "tpu-1"]
        created = project.json("create")
        assert created["changed"]
        assert [host["commit"] for host in created["hosts"]] == [commit, commit]
        assert "nothing to do" in project.run("create").stdout

        started = project.json("run", "job", "--follow", "--grid", "seed=0,1,2,3,4,5,6,7")
        assert len(started["placed"]) == 8
        runs = project.json("runs")["runs"]
        assert {run["state"] for run in runs} == {"done"}
        assert len({chip for run in runs for chip in run["chips"]}) == 8, "eight runs on eight chips"
        assert {run["commit"] for run in runs} == {commit}
        assert all(run["attempts"][0]["exit_code"] == 0 and run["metrics"]["test_loss"] == 1.0 for run in runs)
        again = project.run("run", "job", "--grid", "seed=0,1,2,3,4,5,6,7")
        assert "nothing to do" in again.stdout

        first = project.json("collect")
        assert first["files"] == 3 * 8
        assert first["problems"] == []
        second = project.json("collect")
        assert (second["files"], second["bytes"]) == (0, 0)
        home = Path(first["home"])
        document = json.loads((home / "runs.json").read_text())
        assert document["schema"] == 1
        assert document["runs"] == runs
        for run in runs:
            assert json.loads((home / "runs" / run["id"] / "run.json").read_text()) == run
            index = run["chips"][0].rpartition(":")[2]
            assert f"chip {index} " in (home / "runs" / run["id"] / "log.txt").read_text()
        page = Path(first["report"]).read_text()
        assert "&lt;b&gt;Watson" in page
        assert "<b>Watson" not in page

        assert "tpu-1" in project.run("delete", "--dry-run").stdout
        proof = project.json("delete", "--yes")
        assert proof["proof"] == [{"zone": "us-central1-b", "nodes": 0, "queued_resources": 0, "granted": True}]
        assert "nothing to do" in project.run("delete", "--yes").stdout

        project.run("create")
        again = project.run("run", "job", "--grid", "seed=0,1,2,3,4,5,6,7", "--follow")
        assert "done already: 8" in again.stdout, "what is home is done, also on a new fleet"
        project.run("emulator", "stop")
        assert project.run("runs").stdout.count("done") == 8
        assert "chip" in project.run("logs", "job-seed0").stdout
    finally:
        project.stop()


def test_a_file_made_by_init_works(tmp_path: Path) -> None:
    project = Project.make(tmp_path / "project")
    (project.directory / "tpufleet.yaml").unlink()
    shutil.move(project.directory / "code" / ".git", project.directory / ".git")
    try:
        assert "wrote tpufleet.yaml" in project.run("init").stdout
        assert project.run("init", ok=False).exit_code == 2
        assert project.json("create")["changed"]
        assert project.json("delete", "--yes")["proof"][0]["nodes"] == 0
    finally:
        project.stop()


def test_status_shows_every_chip_in_the_documented_form(fleet: Project) -> None:
    status = fleet.json("status")
    assert status["schema"] == 1
    assert [(node["name"], node["state"], node["accelerator"]) for node in status["nodes"]] == [
        ("tpu-0", "READY", "v2-8"),
        ("tpu-1", "READY", "v2-8"),
    ]
    chips = [chip for node in status["nodes"] for host in node["hosts"] for chip in host["chips"]]
    assert [chip["name"] for chip in chips] == [f"tpu-{n}-w0:{i}" for n in (0, 1) for i in range(4)]
    who = {"name", "state", "seat", "run", "person", "user", "pid", "command"}
    assert set(chips[0]) == who | {"suspect", "hbm_used", "hbm_total", "duty_pct"}


def test_a_host_without_this_version_s_agent_gets_it_unless_it_is_a_dry_run(fleet: Project) -> None:
    for library in (fleet.directory / ".tpufleet/emulator/hosts").glob("*/root/var/lib/tpufleet/lib"):
        shutil.rmtree(library)
    assert fleet.run("run", "job", "--dry-run", ok=False).exit_code == 2
    chips = [chip for node in fleet.json("status")["nodes"] for host in node["hosts"] for chip in host["chips"]]
    assert len(chips) == 8


def test_exec_groups_by_host_and_sums_up(fleet: Project) -> None:
    done = fleet.run("exec", "--", "sh", "-c", "echo $USER")
    assert done.stdout.count("tpufleet") == 2
    results = fleet.json("exec", "--on", "tpu-1", "--", "printf '%s' \"$HOME\"")["results"]
    assert [result["host"] for result in results] == ["tpu-1-w0"]
    assert results[0]["stdout"].endswith("/home/tpufleet")
    assert fleet.run("exec", "--", "false", ok=False).exit_code == 6
    assert fleet.run("exec", "--on", "tpu-0", "--", "exit 7", ok=False).exit_code == 7


def test_words_behind_the_dashes_reach_the_host_as_they_are(fleet: Project) -> None:
    hostile = ["$(touch /tmp/no)", "a b", "'", '"', "*", "-n", "\\", "`id`", "é"]
    results = fleet.json("exec", "--on", "tpu-0", "--", "printf", r"%s\n", *hostile)["results"]
    assert results[0]["stdout"].splitlines() == hostile


def test_what_a_host_prints_cannot_paint_the_terminal(fleet: Project) -> None:
    done = fleet.run("exec", "--on", "tpu-0", "--", r"printf '\033]52;c;aGk=\007\033[2Jx\302\233y\n'")
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout
    assert "\x9b" not in done.stdout
    assert "x" in done.stdout


def test_sync_moves_every_host_to_the_new_commit_and_says_what_was(fleet: Project) -> None:
    old = fleet.git("rev-parse", "HEAD")
    (fleet.directory / "code" / "new.txt").write_text("new\n")
    new = fleet.commit("Something new")
    moved = fleet.json("sync")
    assert moved["commit"] == new
    assert [host["before"] for host in moved["hosts"]] == [old, old]
    assert "nothing to do" in fleet.run("sync").stdout


def test_uncommitted_changes_are_said(fleet: Project) -> None:
    job = fleet.directory / "code" / "job.py"
    text = job.read_text()
    job.write_text(text + "# not committed\n")
    try:
        assert "not committed" in fleet.run("sync").stderr
    finally:
        job.write_text(text)


@pytest.mark.skipif(missing("ssh") is not None, reason=str(missing("ssh")))
def test_ssh_runs_a_command_and_returns_its_exit_code(fleet: Project) -> None:
    done = fleet.run("ssh", "tpu-0", "--", "echo on $TPUFLEET_HOST_ROOT; exit 3", ok=False)
    assert done.exit_code == 3
    assert "tpu-0-w0/root" in done.stdout


def test_ssh_config_can_be_printed_and_installed(fleet: Project, tmp_path: Path) -> None:
    printed = fleet.run("ssh-config").stdout
    assert "Host tpu-0-w0 tpu-0\n" in printed
    assert "StrictHostKeyChecking yes" in printed
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh" / "config").write_text("Host mine\n")
    fleet.env["HOME"] = str(tmp_path)
    try:
        fleet.run("ssh-config", "--install")
        fleet.run("ssh-config", "--install")
    finally:
        del fleet.env["HOME"]
    installed = tmp_path / ".ssh" / "config"
    assert installed.read_text().count("Include") == 1
    assert installed.read_text().endswith("Host mine\n")
    assert installed.stat().st_mode & 0o777 == 0o600


def test_the_rehearsal_cloud_follows_its_part_of_the_file_while_it_runs(fleet: Project) -> None:
    tools = fleet.directory / "tools"
    tools.mkdir()
    (tools / "greet").write_text("#!/bin/sh\necho hello\n")
    (tools / "greet").chmod(0o755)
    file = fleet.directory / "tpufleet.yaml"
    text = file.read_text()
    file.write_text(text.replace("emulator: {", "emulator: {path: [tools], "))
    try:
        fleet.run("create")
        assert fleet.run("exec", "--on", "tpu-0", "--", "greet").stdout == "hello\n"
    finally:
        file.write_text(text)


def test_doctor_is_content_with_a_fleet_that_is_well(fleet: Project) -> None:
    report = fleet.json("doctor")
    assert report["ok"], report
    assert {"git", "code", "cloud", "nodes", "tpu-0-w0"} <= {finding["check"] for finding in report["findings"]}
