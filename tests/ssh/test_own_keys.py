"""A person's own key: every kind that OpenSSH makes, with a passphrase or without, and the trust their OpenSSH has."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ssh.servers import OpenSsh, Server
from tpufleet.config.load import load
from tpufleet.errors import HostKeyMismatch, UsageError
from tpufleet.paths import LocalPaths
from tpufleet.ssh.access import Access, access_to
from tpufleet.ssh.client import ParamikoDialer
from tpufleet.ssh.fanout import gather
from tpufleet.ssh.keys import ensure_key, public_line
from tpufleet.ssh.knownhosts import known_key

KINDS = {"ed25519": ["ed25519"], "ecdsa": ["ecdsa", "-b", "384"], "rsa": ["rsa", "-b", "2048"]}
CLOUD = "fleet: x\nnodes: [{name: tpu, accelerator: v2-8}]\n"
HOSTS = "fleet: x\ncloud: {provider: inventory, hosts: [{name: a, address: 192.0.2.7, accelerator: v2-8}]}\n"


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "", *more: str) -> str:
    """A new key of ssh-keygen's; gives its public line without the comment."""
    words = ["ssh-keygen", "-q", "-t", *KINDS[kind], "-N", passphrase, "-C", "me", *more, "-f", str(path)]
    subprocess.run(words, check=True)
    return path.with_name(path.name + ".pub").read_text().rpartition(" me")[0]


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An ssh-agent of one's own, without keys."""
    at = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(at)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()  # it says where it listens, when it does
        monkeypatch.setenv("SSH_AUTH_SOCK", str(at))
        yield at
        process.terminate()


def add_to_agent(key: Path, passphrase: str) -> None:
    ask = key.with_name("askpass")
    ask.write_text(f"#!/bin/sh\necho {passphrase}\n")
    ask.chmod(0o755)
    env = {**os.environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
    subprocess.run(["ssh-add", "-q", str(key)], env=env, check=True, stdin=subprocess.DEVNULL)


def own(server: Server, key: Path) -> ParamikoDialer:
    return ParamikoDialer(Access(server.user, key, own_key=True), server.trust)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_key_opens_the_door(server: Server, tmp_path: Path, kind: str) -> None:
    line = make_key(tmp_path / "own", kind)
    assert public_line(tmp_path / "own") == f"{line} tpufleet"
    server.authorized.write_text(line + "\n")
    with own(server, tmp_path / "own") as dialer:
        assert dialer.connect(server.host).run("echo in").stdout == b"in\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_with_a_passphrase_is_used_by_the_agent_that_holds_it(
    sshd: OpenSsh, tmp_path: Path, agent: Path, kind: str
) -> None:
    assert agent.exists()
    sshd.authorized.write_text(make_key(tmp_path / "own", kind, "a secret") + "\n")
    add_to_agent(tmp_path / "own", "'a secret'")
    hosts = [sshd.host] * 6
    with own(sshd, tmp_path / "own") as dialer:
        answers = gather(hosts, lambda host: dialer.connect(host).run("echo in").stdout)
    assert [answer.unwrap() for answer in answers] == [b"in\n"] * 6


def test_a_key_with_a_passphrase_that_no_agent_holds_says_what_to_type(
    sshd: OpenSsh, tmp_path: Path, agent: Path
) -> None:
    assert agent.exists()
    make_key(tmp_path / "own", "ed25519", "a secret")
    assert public_line(tmp_path / "own"), "its public half is readable all the same"
    with own(sshd, tmp_path / "own") as dialer, pytest.raises(UsageError, match="no running ssh-agent") as caught:
        dialer.connect(sshd.host)
    assert f"ssh-add {tmp_path}/own" in str(caught.value.hint)


