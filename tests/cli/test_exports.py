"""What a run leaves for other tools and for people who want to know how it was made, through the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import tpufleet
from tests.project import Project

CHANGE = 'for f in "$TPUFLEET_HOST_ROOT"/var/lib/tpufleet/code/*/trees/*/job.py; do echo "# by hand" >> "$f"; done'


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project.make(tmp_path / "project")
    yield project
    project.stop()


def test_versions_changes_and_everybody_s_formats_come_home(project: Project) -> None:
    project.run("create")
    project.run("exec", "--", "sh", "-c", CHANGE)
    project.run("run", "one", "--allow-dirty", "--follow")
    answer = project.json("collect", "--tensorboard")
    home = Path(answer["home"])
    record = json.loads((home / "runs/one/run.json").read_text())
    assert record["dirty"] is True
    assert record["versions"].keys() <= {"python", "numpy"}  # a shim of python3 may keep its own to itself
    assert "+# by hand\n" in (home / "runs/one/changes.diff").read_text()
    assert answer["exports"] == {"metrics": str(home / "metrics.parquet"), "tensorboard": str(home / "tensorboard")}

    events = EventAccumulator(str(home / "tensorboard/one"))
    events.Reload()
    losses = [(event.step, event.value) for event in events.Scalars("test_loss")]
    assert losses == [(1, 3.0), (2, 1.5), (3, 1.0)]
    results = tpufleet.load(project.directory / "artifacts")
    assert results.metrics[["step", "value"]].values.tolist() == [list(point) for point in losses]
    assert results.runs["last.test_loss"].tolist() == [1.0]
    assert results.notes == ()

    shutil.rmtree(home / "tensorboard")
    again = project.run("collect")
    assert "metrics: " in again.stdout
    assert not (home / "tensorboard").exists(), "only where it was asked for"
