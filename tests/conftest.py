"""Fixtures that several folders use."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project import Project

# Under `nohup`, whatever the tests start would ignore a terminal that hangs up, too; behind a script's `&`, Ctrl-C.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project of its own, one v2-8 wanted, nothing created yet."""
    project = Project.make(tmp_path / "project")
    yield project
    project.stop()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project whose two nodes (eight chips) are up; shared by a module's tests."""
    project = Project.make(tmp_path_factory.mktemp("fleet") / "project", count=2)
    try:
        project.run("create")
        yield project
    finally:
        project.stop()
