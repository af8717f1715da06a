"""Who is let in and whom we talk to: host keys, the fleet's key, servers that refuse, drop or never answer."""

from __future__ import annotations

import dataclasses
import logging
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.ssh.servers import QUICK, OpenSsh, Server, eventually, tcp_server
from tpufleet.errors import AccessRefused, HostFault, HostKeyMismatch, StateError, Unreachable
from tpufleet.model import Host
from tpufleet.publickey import fingerprint, parse_public_key
from tpufleet.ssh.fanout import gather
from tpufleet.ssh.keys import ensure_key

SOON = dataclasses.replace(QUICK, connect_s=0.5)


def _at(server: Server, port: int) -> Host:
    return dataclasses.replace(server.host, port=port)


def test_a_host_has_one_connection_per_command(sshd: OpenSsh) -> None:
    with sshd.dialer() as dialer:
        first = dialer.connect(sshd.host)
        assert dialer.connect(sshd.host) is first
        assert sshd.accepted == 1


def test_a_connection_that_died_is_made_anew(sshd: OpenSsh) -> None:
    with sshd.dialer() as dialer:
        first = dialer.connect(sshd.host)
        first.close()
        assert dialer.connect(sshd.host).run("echo back").stdout == b"back\n"


def test_leaving_the_dialer_closes_its_connections(sshd: OpenSsh) -> None:
    with sshd.dialer() as dialer:
        connection = dialer.connect(sshd.host)
    with pytest.raises(Unreachable):
        connection.run("true")


def test_twenty_connections_at_once_work(sshd: OpenSsh) -> None:
    hosts = [dataclasses.replace(sshd.host, identity=f"4711-w{worker}") for worker in range(20)]
    for host in hosts:
        sshd.trust.pin(host.identity, sshd.host_line)
    with sshd.dialer() as dialer:
        outcomes = gather(hosts, lambda host: dialer.connect(host).run("echo up").stdout)
    assert [outcome.unwrap() for outcome in outcomes] == [b"up\n"] * 20


def test_another_machines_host_key_refuses(server: Server, tmp_path: Path) -> None:
    other = ensure_key(tmp_path / "other")
    server.trust.forget(server.host.identity)
    server.trust.pin(server.host.identity, other)
    with server.dialer() as dialer, pytest.raises(HostKeyMismatch) as caught:
        dialer.connect(server.host)
    assert fingerprint(parse_public_key(other)) in caught.value.message
    assert fingerprint(parse_public_key(server.host_line)) in caught.value.message
    assert caught.value.where == "tpu-0-w0"
    assert "tpufleet delete tpu-0" in (caught.value.hint or "")


def test_a_server_without_a_key_of_the_pinned_type_refuses(sshd: OpenSsh) -> None:
    ecdsa = sshd.directory / "ecdsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(ecdsa)], check=True)
    sshd.config.write_text(sshd.config.read_text().replace(str(sshd.host_key), str(ecdsa)))
    with sshd.dialer() as dialer, pytest.raises(HostKeyMismatch, match="no ssh-ed25519 host key"):
        dialer.connect(sshd.host)


def test_the_pinned_key_counts_even_where_the_server_has_others(sshd: OpenSsh) -> None:
    ecdsa = sshd.directory / "ecdsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(ecdsa)], check=True)
    sshd.config.write_text(f"HostKey {ecdsa}\n{sshd.config.read_text()}")
    with sshd.dialer() as dialer:
        assert dialer.connect(sshd.host).run("true").exit_code == 0


def test_an_unknown_host_key_is_never_accepted(server: Server) -> None:
    server.trust.forget(server.host.identity)
    with server.dialer() as dialer, pytest.raises(HostKeyMismatch, match="not known"):
        dialer.connect(server.host)


def test_an_unknown_key_is_refused(server: Server, tmp_path: Path) -> None:
    ensure_key(tmp_path / "stranger")
    with server.dialer(key=tmp_path / "stranger") as dialer, pytest.raises(AccessRefused, match="accept"):
        dialer.connect(server.host)


