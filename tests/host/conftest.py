"""The shipped directory, and hosts that are cleaned up after."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tpufleet.host.places import Places, RunPlaces

from .harness import Host

PACKAGE = Path(__file__).resolve().parents[2] / "tpufleet"
MAIN = "from tpufleet.host.agent import main\n\nraise SystemExit(main())\n"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory as it is shipped: nothing of tpufleet but what the hosts need."""
    library = tmp_path_factory.mktemp("lib") / "0123abcd"
    (library / "tpufleet").mkdir(parents=True)
    for name in ("__init__.py", "restart.py", "publickey.py", "personkey.py"):
        shutil.copy(PACKAGE / name, library / "tpufleet" / name)
    shutil.copytree(PACKAGE / "host", library / "tpufleet/host", ignore=shutil.ignore_patterns("__pycache__"))
    (library / "__main__.py").write_text(MAIN)
    return library


@pytest.fixture
def make_host(tmp_path: Path, library: Path) -> Iterator[Callable[..., Host]]:
    """Makes hosts; whatever still runs on them at the end of the test is killed."""
    hosts: list[Host] = []

    def make(chips: int = 4) -> Host:
        hosts.append(Host(tmp_path / f"host-{len(hosts)}", library, chips))
        return hosts[-1]

    yield make
    for host in hosts:
        host.kill_everything()
        for log in (host.base / "queue.log", host.base / "agent.log"):
            assert not log.exists() or log.read_text() == ""


@pytest.fixture
def host(make_host: Callable[..., Host]) -> Host:
    """A host with four chips."""
    return make_host()


@pytest.fixture
def run(tmp_path: Path) -> RunPlaces:
    """The places of a run that nothing has been written to."""
    at = Places(tmp_path).run("gpt")
    at.dir.mkdir(parents=True)
    at.control.mkdir(parents=True)
    return at
