"""Hosts behind a jump host: OpenSSH's own client carries the connection through OpenSSH's own server."""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ssh.servers import QUICK, SSHD, OpenSsh, Server, tcp_server
from tpufleet.errors import AccessRefused, HostKeyMismatch, Unreachable, UsageError
from tpufleet.ssh.client import ParamikoDialer
from tpufleet.ssh.fanout import gather
from tpufleet.ssh.keys import ensure_key
from tpufleet.ssh.openssh import config_text

pytestmark = pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="OpenSSH is not installed")


@pytest.fixture
def bastion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenSsh]:
    """A jump host that the person's own ssh knows as `bastion`."""
    (tmp_path / "bastion").mkdir()
    server = OpenSsh(tmp_path / "bastion")
    config = tmp_path / "person_config"
    config.write_text(
        f"Host bastion\n  HostName 127.0.0.1\n  Port {server.port}\n  User {server.user}\n"
        f"  IdentityFile {server.key}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {tmp_path / 'person_known_hosts'}\n  GlobalKnownHostsFile /dev/null\n"
    )
    (tmp_path / "person_known_hosts").write_text(f"[127.0.0.1]:{server.port} {server.host_line}\n")
    # ssh finds ~/.ssh/config through the password database: so a person's own file has to be named on its way
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
    (tmp_path / "bin" / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    yield server
    server.stop()


def _dialer(server: Server, *, jump: str = "bastion", quick: bool = False) -> ParamikoDialer:
    limits = {"limits": QUICK} if quick else {}
    return ParamikoDialer(server.access(jump=jump), server.trust, **limits)


def _children() -> set[str]:
    """The ssh programs that this thread's process has started and not yet buried."""
    listed = subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False
    ).stdout
    return {line.strip() for line in listed.splitlines() if line.split()[1:] == ["ssh"]}


def test_commands_run_on_a_host_behind_the_jump_host(server: Server, bastion: OpenSsh) -> None:
    with _dialer(server) as dialer:
        connection = dialer.connect(server.host)
        assert connection.run("cat", stdin=b"x" * 300_000).stdout == b"x" * 300_000
        assert connection.run("exit 7").exit_code == 7
    assert bastion.accepted == 1
    assert _children() == set(), "the ssh program ends with the connection"


def test_a_jump_host_may_be_named_with_user_and_port(sshd: OpenSsh, bastion: OpenSsh, tmp_path: Path) -> None:
    config = tmp_path / "person_config"
    config.write_text(config.read_text().replace("Host bastion\n  HostName 127.0.0.1", "Host 127.0.0.1"))
    config.write_text("".join(line for line in config.open() if "Port" not in line and "User " not in line))
    with _dialer(sshd, jump=f"{bastion.user}@127.0.0.1:{bastion.port}") as dialer:
        assert dialer.connect(sshd.host).run("echo in").stdout == b"in\n"


def test_twenty_hosts_at_once_get_through(sshd: OpenSsh, bastion: OpenSsh) -> None:
    hosts = [dataclasses.replace(sshd.host, identity=f"4711-w{worker}") for worker in range(20)]
    for host in hosts:
        sshd.trust.pin(host.identity, sshd.host_line)
    bastion.hang_up_on = 2
    with _dialer(sshd) as dialer:
        outcomes = gather(hosts, lambda host: dialer.connect(host).run("echo up").stdout)
    assert [outcome.unwrap() for outcome in outcomes] == [b"up\n"] * 20


def test_the_hosts_own_key_is_verified_behind_the_jump_host_too(
    sshd: OpenSsh, bastion: OpenSsh, tmp_path: Path
) -> None:
    assert bastion.port
    sshd.trust.forget(sshd.host.identity)
    sshd.trust.pin(sshd.host.identity, ensure_key(tmp_path / "other"))
    with _dialer(sshd) as dialer, pytest.raises(HostKeyMismatch, match="another machine"):
        dialer.connect(sshd.host)


