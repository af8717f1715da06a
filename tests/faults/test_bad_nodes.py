"""Nodes that are there and not as they should be: what `watch` does about them, by the cloud's and their own words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.project import Project, until
from tpufleet.testing import TpuCloud

JOBS = """\
  waits: {{command: [sh, -c, "until [ -e {gate} ]; do sleep 0.05; done"], grid: {{seed: [0, 1]}}}}
  chipless: {{command: [sh, -c, "echo TPU initialization failed; exit 1"], retries: 1}}
  fails: {{command: [sh, -c, "exit 1"]}}
"""


@pytest.fixture
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Project]:
    """Nodes with four chips each; `waits` waits for `gate`."""
    count, more = getattr(request, "param", (1, ""))
    project = Project.make(tmp_path / "project", count=count, jobs=JOBS.format(gate=tmp_path / "gate"))
    file = project.directory / "tpufleet.yaml"
    file.write_text(file.read_text().replace("accelerator: v2-8", f"accelerator: v2-8{more}"))
    project.run("create")
    yield project
    (tmp_path / "gate").touch()
    project.stop()


def gate(project: Project) -> Path:
    return project.directory.parent / "gate"


def cloud(project: Project) -> TpuCloud:
    running = project.json("emulator", "status")
    return TpuCloud(project.directory / ".tpufleet/emulator", running["url"], running["ssh_port"])


def machines(project: Project, node: str = "tpu-0") -> int:
    """How many machines of that name there were, by the cloud's own book."""
    return sum(made["name"].endswith(node) for made in project.json("emulator", "book")["nodes"])


def attempts(project: Project, job: str) -> list[list[str | None]]:
    return [[attempt["reason"] for attempt in run["attempts"]] for run in project.json("runs", job)["runs"]]


def nodes(project: Project) -> list[dict[str, Any]]:
    return project.json("status")["nodes"]


@pytest.mark.faults
@pytest.mark.parametrize("fleet", [(1, ", queued: true")], indirect=True)
def test_a_suspended_node_is_asked_for_anew_and_its_runs_go_on(fleet: Project) -> None:
    fleet.run("run", "waits")
    fleet.run("watch", "--once")
    cloud(fleet).faults.suspend("tpu-0")
    assert {item["state"] for item in fleet.json("status")["queued"]} == {"SUSPENDED"}
    said = fleet.run("watch", "--once").stderr
    assert "SUSPENDED" in said
    gate(fleet).touch()
    fleet.run("watch", "--until-done", "--interval", "1s")
    assert attempts(fleet, "waits") == [["preempted", None]] * 2
    assert machines(fleet) == 2


@pytest.mark.faults
def test_a_node_under_maintenance_is_called_unhealthy_and_left_to_come_back(fleet: Project) -> None:
    fleet.run("run", "waits")
    with cloud(fleet).faults.maintenance("tpu-0"):
        assert [node["health"] for node in nodes(fleet)] == ["UNHEALTHY_MAINTENANCE"]
        fleet.run("watch", "--once")
        assert attempts(fleet, "waits") == [[None]] * 2, "they work on until it is taken down"
    gate(fleet).touch()
    fleet.run("watch", "--until-done", "--interval", "1s")
    assert attempts(fleet, "waits") == [["host rebooted", None]] * 2
    assert machines(fleet) == 1


@pytest.mark.faults
def test_a_host_with_a_chip_too_few_is_made_anew_once(fleet: Project) -> None:
    def lose_a_chip() -> None:
        (device,) = (fleet.directory / ".tpufleet/emulator/hosts").glob("tpu-0-w0*/root/dev/accel3")
        device.unlink()

    lose_a_chip()
    said = fleet.run("watch", "--once").stderr
    assert "shows 3 of 4 chips" in said
    assert machines(fleet) == 2
    lose_a_chip()
    assert "again after it was made anew: it gets no runs" in fleet.run("watch", "--once").stderr
    assert machines(fleet) == 2


@pytest.mark.faults
@pytest.mark.parametrize("fleet", [(2, "")], indirect=True)
def test_a_suspect_host_gets_no_run_while_another_has_room(fleet: Project) -> None:
    fleet.run("run", "chipless", "--follow", ok=False)
    (suspect,) = {run["host"] for run in fleet.json("runs", "chipless")["runs"]}
    done = fleet.run("run", "waits")
    assert f"{suspect}: TPU initialisation failed 2 times in a row" in done.stderr
    assert "only where no other host has room" in done.stderr
    assert suspect not in {run["host"] for run in fleet.json("runs", "waits")["runs"]}


@pytest.mark.faults
def test_a_failure_is_told_once_also_one_from_before_the_watch(fleet: Project) -> None:
    gate(fleet).touch()
    fleet.run("run", "fails")
    until(lambda: fleet.json("runs", "fails")["runs"][0]["state"] == "failed", "the failure")
    assert fleet.run("watch", "--until-done", "--interval", "1s", ok=False).exit_code == 7
    fleet.run("run", "waits")
    fleet.run("watch", "--until-done", "--interval", "1s")
    assert fleet.run("run", "fails", "--follow", ok=False).exit_code == 7
    fleet.run("watch", "--until-done", "--interval", "1s")
    assert len(json.loads((fleet.directory / "artifacts/sherlock/runs.json").read_text())["runs"]) == 3
