"""A rehearsal cloud for other people's tests, as a pytest fixture.

    from tpufleet.testing import tpu_cloud  # the import is what makes the fixture known

    def test_my_launcher(tpu_cloud):
        subprocess.run(["my-launcher", "up"], env=os.environ | tpu_cloud.env, check=True)
        tpu_cloud.faults.preempt("tpu-0")

`tpu_cloud` is a cloud of the test's own; `shared_tpu_cloud` one for the whole session, where a test ends what it made.
Needs the extra `tpufleet[emulator]`. See docs/rehearsal.md.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tpufleet.emulator import launch
from tpufleet.emulator.environment import environment
from tpufleet.emulator.remote import Faults, Remote
from tpufleet.errors import UsageError

if TYPE_CHECKING:
    from google.cloud.tpu_v2 import TpuClient

__all__ = ["TpuCloud", "rehearsal", "shared_tpu_cloud", "tpu_cloud"]

PROJECT = "rehearsal"


@dataclass(frozen=True)
class TpuCloud:
    """A running rehearsal cloud: `url` is the API's, `ssh_port` that of every host, `directory` holds its state."""

    directory: Path
    url: str
    ssh_port: int
    project: str = PROJECT

    @property
    def env(self) -> dict[str, str]:
        """Variables for child processes: gcloud and tpufleet come to this cloud, nobody's own credentials are found.

        Google's Python clients know no variable for their endpoint: a program has to take `url` from somewhere.
        """
        return environment(self.url, self.project, self.directory) | {"TPUFLEET_EMULATOR": str(self.directory)}

    @functools.cached_property
    def client(self) -> TpuClient:
        """Google's own client, over REST."""
        from google.auth.credentials import AnonymousCredentials
        from google.cloud.tpu_v2 import TpuClient
        from google.cloud.tpu_v2.services.tpu.transports.rest import TpuRestTransport

        host = self.url.removeprefix("http://")
        return TpuClient(transport=TpuRestTransport(host=host, url_scheme="http", credentials=AnonymousCredentials()))

    def parent(self, zone: str) -> str:
        """`projects/P/locations/ZONE`, as the client's methods want it."""
        return f"projects/{self.project}/locations/{zone}"

    @property
    def faults(self) -> Faults:
        """What can be made to go wrong."""
        return Faults(Remote(self.url))

    def book(self) -> dict[str, Any]:
        """What the cloud saw: `calls` by method, `processes` by host, `nodes` with their `nodeSeconds`."""
        return Remote(self.url).book()

    def step(self, name: str) -> bool:
        """The node or queued resource goes on to its next state, in a cloud that was made `manual`."""
        return Remote(self.url).step(name)


@contextlib.contextmanager
def rehearsal(directory: Path, *, create_seconds: float = 0, manual: bool = False) -> Generator[TpuCloud]:
    """A cloud of `directory`, running as long as the block; for other set-ups than the fixtures'.

    Raises UsageError where the extra is missing, StateError when the cloud can't start.
    """
    missing = [module for module in ("asyncssh", "starlette", "uvicorn") if find_spec(module) is None]
    if missing:
        raise UsageError(
            f"the rehearsal cloud needs {', '.join(missing)}: pip install 'tpufleet[emulator]'",
            hint="pip install 'tpufleet[emulator]'",
        )
    running = launch.start(directory, create_seconds=create_seconds, with_us=True)
    try:
        Remote(running.url).configure(manual=manual)
        yield TpuCloud(directory.absolute(), running.url, running.ssh_port)
    finally:
        launch.stop(directory)


@pytest.fixture
def tpu_cloud(tmp_path: Path) -> Generator[TpuCloud]:
    """A rehearsal cloud of the test's own, empty; a node is READY as soon as its hosts are up."""
    with rehearsal(tmp_path / "tpu-cloud") as cloud:
        yield cloud


@pytest.fixture(scope="session")
def shared_tpu_cloud(tmp_path_factory: pytest.TempPathFactory) -> Generator[TpuCloud]:
    """A rehearsal cloud for all tests of the session (with pytest-xdist: of the worker)."""
    with rehearsal(tmp_path_factory.mktemp("tpu-cloud")) as cloud:
        yield cloud