def test_a_jump_host_that_does_not_know_the_person_is_named(sshd: OpenSsh, bastion: OpenSsh) -> None:
    bastion.authorized.write_text("")
    with _dialer(sshd) as dialer, pytest.raises(AccessRefused, match="bastion lets nobody through") as caught:
        dialer.connect(sshd.host)
    assert "Permission denied" in caught.value.message
    assert caught.value.where == "tpu-0-w0"
    assert "ssh -o BatchMode=yes bastion true" in str(caught.value.hint)


def test_a_jump_host_with_another_key_than_the_person_knows_is_named(
    sshd: OpenSsh, bastion: OpenSsh, tmp_path: Path
) -> None:
    other = ensure_key(tmp_path / "other")
    (tmp_path / "person_known_hosts").write_text(f"[127.0.0.1]:{bastion.port} {other}\n")
    with _dialer(sshd) as dialer, pytest.raises(AccessRefused, match="Host key verification failed"):
        dialer.connect(sshd.host)


def test_a_jump_host_that_nobody_knows_is_named(sshd: OpenSsh, bastion: OpenSsh) -> None:
    bastion.stop()
    with _dialer(sshd) as dialer, pytest.raises(Unreachable, match=r"jump host bastion: .*Connection refused"):
        dialer.connect(sshd.host)


def test_a_jump_host_that_hangs_up_every_time_is_unreachable(sshd: OpenSsh, bastion: OpenSsh) -> None:
    bastion.hang_up_on = 100
    with _dialer(sshd, quick=True) as dialer, pytest.raises(Unreachable, match="jump host bastion hung up"):
        dialer.connect(sshd.host)
    assert bastion.accepted > 1


def test_a_host_that_the_jump_host_cannot_reach_is_said(sshd: OpenSsh, bastion: OpenSsh) -> None:
    assert bastion.port
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    host = dataclasses.replace(sshd.host, port=port)
    with _dialer(sshd) as dialer, pytest.raises(Unreachable, match="bastion can't reach 127"):
        dialer.connect(host)


def test_a_host_that_never_answers_is_unreachable_when_the_time_is_over(sshd: OpenSsh, bastion: OpenSsh) -> None:
    assert bastion.port
    held: list[socket.socket] = []
    with tcp_server(held.append) as port:
        host = dataclasses.replace(sshd.host, port=port)
        dialer = ParamikoDialer(
            sshd.access(jump="bastion"), sshd.trust, limits=dataclasses.replace(QUICK, connect_s=2.0)
        )
        with dialer, pytest.raises(Unreachable, match="doesn't go on"):
            dialer.connect(host)
    assert _children() == set()


def test_a_jump_host_that_dies_is_noticed_and_the_way_is_made_anew(sshd: OpenSsh, bastion: OpenSsh) -> None:
    with _dialer(sshd, quick=True) as dialer:
        connection = dialer.connect(sshd.host)
        bastion.freeze()
        with pytest.raises(Unreachable):
            connection.run("true", timeout_s=None)
        assert dialer.connect(sshd.host).run("echo back").stdout == b"back\n"


def test_an_ssh_that_is_not_there_is_said(sshd: OpenSsh, bastion: OpenSsh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bastion.directory))
    with _dialer(sshd) as dialer, pytest.raises(UsageError, match="ssh can't be started"):
        dialer.connect(sshd.host)


def test_plain_ssh_takes_the_same_way(server: Server, bastion: OpenSsh, tmp_path: Path) -> None:
    config, known_hosts = tmp_path / "config", tmp_path / "known_hosts"
    known_hosts.write_text(server.trust.known_hosts([server.host]))
    config.write_text(config_text([server.host], server.access(jump="bastion"), server.trust, known_hosts))
    real = os.environ["PATH"].partition(":")[2]
    done = subprocess.run(
        [str(shutil.which("ssh", path=real)), "-F", str(config), "-o", "BatchMode=yes", "tpu-0", "echo hello"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (done.stdout, done.returncode) == ("hello\n", 0), done.stderr
    assert bastion.accepted == 1
