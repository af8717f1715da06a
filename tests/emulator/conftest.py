from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tpufleet.emulator.store import Store

from .rig import Rig, Shell
from .stage import Stage

names = (f"n{number}" for number in itertools.count())


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One emulator for all tests of this process that leave it running."""
    rig = Rig(tmp_path_factory.mktemp("shared"))
    yield rig
    rig.stop()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """An emulator of the test's own, to stop, kill and fill."""
    rig = Rig(tmp_path)
    yield rig
    rig.stop()


@pytest.fixture
def name() -> str:
    """A node id that no other test uses."""
    return next(names)


@pytest.fixture
def shell(shared: Rig, name: str) -> Iterator[Shell]:
    """OpenSSH's clients on a v2-8 of the test's own."""
    yield Shell(shared.config(shared.create(name)))
    shared.delete(name)


@pytest.fixture
def new_shell(shared: Rig, name: str) -> Callable[..., Shell]:
    """Makes a node as `Rig.create` does, and gives the clients for it."""

    def make(*arguments: Any, **fields: Any) -> Shell:
        return Shell(shared.config(shared.create(name, *arguments, **fields)))

    return make


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A keeper with counted hosts and a clock to step."""
    store = Store(tmp_path)
    yield Stage(store)
    store.release()
