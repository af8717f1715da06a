"""Servers and connections for the tests of SSH."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ssh.servers import SSHD, AsyncSsh, OpenSsh, Server
from tpufleet.ssh.port import Connection


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[OpenSsh]:
    """OpenSSH's own server."""
    if SSHD is None:
        pytest.skip("OpenSSH's sshd is not installed")
    server = OpenSsh(tmp_path)
    yield server
    server.stop()


@pytest.fixture(params=["openssh", "asyncssh"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """Each kind of server in turn."""
    if request.param == "openssh":
        yield request.getfixturevalue("sshd")
        return
    server = AsyncSsh(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    with server.dialer() as dialer:
        yield dialer.connect(server.host)
