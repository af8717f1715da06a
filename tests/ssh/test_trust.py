"""Pinned host keys: strict parsing, a file that several processes write, and no silent change."""

from __future__ import annotations

import base64
import json
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.ssh.servers import Server
from tpufleet.errors import HostFault, HostKeyMismatch, StateError
from tpufleet.publickey import fingerprint, parse_public_key
from tpufleet.ssh.keys import ensure_key
from tpufleet.ssh.trust import Trust, alias


def _line(kind: str, *fields: bytes) -> str:
    blob = b"".join(struct.pack(">I", len(field)) + field for field in (kind.encode(), *fields))
    return f"{kind} {base64.b64encode(blob).decode()}"


ED25519 = _line("ssh-ed25519", bytes(range(32)))
OTHER = _line("ssh-ed25519", bytes(32))


@pytest.mark.parametrize("kind", [["ed25519"], ["ecdsa", "-b", "256"], ["ecdsa", "-b", "521"], ["rsa", "-b", "2048"]])
def test_keys_of_ssh_keygen_are_read_and_written_the_same(tmp_path: Path, kind: list[str]) -> None:
    path = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", *kind, "-N", "", "-C", "a comment", "-f", str(path)], check=True)
    line = path.with_suffix(".pub").read_text()
    key = parse_public_key(line)
    assert str(key) == line.rpartition(" a comment")[0]
    said = subprocess.run(["ssh-keygen", "-l", "-f", str(path)], check=True, capture_output=True, text=True).stdout
    assert fingerprint(key) == said.split()[1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ssh-ed25519",
        "ssh-dss AAAA",
        f"{ED25519}\n{OTHER}",
        f"{ED25519} comment\0",
        f'command="id" {ED25519}',
        ED25519[:-4],
        ED25519 + "=",
        ED25519.replace("AAAAC3", "AAAA C3"),
        ED25519.replace(" AAAA", " ÄAAA"),
        ED25519 + "AAAA",
        ED25519.replace("ssh-ed25519 ", "ssh-rsa "),
        _line("ssh-ed25519", bytes(31)),
        _line("ssh-ed25519", bytes(32), b"more"),
        _line("ecdsa-sha2-nistp256", b"nistp384", b"\4" + bytes(64)),
        _line("ecdsa-sha2-nistp256", b"nistp256", b"\2" + bytes(64)),
        _line("ssh-rsa", b"\1\0\1", b"\0" + b"\xff" * 128),
        _line("ssh-rsa", b"\4", b"\0" + b"\xff" * 256),
        _line("ssh-rsa", b"\1\0\1", b"\0\0" + b"\xff" * 256),
        _line("ssh-rsa", b"", b"\0" + b"\xff" * 256),
    ],
)
def test_what_is_no_sound_key_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="public key"):
        parse_public_key(text)


@given(st.text() | st.binary().map(lambda data: "ssh-ed25519 " + base64.b64encode(data).decode()))
def test_any_text_is_a_key_or_a_value_error(text: str) -> None:
    try:
        key = parse_public_key(text)
    except ValueError:
        return
    assert parse_public_key(str(key)) == key


def test_a_pinned_key_is_there_for_the_next_command(tmp_path: Path) -> None:
    Trust(tmp_path / "pins.json").pin("4711-w0", f"{ED25519} root@vm", node="tpu-0")
    assert str(Trust(tmp_path / "pins.json").get("4711-w0")) == ED25519
    assert Trust(tmp_path / "pins.json").get("4711-w1") is None
    pin = json.loads((tmp_path / "pins.json").read_text())["4711-w0"]
    assert (pin["key"], pin["node"]) == (ED25519, "tpu-0")
    assert pin["since"].endswith("Z")
    assert stat.S_IMODE((tmp_path / "pins.json").stat().st_mode) == 0o600


def test_another_key_never_takes_a_pinned_ones_place(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "pins.json")
    trust.pin("4711-w0", ED25519)
    trust.pin("4711-w0", ED25519)
    with pytest.raises(HostKeyMismatch, match="pinned already"):
        trust.pin("4711-w0", OTHER)
    assert str(trust.get("4711-w0")) == ED25519
    trust.forget("4711-w0")
    assert str(trust.pin("4711-w0", OTHER)) == OTHER


def test_a_host_key_that_is_too_weak_is_not_pinned(tmp_path: Path) -> None:
    with pytest.raises(HostFault, match="can't be used"):
        Trust(tmp_path / "pins.json").pin("4711-w0", _line("ssh-rsa", b"\1\0\1", b"\0" + b"\xff" * 128))


@pytest.mark.parametrize("content", ["", "[]", "{", '{"4711-w0": {"key": "ssh-ed25519 AAAA"}}', '{"4711-w0": 3}'])
def test_a_damaged_file_is_said_and_trusts_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / "pins.json").write_text(content)
    with pytest.raises(StateError, match="can't be read") as caught:
        Trust(tmp_path / "pins.json").get("4711-w0")
    assert "rm" in (caught.value.hint or "")


def _eight_at_once(script: str, *words: object) -> list[str]:
    """What eight processes say that run `script`, each with its number as the last argument."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script, *map(str, words), str(number)], stdout=subprocess.PIPE, text=True
        )
        for number in range(8)
    ]
    return [process.communicate(timeout=60)[0] for process in started]


def test_processes_that_pin_at_once_lose_no_key(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    pin = """
from pathlib import Path
from sys import argv
from tpufleet.ssh.trust import Trust
path, key, identity = argv[1:]
Trust(Path(path)).pin(identity, key)
"""
    _eight_at_once(pin, path, ED25519)
    assert all(str(Trust(path).get(str(number))) == ED25519 for number in range(8))


def test_known_hosts_names_machines_and_not_addresses(server: Server) -> None:
    text = server.trust.known_hosts([server.host])
    assert text == f"tpufleet-4711-w0 {parse_public_key(server.host_line)}\n"
    assert alias("a b\n*") == "tpufleet-a_b__"


def test_eight_processes_that_make_the_key_at_once_get_one_key(tmp_path: Path) -> None:
    make = "import pathlib, sys; from tpufleet.ssh.keys import ensure_key; print(ensure_key(pathlib.Path(sys.argv[1])))"
    made = _eight_at_once(make, tmp_path / "state" / "key")
    assert set(made) == {ensure_key(tmp_path / "state" / "key") + "\n"}
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["key"]


def test_the_fleets_key_is_openssh_s_own_kind_and_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "key"
    line = ensure_key(path)
    said = subprocess.run(["ssh-keygen", "-y", "-f", str(path)], check=True, capture_output=True, text=True).stdout
    assert line == f"{' '.join(said.split()[:2])} tpufleet"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    assert ensure_key(path) == line
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", b"\xff\xfe"])
def test_a_damaged_key_is_said_and_never_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(StateError, match="key"):
        ensure_key(path)
    assert path.read_bytes() == content
