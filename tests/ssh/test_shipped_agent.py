"""The agent over SSH: shipped once and whole, asked in one go, and every bad answer turned into one sentence."""

from __future__ import annotations

import os
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from tests.ssh.servers import Server
from tpufleet.errors import HostFault, StateError
from tpufleet.paths import remote_bundle
from tpufleet.ssh.agent import Agent, Bare
from tpufleet.ssh.bundle import Bundle, bundle, pack
from tpufleet.ssh.fanout import gather
from tpufleet.ssh.port import Connection, Result

ECHO = b"""
import json, sys
verb, ask = sys.argv[1], json.loads(sys.stdin.buffer.readline())
if verb == "fail":
    print(json.dumps({"error": ask})); sys.exit(1)
if verb == "raw":
    sys.stdout.write(ask["text"]); sys.stdout.flush(); sys.exit(ask.get("code", 0))
if verb == "until-eof":
    print("begun", flush=True); sys.stdin.read(); print("ended", flush=True); sys.exit(0)
if verb == "flood":
    sys.stdout.write("x" * (65 << 20)); sys.exit(0)
print(json.dumps({"verb": verb, "ask": ask, "preload": __import__("os").environ.get("LD_PRELOAD")}))
"""


def echo() -> Bundle:
    return pack({"__main__.py": ECHO})


@pytest.fixture
def agent(server: Server, connection: Connection) -> Agent:
    return Agent(connection, server.host, shipped=echo)


def _lib(server: Server) -> Path:
    return server.root / "var/lib/tpufleet/lib"


def test_a_bare_host_gets_the_agent_and_answers(server: Server, agent: Agent) -> None:
    assert agent.ask("hello", {"a": "ü"}) == {"verb": "hello", "ask": {"a": "ü"}, "preload": None}
    assert [path.name for path in _lib(server).iterdir()] == [echo().digest]
    assert _lib(server).stat().st_mode & 0o777 == 0o755
    assert (_lib(server) / echo().digest).stat().st_mode & 0o777 == 0o755


def test_an_agent_that_is_there_is_asked_in_one_command(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.ask("hello", {})
    monkeypatch.setattr(agent, "ship", lambda: pytest.fail("shipped again"))
    assert agent.ask("again", {})["verb"] == "again"


def test_a_dry_run_leaves_a_bare_host_bare(server: Server, agent: Agent) -> None:
    with pytest.raises(Bare):
        agent.ask("hello", {}, ship=False)
    with pytest.raises(Bare), agent.open("raw", {}):
        pass
    assert list(server.root.iterdir()) == []


def test_many_that_ship_at_once_agree(server: Server, connection: Connection) -> None:
    outcomes = gather(range(6), lambda n: Agent(connection, server.host, shipped=echo).ask("hello", {"n": n})["ask"])
    assert [outcome.unwrap() for outcome in outcomes] == [{"n": n} for n in range(6)]
    assert [path.name for path in _lib(server).iterdir()] == [echo().digest]


def test_another_version_lies_beside_the_first(server: Server, connection: Connection, agent: Agent) -> None:
    agent.ask("hello", {})
    other = pack({"__main__.py": b"print('{}')"})
    assert Agent(connection, server.host, shipped=lambda: other).ask("hello", {}) == {}
    assert {path.name for path in _lib(server).iterdir()} == {echo().digest, other.digest}


def test_the_agents_own_error_is_a_host_fault_of_its_kind(agent: Agent) -> None:
    with pytest.raises(HostFault) as caught:
        agent.ask("fail", {"kind": "disk-full", "message": "no room \x1b[31mat all\x07"})
    assert (caught.value.kind, caught.value.where) == ("disk-full", "tpu-0-w0")
    assert caught.value.message == "no room at all\\x07"


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("not json", 0), ("[1]", 0), ("{}", 3), ("[" * 100_000, 0), ("\x1b]0;x\x07", 1), ("{", 1)],
)
def test_what_is_no_answer_is_said_in_one_sentence(agent: Agent, text: str, code: int) -> None:
    with pytest.raises(HostFault, match=f"exit code {code}") as caught:
        agent.ask("raw", {"text": text, "code": code})
    assert caught.value.kind == "bad-answer"
    assert "\x1b" not in caught.value.message
    assert len(caught.value.message) < 400


def test_a_huge_answer_is_not_taken_in(agent: Agent) -> None:
    with pytest.raises(HostFault, match="longer than 64 MiB"):
        agent.ask("flood", {})


def test_a_stream_gives_the_bytes_and_keeps_stdin_open(agent: Agent) -> None:
    agent.ship()
    with agent.open("until-eof", {}) as stream:
        assert stream.readline(100) == b"begun\n"
        stream.close_stdin()
        assert stream.readline(100) == b"ended\n"
        assert stream.wait() == 0


@pytest.mark.parametrize(
    "text", ["", "plain\nlog", '{"error": "is what this job logs"}\nand more', '{"error": {"kind": 1}}']
)
def test_a_stream_of_anything_comes_as_it_is(agent: Agent, text: str) -> None:
    agent.ship()
    with agent.open("raw", {"text": text}) as stream:
        got = b""
        while piece := stream.read(7):
            got += piece
    assert got.decode() == text


def test_an_error_in_place_of_a_stream_is_raised(agent: Agent) -> None:
    agent.ship()
    with (
        pytest.raises(HostFault, match="no such run"),
        agent.open("fail", {"kind": "not-found", "message": "no such run"}),
    ):
        pass
    with pytest.raises(HostFault, match="exit code 1"), agent.open("raw", {"text": "", "code": 1}):
        pass


