"""Who may log in to a process host besides the metadata's users: the accounts that `useradd` has made there.

What decides is what decides on a TPU VM, whose sshd asks PAM: `~/.ssh/authorized_keys` and the account's expiry. A
locked password alone keeps nobody out who has a key. All of it is written by the host's people, so what can't be read
gives no access.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tpufleet.emulator import standins_accounts
from tpufleet.emulator.accounts import USER
from tpufleet.emulator.standins_accounts import DAY_S, FIRST_PERSON, LAST_PERSON

NUMBER = re.compile(r"[0-9]{1,10}")
READ_AT_MOST = 1_000_000
OPTION = r'[A-Za-z0-9-]+(?:="(?:\\.|[^"\\])*")?'
LINE = re.compile(rf"(?:({OPTION}(?:,{OPTION})*)[ \t]+)?((?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]+)[ \t]+(\S+)(?:[ \t].*)?")
EXPIRY = re.compile(r'expiry-time="(\d{8})(?:(\d{4})(\d\d)?)?(Z?)"', re.IGNORECASE | re.ASCII)
# What this server never gives, so that it needn't be taken.
HARMLESS = frozenset(("no-agent-forwarding", "no-port-forwarding", "no-x11-forwarding", "no-user-rc"))


def lay_out(root: Path, operators: Iterable[str]) -> None:
    """The accounts that a host has from its boot on, so that nobody makes one of their name; those it has stay."""
    numbers = {"root": (0, 0)} | {name: (os.getuid(), os.getgid()) for name in operators if name != "root"}
    homes = {name: f"/home/{name}" for name in numbers} | {"root": "/root"}
    lines = {
        "passwd": [[name, "x", str(u), str(g), "", homes[name], "/bin/bash"] for name, (u, g) in numbers.items()],
        "group": [[name, "x", str(g), ""] for name, (_, g) in numbers.items()],
        "shadow": [[name, "*", "", "0", "99999", "7", "", "", ""] for name in numbers],
    }
    for file, wanted in lines.items():
        rows = [line.split(":") for line in _text(root / "etc" / file).splitlines()]
        known = {row[0] for row in rows}
        standins_accounts.write(root, file, [*rows, *(row for row in wanted if row[0] not in known)])


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    shell: str


def account(root: Path, name: str) -> Account | None:
    """The account of a person on the host; None for the operator, the system's accounts and nobody's."""
    row = next((row for row in _rows(root, "passwd", 7) if row[0] == name), None)
    if not row or not USER.fullmatch(name) or not NUMBER.fullmatch(row[2]):
        return None
    uid = int(row[2])
    return Account(name, uid, row[6]) if FIRST_PERSON <= uid < LAST_PERSON and uid != os.getuid() else None


def keys(root: Path, name: str, now: float) -> set[bytes]:
    """The public keys (SSH's binary form) with which a person may log in at the moment `now`."""
    if not account(root, name) or _is_over(root, name, now):
        return set()
    lines = _text(root / "home" / name / ".ssh/authorized_keys").splitlines()
    return {key for key in (_key(line.strip(), now) for line in lines) if key}


def _is_over(root: Path, name: str, now: float) -> bool:
    """Whether the account has expired; one without a line in shadow is closed, as PAM has it."""
    row = next((row for row in _rows(root, "shadow", 9) if row[0] == name), None)
    return row is None or (row[7] != "" and (not NUMBER.fullmatch(row[7]) or now // DAY_S >= int(row[7])))


def _key(line: str, now: float) -> bytes | None:
    """The key of a line of authorized_keys; None where there is none that opens the door now."""
    found = LINE.fullmatch(line)
    if not found:
        return None
    options, kind, body = found.groups()
    if not all(_allows(option, now) for option in re.findall(OPTION, options or "")):
        return None
    try:
        key = base64.b64decode(body, validate=True)
    except binascii.Error:
        return None
    return key if key[4 : 4 + len(kind)] == kind.encode() else None


def _allows(option: str, now: float) -> bool:
    if option.lower() in HARMLESS:
        return True
    found = EXPIRY.fullmatch(option)
    if not found:
        return False  # it may say that the key is good for less than we would give
    day, minute, second, utc = found.groups()
    try:
        until = datetime.strptime(f"{day}{minute or '0000'}{second or '00'}", "%Y%m%d%H%M%S")
        return now <= (until.replace(tzinfo=UTC) if utc else until).timestamp()
    except (ValueError, OverflowError):
        return False


def _rows(root: Path, file: str, fields: int) -> Iterator[list[str]]:
    rows = (line.split(":") for line in _text(root / "etc" / file).splitlines())
    return (row for row in rows if len(row) == fields)


def _text(path: Path) -> str:
    """What is in a regular file; nothing where there is none, or something that a read would wait for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return os.read(descriptor, READ_AT_MOST).decode(errors="replace")
    finally:
        os.close(descriptor)