def test_without_any_agent_the_same_is_said(sshd: OpenSsh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_key(tmp_path / "own", "ed25519", "a secret")
    for where in (None, str(tmp_path / "nobody")):
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        if where:
            monkeypatch.setenv("SSH_AUTH_SOCK", where)
        with own(sshd, tmp_path / "own") as dialer, pytest.raises(UsageError, match="has a passphrase"):
            dialer.connect(sshd.host)


def test_an_old_private_key_is_told_how_it_becomes_a_new_one(tmp_path: Path) -> None:
    make_key(tmp_path / "own", "rsa", "", "-m", "PEM")
    with pytest.raises(UsageError, match="no private key of OpenSSH's format") as caught:
        public_line(tmp_path / "own")
    assert f"ssh-keygen -p -f {tmp_path}/own" in str(caught.value.hint)


@pytest.mark.parametrize("content", [b"", b"\xff", b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n"])
def test_what_is_no_key_is_refused_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "own").write_bytes(content)
    (tmp_path / "own").chmod(0o600)
    with pytest.raises(UsageError, match="can't be used"):
        public_line(tmp_path / "own")
    assert (tmp_path / "own").read_bytes() == content


def test_a_key_that_others_can_read_is_refused_as_openssh_does(tmp_path: Path) -> None:
    make_key(tmp_path / "own", "ed25519", "")
    (tmp_path / "own").chmod(0o644)
    with pytest.raises(UsageError, match="can be read by others") as caught:
        public_line(tmp_path / "own")
    assert caught.value.hint == f"chmod 600 {tmp_path}/own"
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o644


# ---------------------------------------------------------------------------------------- which key a fleet file means


def access(directory: Path, text: str) -> Access:
    path = directory / "tpufleet.yaml"
    path.write_text(text)
    return access_to(load(path), LocalPaths(path, "x"))


def test_a_fleet_has_a_key_of_its_own_unless_the_file_names_one(tmp_path: Path) -> None:
    assert access(tmp_path, CLOUD).key == tmp_path / ".tpufleet" / "key"
    line = make_key(tmp_path / "own")
    named = access(tmp_path, CLOUD + "ssh: {key: own, jump: bastion}\n")
    assert (named.key, named.own_key, named.jump, named.given) == (tmp_path / "own", True, "bastion", False)
    assert named.key_line() == f"{line} tpufleet"


def test_a_tilde_is_the_persons_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    make_key(tmp_path / "home" / "own")
    assert access(tmp_path, CLOUD + "ssh: {key: ~/own}\n").key == tmp_path / "home" / "own"
    for wrong in ("~/other", "~nobody-of-that-name/own", "absent"):
        with pytest.raises(UsageError, match=r"ssh\.key"):
            access(tmp_path, CLOUD + f"ssh: {{key: {wrong}}}\n")


def test_an_inventory_is_entered_with_the_best_key_that_ssh_would_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    with pytest.raises(UsageError, match=r"none of id_ed25519, id_ecdsa, id_rsa in ~/\.ssh"):
        access(tmp_path, HOSTS)
    make_key(tmp_path / ".ssh" / "id_rsa", "rsa")
    assert access(tmp_path, HOSTS).key.name == "id_rsa"
    make_key(tmp_path / ".ssh" / "id_ed25519")
    assert access(tmp_path, HOSTS).key.name == "id_ed25519"


# ------------------------------------------------------------------------------------------------------- their trust


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_a_host_may_have_a_key_of_another_kind(sshd: OpenSsh, tmp_path: Path, kind: str) -> None:
    line = make_key(tmp_path / "host", kind)
    sshd.config.write_text(sshd.config.read_text().replace(str(sshd.host_key), str(tmp_path / "host")))
    with sshd.dialer() as dialer, pytest.raises(HostKeyMismatch, match="no ssh-ed25519 host key"):
        dialer.connect(sshd.host)
    sshd.trust.forget(sshd.host.identity)
    sshd.trust.pin(sshd.host.identity, line)
    with sshd.dialer() as dialer:
        assert dialer.connect(sshd.host).run("echo in").stdout == b"in\n"


def test_known_hosts_is_read_as_openssh_reads_it(tmp_path: Path) -> None:
    ed, rsa, ec = (make_key(tmp_path / kind, kind) for kind in ("ed25519", "rsa", "ecdsa"))
    file = tmp_path / "known_hosts"
    file.write_text(
        f"# a comment\n\nplain.example {rsa}\nplain.example {ed} root@plain\nodd.example,192.0.2.7 {ec}\n"
        f"[odd.example]:2222 {ed}\n*.wild.example {rsa}\nbroken ssh-ed25519 AAAA\n"
        f"gone.example {ed}\n@revoked gone.example {ed}\n@cert-authority ca.example {ed}\n"
    )

    def known(address: str, port: int = 22) -> str | None:
        return known_key(address, port, [tmp_path / "absent", file])

    for _ in range(2):
        assert known("plain.example") == ed, "the best of several"
        assert known("PLAIN.example") == ed
        assert (known("odd.example"), known("192.0.2.7"), known("odd.example", 2222)) == (ec, ec, ed)
        assert known("a.wild.example") == rsa
        absent = (("plain.example", 2222), ("nobody.example", 22), ("gone.example", 22), ("ca.example", 22))
        assert [known(*place) for place in (*absent, ("broken", 22))] == [None] * 5
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)  # now hashed


def test_without_openssh_nobody_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "known_hosts").write_text(f"plain.example {ensure_key(tmp_path / 'key')}\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert known_key("plain.example", 22, [tmp_path / "known_hosts"]) is None
