"""The configuration for OpenSSH's own programs, tried with OpenSSH's own client."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.ssh.servers import Server
from tpufleet.errors import HostFault, StateError
from tpufleet.names import HostName
from tpufleet.ssh.keys import ensure_key
from tpufleet.ssh.openssh import config_text

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="OpenSSH's client is not installed")


def _write(server: Server, directory: Path) -> Path:
    """The config of a fleet that lies in a directory with an awkward name."""
    directory.mkdir()
    key, known_hosts, config = (directory / name for name in ("key", "known_hosts", "config"))
    shutil.copy(server.key, key)
    known_hosts.write_text(server.trust.known_hosts([server.host]))
    config.write_text(config_text([server.host], server.access(key=key), server.trust, known_hosts))
    return config


def _ssh(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["ssh", "-F", str(config), "-o", "BatchMode=yes", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@needs_ssh
@pytest.mark.parametrize("name", ["tpu-0", "tpu-0-w0"])
def test_plain_ssh_reaches_a_host_by_both_its_names(server: Server, tmp_path: Path, name: str) -> None:
    config = _write(server, tmp_path / "my fleet's 100% $HOME ü #1")
    done = _ssh(config, name, "echo hello")
    assert (done.stdout, done.returncode) == ("hello\n", 0), done.stderr


@needs_ssh
def test_plain_ssh_refuses_another_machines_key(server: Server, tmp_path: Path) -> None:
    server.trust.forget(server.host.identity)
    server.trust.pin(server.host.identity, ensure_key(tmp_path / "other"))
    done = _ssh(_write(server, tmp_path / "fleet"), "tpu-0", "echo hello")
    assert done.stdout == ""
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


@needs_ssh
def test_plain_ssh_refuses_a_host_whose_key_is_unknown_and_learns_nothing(server: Server, tmp_path: Path) -> None:
    server.trust.forget(server.host.identity)
    config = _write(server, tmp_path / "fleet")
    done = _ssh(config, "tpu-0", "echo hello")
    assert (done.stdout, done.returncode) == ("", 255)
    assert config.with_name("known_hosts").read_text() == ""


def test_a_hosts_block_says_everything_that_matters(server: Server) -> None:
    text = config_text([server.host], server.access(key=Path("/fleet/key")), server.trust, Path("/fleet/known_hosts"))
    for line in (
        "StrictHostKeyChecking yes",
        "IdentitiesOnly yes",
        "HostKeyAlias tpufleet-4711-w0",
        "UpdateHostKeys no",
    ):
        assert f"  {line}\n" in text


def test_a_node_of_several_hosts_is_not_one_of_them(server: Server) -> None:
    other = dataclasses.replace(server.host, name=HostName("tpu-0-w1"), worker=1)
    text = config_text([server.host, other], server.access(), server.trust, Path("/known_hosts"))
    assert [line for line in text.splitlines() if line.startswith("Host ")] == ["Host tpu-0-w0", "Host tpu-0-w1"]


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "${HOME}"])
def test_a_path_that_openssh_cannot_read_is_refused(server: Server, name: str) -> None:
    with pytest.raises(StateError, match="directory"):
        config_text([server.host], server.access(key=Path("/") / name / "key"), server.trust, Path("/known_hosts"))


@pytest.mark.parametrize("address", ["", "-oProxyCommand=id", "a b", "a\nProxyCommand id", "%h"])
def test_an_impossible_address_is_refused(server: Server, address: str) -> None:
    host = dataclasses.replace(server.host, address=address)
    with pytest.raises(HostFault, match="address"):
        config_text([host], server.access(), server.trust, Path("/known_hosts"))
