"""`tpufleet doctor` reads the logs of runs in trouble, and knows what TPU programs say there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project import Project

JOBS = """\
  xla:
    command: [sh, -c, "echo 'RuntimeError: xla_client.cc:274 : Missing XLA configuration'; exit 1"]
    grid: {seed: [0, 1]}
    retries: 0
  fine: {command: [sh, -c, "echo 'RuntimeError: Missing XLA configuration, it was; mended'"]}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Project]:
    project = Project.make(tmp_path / "project", jobs=JOBS)
    try:
        project.run("create", "--yes")
        yield project
    finally:
        project.stop()


def test_what_failed_runs_said_is_explained_once_with_what_mends_it(fleet: Project) -> None:
    assert fleet.run("run", "xla", "--follow", ok=False).exit_code == 7
    fleet.run("run", "fine", "--follow")
    done = fleet.run("--json", "doctor", ok=False)
    told = json.loads(done.stdout.splitlines()[0])
    (finding,) = [item for item in told["findings"] if "troubleshooting" in item["text"]]
    assert finding["check"] == "xla-seed0, xla-seed1"
    assert finding["text"].endswith("(docs/troubleshooting.md#missing-xla-configuration)")
    assert "tpufleet run or on-chip" in finding["fix"]
    assert not told["ok"]


def test_the_report_of_a_failed_run_says_what_its_log_means_and_what_mends_it(fleet: Project) -> None:
    fleet.run("run", "xla", "--follow", ok=False)
    fleet.run("run", "fine", "--follow")
    fleet.run("collect", ok=False)
    report = fleet.directory / "artifacts/sherlock/report"
    page = (report / "index.html").read_text()
    worth_knowing = page.split("Worth knowing")[1].split("</aside>")[0]
    assert "Its log says that the program looks for a TPU by variables" in worth_knowing
    assert "start it by tpufleet run or on-chip" in worth_knowing
    assert worth_knowing.count("docs/troubleshooting.md#missing-xla-configuration") == 1, "said once for both runs"
    assert "fine" not in worth_knowing
    assert page.count("What its log says, and what mends it") == 3, "with each run, also the one that is done"
    assert "start it by tpufleet run or on-chip" in (report / "index.md").read_text()
