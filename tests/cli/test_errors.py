"""What a user, a cloud or a host can do wrong: one sentence, the right exit code, nothing half-done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project import JOBS, Done, Project


def said(done: Done, code: int, *words: str) -> None:
    """The command ended with `code` and one error that has these words, and a next step."""
    assert done.exit_code == code, (done.exit_code, done.stderr)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert "  → " in done.stderr


def test_a_missing_file(tmp_path: Path) -> None:
    said(Project(tmp_path).run("create", ok=False), 2, "tpufleet.yaml", "tpufleet init")


def test_a_mistake_in_the_file_has_its_place(project: Project) -> None:
    file = project.directory / "tpufleet.yaml"
    file.write_text(file.read_text().replace("count: 1", "cuont: 1"))
    said(project.run("create", ok=False), 2, "tpufleet.yaml:4:17", "cuont", "count")
    assert not (project.directory / ".tpufleet").exists()


def test_a_dry_run_of_a_fleet_that_never_was_leaves_no_trace(project: Project) -> None:
    planned = project.run("create", "--dry-run").stdout
    assert "tpu-0" in planned
    assert project.run("delete", "--dry-run").stdout == "nothing to do\n"
    assert sorted(path.name for path in project.directory.iterdir()) == ["code", "tpufleet.yaml"]


def test_an_unknown_command_and_an_unknown_option(project: Project) -> None:
    said(project.run("crate", ok=False), 2, "crate")
    said(project.run("create", "--dry", ok=False), 2, "--dry")


def test_an_error_is_also_json_when_json_was_asked_for(project: Project) -> None:
    done = project.run("run", "job", "--json", ok=False)
    assert done.exit_code == 5
    assert done.json["error"]["exit_code"] == 5
    assert done.json["error"]["kind"] == "CloudUnreachable"
    assert done.json["error"]["hint"]


@pytest.mark.parametrize(
    "verb", [["status"], ["runs"], ["run", "job"], ["collect"], ["delete", "--yes"], ["exec", "--", "true"]]
)
def test_a_cloud_that_does_not_run(project: Project, verb: list[str]) -> None:
    said(project.run(*verb, ok=False), 5, "not running", "tpufleet create")


def test_a_cloud_that_was_killed_and_comes_back_with_its_nodes(project: Project) -> None:
    project.run("create")
    os.kill(project.json("emulator", "status")["pid"], signal.SIGKILL)
    said(project.run("status", ok=False), 5, "not running")
    assert [node["name"] for node in project.json("create")["hosts"]] == ["tpu-0-w0"]


def test_an_unknown_job_names_those_there_are(fleet: Project) -> None:
    said(fleet.run("run", "jbo", ok=False), 2, "jbo", "job, one, fails")


def test_an_unknown_run_host_and_node(fleet: Project) -> None:
    said(fleet.run("logs", "nothing", ok=False), 2, "nothing")
    said(fleet.run("stop", "nothing", ok=False), 2, "nothing")
    said(fleet.run("exec", "--on", "tpu-9", "--", "true", ok=False), 2, "tpu-9", "tpu-0-w0")
    said(fleet.run("ssh", "tpu-9", ok=False), 2, "tpu-9")
    said(fleet.run("delete", "tpu-9", "--yes", ok=False), 2, "tpu-9")


def test_deleting_asks_and_nobody_there_means_no(fleet: Project) -> None:
    said(fleet.run("delete", ok=False), 2, "--yes")
    assert len(fleet.json("status")["nodes"]) == 2


def test_a_job_that_exits_1(fleet: Project) -> None:
    done = fleet.run("run", "fails", "--follow", ok=False)
    said(done, 7, "fails", "exit nonzero (1)", "tpufleet logs fails")
    assert "no luck" in fleet.run("logs", "fails").stdout
    state = next(run for run in fleet.json("runs")["runs"] if run["id"] == "fails")
    assert (state["state"], state["reason"], state["attempts"][0]["exit_code"]) == ("failed", "exit nonzero", 1)


def test_a_placeholder_nobody_fills(tmp_path: Path) -> None:
    project = Project.make(tmp_path / "project", jobs='  job: {command: [echo, "{lr}"]}\n')
    try:
        project.run("create")
        said(project.run("run", "job", ok=False), 2, "{lr}", "--set lr=VALUE")
    finally:
        project.stop()


def test_a_repository_that_does_not_exist_makes_no_node(tmp_path: Path) -> None:
    project = Project.make(tmp_path / "project")
    file = project.directory / "tpufleet.yaml"
    file.write_text(file.read_text().replace("repo: code", "repo: ../nowhere"))
    try:
        said(project.run("create", ok=False), 2, "nowhere", "does not exist")
        assert project.json("status")["nodes"] == []
    finally:
        project.stop()


def test_a_directory_that_is_no_repository_and_a_branch_that_is_none(project: Project) -> None:
    file = project.directory / "tpufleet.yaml"
    text = file.read_text()
    (project.directory / "plain").mkdir()
    file.write_text(text.replace("repo: code", "repo: plain"))
    said(project.run("create", ok=False), 2, "not a git repository")
    file.write_text(text.replace("repo: code", "repo: code, ref: nope"))
    said(project.run("create", ok=False), 2, "nope")


def test_a_set_up_that_fails_shows_its_last_words(project: Project) -> None:
    file = project.directory / "tpufleet.yaml"
    file.write_text(file.read_text().replace("repo: code", 'repo: code, setup: ["echo no such package; exit 4"]'))
    done = project.run("create", ok=False)
    said(done, 5, "no such package")


def test_a_host_that_is_down_does_not_hold_up_the_others(tmp_path: Path) -> None:
    project = Project.make(tmp_path / "project", count=2)
    try:
        project.run("create")
        fault(project, "down", "tpu-1-w0")
        status = project.json("status")
        states = {host["name"]: host["state"] for node in status["nodes"] for host in node["hosts"]}
        assert states == {"tpu-0-w0": "ready", "tpu-1-w0": "unreachable"}
        done = project.run("exec", "--", "true", ok=False)
        said(done, 6, "tpu-1-w0")
        started = project.run("run", "job", "--follow")
        assert "no run is sent there" in started.stderr
        assert {run["host"] for run in project.json("runs")["runs"]} == {"tpu-0-w0"}
        collected = project.run("collect", ok=False)
        said(collected, 6, "tpu-1-w0")
        assert (project.directory / "artifacts/sherlock/runs/job-seed0/log.txt").exists()
        fault(project, "up", "tpu-1-w0")
        assert project.json("collect")["problems"] == []
    finally:
        project.stop()


def test_a_node_that_cannot_be_had_does_not_keep_the_others_from_being_used(project: Project) -> None:
    file = project.directory / "tpufleet.yaml"
    file.write_text(file.read_text().replace("nodes:\n", "nodes:\n  - {name: big, accelerator: v3-32}\n"))
    file.write_text(file.read_text().replace("provider: emulator,", "provider: emulator, zones: [us-central1-b],"))
    said(project.run("create", ok=False), 6, "big-0", "cloud.zones")
    assert {run["state"] for run in project.json("run", "job", "--follow")["runs"]} == {"done"}


def test_no_host_at_all(project: Project) -> None:
    project.run("emulator", "start")
    said(project.run("run", "job", ok=False), 2, "no host", "tpufleet create")
    said(project.run("ssh", ok=False), 2, "no host")


def test_a_run_that_is_too_large_for_every_host(tmp_path: Path) -> None:
    project = Project.make(tmp_path / "project", jobs=JOBS + "  big: {command: [date], chips: 8}\n")
    said(project.run("create", ok=False), 2, "8")


def test_a_secret_that_is_not_set(tmp_path: Path) -> None:
    project = Project.make(tmp_path / "project", jobs="  job: {command: [env], secrets: [WANDB_API_KEY]}\n")
    try:
        project.run("create")
        said(project.run("run", "job", ok=False), 2, "WANDB_API_KEY")
    finally:
        project.stop()


@pytest.mark.parametrize("redirection", ["> /dev/full", ">&-", "2>&-", "| true"])
def test_an_answer_that_cannot_be_written(project: Project, redirection: str) -> None:
    project.run("emulator", "start")
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m tpufleet status {redirection}', sys.executable],
        cwd=project.directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.returncode == (8 if "full" in redirection else 0)


def test_git_that_is_missing_is_said(project: Project, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    project.env["PATH"] = str(tmp_path / "empty")
    try:
        said(project.run("create", ok=False), 2, "git is not installed")
    finally:
        del project.env["PATH"]


def test_a_host_with_another_key_stops_a_run(fleet: Project) -> None:
    pins = fleet.directory / ".tpufleet" / "hostkeys.json"
    text = pins.read_text()
    keys = json.loads(text)
    first, second = sorted(keys)[:2]
    keys[first]["key"] = keys[second]["key"]
    pins.write_text(json.dumps(keys))
    try:
        said(fleet.run("run", "one", ok=False), 5, "another machine answers")
    finally:
        pins.write_text(text)


def test_a_broken_journal_is_said_and_may_be_deleted(project: Project) -> None:
    project.run("create")
    for file in (project.directory / ".tpufleet").glob("journal.db*"):
        file.unlink()
    (project.directory / ".tpufleet" / "journal.db").write_text("not a database " * 100)
    said(project.run("status", ok=False), 8, "journal")
    (project.directory / ".tpufleet" / "journal.db").unlink()
    assert "nothing to do" in project.run("create").stdout


def fault(project: Project, kind: str, host: str) -> None:
    """Ask the rehearsal cloud for a fault."""
    import urllib.request

    url = project.json("emulator", "status")["url"]
    request = urllib.request.Request(f"{url}/emulator/faults/{kind}/{host}", method="POST")  # noqa: S310 (our own)
    with urllib.request.urlopen(request) as answer:  # noqa: S310 (our own)
        assert answer.status == 200


def test_something_else_where_what_comes_home_should_go(fleet: Project) -> None:
    fleet.run("run", "one", "--follow")
    (fleet.directory / "artifacts/sherlock/runs.json/mine").mkdir(parents=True)
    said(fleet.run("collect", ok=False), 8, "artifacts/sherlock", "can't be written", "check whose it is")
    assert (fleet.directory / "artifacts/sherlock/runs.json/mine").is_dir()