def test_a_file_is_uploaded_whole(server: Server, agent: Agent, tmp_path: Path) -> None:
    path = tmp_path / "code.bundle"
    path.write_bytes(os.urandom(3_000_000))
    told: list[int] = []
    agent.upload(path, remote_bundle("abc", "0" * 40), progress=told.append)
    there = server.root / "var/lib/tpufleet/code/abc/bundles" / f"{'0' * 40}.bundle"
    assert there.read_bytes() == path.read_bytes()
    assert [entry.name for entry in there.parent.iterdir()] == [there.name]
    assert sum(told) == 3_000_000


def test_a_cut_upload_leaves_nothing(
    server: Server, agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "code.bundle"
    path.write_bytes(b"whole")
    shorter = tmp_path / "shorter"
    shorter.write_bytes(b"who")
    send = agent._connection.send_file
    monkeypatch.setattr(agent._connection, "send_file", lambda command, _path, **_: send(command, shorter))
    with pytest.raises(HostFault, match="cut"):
        agent.upload(path, remote_bundle("abc", "0" * 40))
    assert list((server.root / "var/lib/tpufleet/code/abc/bundles").iterdir()) == []
    with pytest.raises(StateError):
        agent.upload(tmp_path / "absent", remote_bundle("abc", "0" * 40))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_said_as_such(server: Server, agent: Agent) -> None:
    bin_ = server.directory / "bin"
    bin_.mkdir()
    tar = bin_ / "tar"
    tar.write_text("#!/bin/sh\nexec cat /proc/self/maps > /dev/full\n")
    tar.chmod(0o755)
    base = f'"${{TPUFLEET_HOST_ROOT-}}"/var/lib/tpufleet; PATH={bin_}:$PATH'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tpufleet.ssh.agent.REMOTE_BASE", base)
        with pytest.raises(HostFault, match="disk is full") as caught:
            agent.ship()
    assert caught.value.kind == "disk-full"
    assert list(_lib(server).iterdir()) == []


def test_without_sudo_the_administrators_command_is_told(server: Server, agent: Agent) -> None:
    refuse = 'sudo() { echo "sudo: a password is required" >&2; return 1; }'
    base = f"/nowhere; id() {{ echo holmes; }}; mkdir() {{ return 1; }}; {refuse}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tpufleet.ssh.agent.REMOTE_BASE", base)
        with pytest.raises(HostFault, match="sudo: a password is required") as caught:
            agent.ship()
    assert caught.value.kind == "no-base"
    assert "d /var/lib/tpufleet 0755 holmes\\nd /run/tpufleet" in str(caught.value.hint)
    assert "sudo systemd-tmpfiles --create" in str(caught.value.hint)
    assert list(server.root.iterdir()) == []


def test_a_lease_that_sudo_refuses_is_told_the_same(agent: Agent) -> None:
    said = "cannot make /run/tpufleet/leases with sudo: sudo: a password is required"
    with pytest.raises(HostFault) as caught:
        agent.ask("fail", {"kind": "internal", "message": said})
    assert "f /run/tpufleet/leases/chip-%d.lock 0666" in str(caught.value.hint)


def test_the_bundle_is_the_same_every_time_and_holds_the_host_side_only() -> None:
    first = bundle()
    bundle.cache_clear()
    assert bundle() == first
    assert len(first.digest) == 16
    with tarfile.open(fileobj=BytesIO(first.tar)) as tar:
        names = tar.getnames()
        assert {entry.mtime for entry in tar.getmembers()} == {0}
    assert {"__main__.py", "tpufleet/__init__.py", "tpufleet/restart.py", "tpufleet/host/agent.py"} <= set(names)
    assert all(name.count("/") < 2 or name.startswith("tpufleet/host/") for name in names)


def test_the_digest_follows_names_and_contents() -> None:
    digests = {pack(files).digest for files in ({"a": b"b"}, {"a": b"c"}, {"b": b"b"}, {"a": b"", "b": b"b"})}
    assert len(digests) == 4
    assert pack({"a": b"1", "b": b"2"}) == pack({"b": b"2", "a": b"1"})


def test_the_shipped_agent_itself_runs_and_says_what_it_does_not_know(server: Server, connection: Connection) -> None:
    agent = Agent(connection, server.host)
    with pytest.raises(HostFault, match="no verb") as caught:
        agent.ask("dance", {})
    assert caught.value.kind == "bad-request"


@pytest.mark.parametrize("verb", ["accounts", "probe"])
def test_what_only_root_may_do_is_asked_through_sudo_and_nothing_else_is(
    agent: Agent, connection: Connection, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    commands: list[str] = []

    def refused(command: str, **_: object) -> Result:
        commands.append(command)
        return Result(1, b"", b"sudo: a password is required\n") if "sudo -n env" in command else Result(0, b"{}", b"")

    monkeypatch.setattr(connection, "run", refused)
    for ask in (agent.ask, agent.ship_and_ask):
        if verb == "probe":
            assert ask(verb, {}) == {}
            continue
        with pytest.raises(HostFault, match="sudo: a password is required") as caught:
            ask(verb, {})
        assert caught.value.kind == "no-sudo"
        assert "use sudo without a password" in str(caught.value.hint)
    assert len(commands) == 2
