"""Which lines of a person's authorized_keys let them into a process host, and until when."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tpufleet.emulator.accounts_people import keys


def entered(root: Path, line: str, moment: str) -> bool:
    """Whether ada comes in by this line of her authorized_keys at that moment."""
    (root / "home/ada/.ssh/authorized_keys").write_text(f"{line}\n")
    return bool(keys(root, "ada", datetime.fromisoformat(moment).timestamp()))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A host's root with ada's account; its clock is in New York."""
    (tmp_path / "home/ada/.ssh").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("ada:x:20000:20000::/home/ada:/bin/bash\n")
    (tmp_path / "etc/shadow").write_text("ada:*:20000:0:99999:7:::\n")
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield tmp_path
    time.tzset()


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINklI429uhwHw2YCOZYiBPY8DUSXh+KwsTXZEQB5a4Lp"


@pytest.mark.parametrize(
    ("options", "last"),
    [
        ('expiry-time="20261121183000Z"', "2026-11-21T18:30:00Z"),
        ('expiry-time="202611211830Z"', "2026-11-21T18:30:00Z"),
        ('expiry-time="20261121133000"', "2026-11-21T18:30:00Z"),
        ('expiry-time="202611211330"', "2026-11-21T18:30:00Z"),
        ('expiry-time="20261121"', "2026-11-21T05:00:00Z"),
        ('Expiry-Time="20261121Z",no-port-forwarding', "2026-11-21T00:00:00Z"),
        ('expiry-time="20261121Z",expiry-time="20270101Z"', "2026-11-21T00:00:00Z"),
    ],
)
def test_an_expiry_time_is_local_or_with_z_of_utc(root: Path, options: str, last: str) -> None:
    after = (datetime.fromisoformat(last) + timedelta(seconds=1)).isoformat()
    assert entered(root, f"{options} {KEY}", last)
    assert not entered(root, f"{options} {KEY}", after)


@pytest.mark.parametrize(
    "line",
    [
        f'command="date" {KEY}',
        f'from="10.0.0.1" {KEY}',
        f'expiry-time="20991301" {KEY}',
        f'expiry-time="tomorrow" {KEY}',
        f'expiry-time="20990101 {KEY}',
        f"expiry-time=20990101 {KEY}",
        KEY[:-1],
        KEY.replace("ssh-ed25519", "ssh-rsa"),
        KEY.replace("AAAAC3", "ssh-ed25519 AAAAC3"),
        f"cert-authority {KEY}",
        f"#{KEY}",
        "ssh-ed25519",
        "",
    ],
)
def test_a_line_that_cannot_be_read_or_honoured_lets_nobody_in(root: Path, line: str) -> None:
    assert not entered(root, line, "2026-11-21T00:00:00Z")
    assert entered(root, f"{line}\n{KEY} ada@laptop", "2026-11-21T00:00:00Z")


def test_what_is_in_the_place_of_a_file_never_holds_up_the_server(root: Path) -> None:
    place = root / "home/ada/.ssh/authorized_keys"
    os.mkfifo(place)
    assert keys(root, "ada", 0) == set()
    place.unlink()
    place.mkdir()
    assert keys(root, "ada", 0) == set()
    (root / "etc/shadow").unlink()
    os.mkfifo(root / "etc/shadow")
    assert keys(root, "ada", 0) == set()