def test_an_unknown_user_is_refused(sshd: OpenSsh) -> None:
    with sshd.dialer(user="nobody-of-that-name") as dialer, pytest.raises(AccessRefused, match="nobody-of-that-name"):
        dialer.connect(sshd.host)


def test_a_key_that_is_none_is_said(server: Server, tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("no key\n")
    for path in (tmp_path / "broken", tmp_path / "absent"):
        with server.dialer(key=path) as dialer, pytest.raises(StateError, match="key"):
            dialer.connect(server.host)


def test_a_closed_port_is_unreachable_at_once(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with server.dialer() as dialer, pytest.raises(Unreachable, match="nothing listens"):
        dialer.connect(_at(server, port))


def test_a_server_that_never_answers_is_unreachable_when_the_time_is_over(server: Server) -> None:
    held: list[socket.socket] = []
    with tcp_server(held.append) as port, server.dialer(limits=SOON) as dialer:
        begun = time.monotonic()
        with pytest.raises(Unreachable, match="doesn't go on"):
            dialer.connect(_at(server, port))
        assert time.monotonic() - begun < 4
    eventually(lambda: len(held) == 1)


def test_a_server_that_stops_after_its_banner_is_unreachable_too(server: Server) -> None:
    held: list[socket.socket] = []

    def greet(connection: socket.socket) -> None:
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        held.append(connection)

    with (
        tcp_server(greet) as port,
        server.dialer(limits=SOON) as dialer,
        pytest.raises(Unreachable, match="doesn't go on"),
    ):
        dialer.connect(_at(server, port))


def test_something_other_than_ssh_is_said_without_its_control_characters(server: Server) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(b"SSH-9.9\x1b]0;title\x07-x\r\n")

    with tcp_server(answer) as port, server.dialer() as dialer, pytest.raises(HostFault, match="SSH server") as caught:
        dialer.connect(_at(server, port))
    assert "\x1b" not in caught.value.message


def test_being_turned_away_is_tried_again(sshd: OpenSsh) -> None:
    sshd.hang_up_on = 3
    with sshd.dialer() as dialer:
        assert dialer.connect(sshd.host).run("echo in").stdout == b"in\n"
    assert sshd.accepted == 4


def test_being_turned_away_every_time_is_unreachable(sshd: OpenSsh) -> None:
    sshd.hang_up_on = 100
    with sshd.dialer(limits=SOON) as dialer, pytest.raises(Unreachable, match="hung up"):
        dialer.connect(sshd.host)
    assert sshd.accepted > 1


def test_no_failure_leaves_a_traceback_on_stderr(sshd: OpenSsh, capfd: pytest.CaptureFixture[str]) -> None:
    sshd.hang_up_on = 100
    with sshd.dialer(limits=SOON) as dialer, pytest.raises(Unreachable):
        dialer.connect(sshd.host)
    assert capfd.readouterr() == ("", "")
    assert not logging.getLogger("paramiko.transport").isEnabledFor(logging.CRITICAL)


def test_the_algorithms_are_the_fast_and_sound_ones(sshd: OpenSsh) -> None:
    sshd.config.write_text(sshd.config.read_text() + "LogLevel DEBUG\n")
    with sshd.dialer() as dialer:
        dialer.connect(sshd.host).run("true")
    log = (sshd.directory / "sshd.log").read_text()
    assert "kex: algorithm: curve25519-sha256@libssh.org" in log
    assert "kex: client->server cipher: aes128-gcm@openssh.com" in log
    offered = "".join(line for line in log.splitlines() if "proposal" in line)
    assert not any(weak in offered for weak in ("-cbc", "hmac-sha1", "hmac-md5"))


def test_paramiko_is_imported_with_the_first_connection_only() -> None:
    modules = ["client", "agent", "fanout", "keys", "openssh", "port", "trust"]
    script = "; ".join(f"import tpufleet.ssh.{name}" for name in modules)
    check = f"{script}; import sys; sys.exit('paramiko' in sys.modules or 'cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False, timeout=60).returncode == 0
