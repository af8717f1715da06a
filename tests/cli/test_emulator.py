"""`tpufleet emulator`: what a person types to rehearse what goes wrong."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_errors import said
from tests.project import Project

FAULTS = (
    *("stockout", "quota", "preempt", "maintenance", "suspend", "vanish", "hang-operation"),
    *("reboot", "down", "up", "partition", "slow", "disk-full", "change-host-key", "change-ip"),
    *("api", "slow-api", "list", "clear"),
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project whose rehearsal cloud runs, with one node."""
    project = Project.make(tmp_path_factory.mktemp("emulator") / "project")
    try:
        project.run("create")
        yield project
    finally:
        project.stop()


def test_the_help_explains_each_fault_in_a_line_and_each_one_in_full_with_an_example(project: Project) -> None:
    project.env = {"COLUMNS": "80"}
    listed = project.run("emulator", "fault", "--help").stdout
    assert all(len(line) <= 80 for line in listed.splitlines())
    assert "..." not in listed.partition("Commands:")[2]
    for kind in FAULTS:
        assert f"\n  {kind} " in listed
        help_ = project.run("emulator", "fault", kind, "--help").stdout
        assert f"Example: tpufleet emulator fault {kind}" in help_
        assert all(len(line) <= 80 for line in help_.splitlines())


def test_a_fault_that_lasts_is_listed_until_it_ends(running: Project) -> None:
    words = ["emulator", "fault", "slow", "tpu-0-w0", "--delay-ms", "1"]
    assert "in force" in running.run(*words).stdout
    assert running.json("emulator", "fault", "list")["faults"] == [
        {"kind": "slow", "target": "tpu-0-w0", "delayMs": 1.0}
    ]
    assert running.json("emulator", "fault", "slow", "tpu-0-w0", "--end") == {
        "schema": 1,
        "kind": "slow",
        "target": "tpu-0-w0",
        "in_force": False,
    }
    said(running.run("emulator", "fault", "slow", "tpu-0-w0", "--end", ok=False), 4, "no fault 'slow tpu-0-w0'")
    running.run("emulator", "fault", "api", "503", "--at", "1000")
    running.run("emulator", "fault", "partition", "tpu-0-w0")
    cleared = running.json("emulator", "fault", "clear")["faults"]
    assert [(one["kind"], one["target"]) for one in cleared] == [("api", "503"), ("partition", "tpu-0-w0")]
    assert "no fault" in running.run("emulator", "fault", "list").stdout


def test_who_is_not_there_is_named_with_who_is(running: Project) -> None:
    said(running.run("emulator", "fault", "preempt", "tpu-7", ok=False), 4, "no node 'tpu-7'", "tpu-0")
    said(running.run("emulator", "fault", "down", "tpu-0-w7", ok=False), 4, "no host 'tpu-0-w7'", "tpu-0-w0")
    said(running.run("emulator", "fault", "api", "200", ok=False), 2, "'200'", "429")
    said(running.run("emulator", "fault", "api", ok=False), 2, "STATUS")
    said(running.run("emulator", "fault", "slow", "tpu-0-w0", ok=False), 2, "how slow")
    said(running.run("emulator", "fault", "slow-api", ok=False), 2, "how slow")
    said(running.run("emulator", "fault", "eclipse", ok=False), 2, "eclipse")
    said(running.run("emulator", "step", "tpu-0", ok=False), 2, "waits for no step", "--manual")


def test_a_preempted_node_is_made_again_by_the_same_command(running: Project) -> None:
    running.run("emulator", "fault", "preempt", "tpu-0")
    assert running.json("status")["nodes"][0]["state"] == "PREEMPTED"
    running.run("create")
    assert running.json("status")["nodes"][0]["state"] == "READY"
    book = running.json("emulator", "book")
    assert [node["name"].rpartition("/")[2] for node in book["nodes"]] == ["tpu-0", "tpu-0"]
    assert book["nodes"][0]["deleted"]
    assert "node-seconds" in running.run("emulator", "book").stdout


def test_the_environment_is_a_shells_points_gcloud_at_the_cloud_and_hides_own_credentials(running: Project) -> None:
    url = running.json("emulator", "status")["url"]
    lines = running.run("emulator", "env").stdout.splitlines()
    variables = dict(shlex.split(line)[1].split("=", 1) for line in lines)
    assert variables == running.json("emulator", "env")["env"]
    assert variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"] == f"{url}/"
    assert variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"] == f"{url}/compute/v1/"
    code = "; ".join(
        (
            "import google.auth, google.auth.transport.requests as transport",
            "credentials, project = google.auth.default()",
            "credentials.refresh(transport.Request())",
            "print(project, bool(credentials.token))",
        )
    )
    shell = f'eval "$("$0" -m tpufleet emulator env)"; "$0" -c "{code}"'
    mine = running.directory / "my-own-credentials.json"
    mine.write_text("not to be read")
    env = {"PATH": os.environ["PATH"], "HOME": str(running.directory), "GOOGLE_APPLICATION_CREDENTIALS": str(mine)}
    done = subprocess.run(
        ["sh", "-c", shell, sys.executable], cwd=running.directory, env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout == "rehearsal True\n", done.stderr


def test_states_can_be_stepped_by_hand(project: Project) -> None:
    project.run("emulator", "start")
    assert project.json("emulator", "settings", "--manual")["settings"]["manual"] is True
    with project.popen("create") as creating:

        def step() -> bool:
            return project.run("emulator", "step", "tpu-0", ok=False).exit_code == 0

        while not step():
            assert creating.poll() is None
        creating.communicate(timeout=60)
    assert creating.returncode == 0
    assert project.json("emulator", "settings", "--by-time")["settings"]["manual"] is False


@pytest.mark.parametrize("words", [["book"], ["settings"], ["fault", "list"], ["fault", "preempt", "tpu-0"]])
def test_a_cloud_that_does_not_run_is_said_to(project: Project, words: list[str]) -> None:
    said(project.run("emulator", *words, ok=False), 5, "not running", "tpufleet emulator start")


def test_a_fleet_may_use_the_cloud_of_another_directory(running: Project, tmp_path: Path) -> None:
    guest = Project.make(tmp_path / "guest")
    guest.env = {"TPUFLEET_EMULATOR": str(running.directory / ".tpufleet" / "emulator")}
    assert guest.json("emulator", "status")["pid"] == running.json("emulator", "status")["pid"]
    assert not (guest.directory / ".tpufleet" / "emulator").exists()


def test_a_directory_that_cannot_be_used_is_said_at_once(project: Project) -> None:
    project.env = {"TPUFLEET_EMULATOR": "/dev/null/emulator"}
    said(project.run("emulator", "start", ok=False), 8, "/dev/null/emulator", "can't be used")
    project.env = {}


def test_a_daemon_that_cannot_write_says_so_at_once(project: Project) -> None:
    project.run("emulator", "start")
    project.stop()
    full = 'trap "" XFSZ; ulimit -S -f 0; exec "$0" -m tpufleet emulator start'
    started = time.monotonic()
    done = subprocess.run(
        ["sh", "-c", full, sys.executable], cwd=project.directory, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "No usable temporary directory" in done.stderr) == (8, True), done.stderr
    assert "emulator.log" in done.stderr
    assert time.monotonic() - started < 15  # the launcher's own patience is 20 s


def test_the_book_is_one_json_object(running: Project) -> None:
    assert json.loads(running.run("emulator", "book", "--json").stdout)["schema"] == 1
