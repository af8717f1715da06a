"""Where the contract runs: on the rehearsal cloud always, on Google Cloud for whoever has it.

    TPUFLEET_LIVE=1 TPUFLEET_LIVE_PROJECT=my-project TPUFLEET_LIVE_ZONE=us-central1-b make test ARGS=tests/live

`TPUFLEET_LIVE_TYPE` names another accelerator than v2-8, with one host. docs/google-cloud.md says what it costs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.project import Project
from tpufleet.cloud import tpu_api
from tpufleet.cloud.port import Cloud
from tpufleet.emulator import launch

LIVE = os.environ.get("TPUFLEET_LIVE") == "1"
WHY_NOT = "needs Google Cloud and costs money: TPUFLEET_LIVE=1"


@dataclass(frozen=True)
class Place:
    """A cloud to try things on; what takes a second on the rehearsal cloud takes minutes at Google."""

    name: str
    cloud: Cloud
    project: str
    zone: str
    accelerator: str
    patience_s: float

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """The first true value of `condition`; fails when none comes in time."""
        deadline = time.monotonic() + self.patience_s
        pause = 0.02
        while time.monotonic() < deadline:
            if value := condition():
                return value
            time.sleep(pause)
            pause = min(pause * 1.3, self.patience_s / 100)
        raise AssertionError(f"not within {self.patience_s:.0f} s: {what}")


@pytest.fixture(
    scope="module",
    params=["rehearsal", pytest.param("google", marks=pytest.mark.skipif(not LIVE, reason=WHY_NOT))],
)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if request.param == "google":
        yield _google()
    else:
        with _rehearsal(tmp_path_factory.mktemp("contract") / "emulator") as there:
            yield there


def _google() -> Place:
    project, zone = os.environ["TPUFLEET_LIVE_PROJECT"], os.environ["TPUFLEET_LIVE_ZONE"]
    kind = os.environ.get("TPUFLEET_LIVE_TYPE", "v2-8")
    return Place("google", tpu_api.google(project), project, zone, kind, patience_s=1800)


@contextmanager
def _rehearsal(directory: Path) -> Generator[Place]:
    at = launch.start(directory, create_seconds=0)
    try:
        cloud = tpu_api.rehearsal("rehearsal", at.url, at.ssh_port)
        yield Place("rehearsal", cloud, "rehearsal", "us-central1-b", "v2-8", patience_s=30)
    finally:
        launch.stop(directory)


@pytest.fixture(params=["rehearsal", pytest.param("google", marks=pytest.mark.skipif(not LIVE, reason=WHY_NOT))])
def fleet_there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    """A user's project on either cloud, with one node wanted that ends itself after two hours; all of it is deleted."""
    kind = os.environ.get("TPUFLEET_LIVE_TYPE", "v2-8") if request.param == "google" else "v2-8"
    project = Project.make(tmp_path / "project", accelerator=f"{kind}, ttl: 2h")
    if request.param == "google":
        file = project.directory / "tpufleet.yaml"
        rehearsal = "provider: emulator, emulator: {create_seconds: 0}"
        cloud = f"provider: gcp, project: {os.environ['TPUFLEET_LIVE_PROJECT']}"
        text = file.read_text()
        assert rehearsal in text
        text = text.replace(rehearsal, f"{cloud}, zones: [{os.environ['TPUFLEET_LIVE_ZONE']}]")
        file.write_text(text.replace("sherlock", "tpufleet-live"))
    try:
        yield project
    finally:
        proof = project.run("--json", "delete", "--yes", timeout=1800).json["proof"]
        project.stop()
        assert all(zone["nodes"] == 0 and zone["queued_resources"] == 0 for zone in proof)
