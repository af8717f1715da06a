"""`useradd` and `usermod` of an emulated host: they keep etc/passwd, etc/shadow and etc/group below the host's root.

This file is installed on the host as both programs, so it needs nothing but Python's standard library (3.10), and
decides by its name. Options that it doesn't know are refused, as an option that doesn't exist. What a real one says,
and its exit codes: https://manpages.debian.org/bookworm/passwd/useradd.8.en.html and usermod.8.
"""

from __future__ import annotations

import calendar
import contextlib
import fcntl
import getopt
import os
import re
import sys
import time
from collections.abc import Generator
from pathlib import Path

USAGE, BAD_ARGUMENT, UID_TAKEN, NO_SUCH, NAME_TAKEN = 2, 3, 4, 6, 9  # the real ones' exit codes
FIRST_PERSON, LAST_PERSON = 1000, 60000
NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
MODES = {"passwd": 0o644, "group": 0o644, "shadow": 0o640}
DAY_S = 86400
LOCKED = "!"  # in front of a password; alone it is the password of who has none
USERADD = {
    "uid": "u:", "gid": "g:", "user-group": "U", "no-user-group": "N", "create-home": "m", "no-create-home": "M",
    "home-dir": "d:", "shell": "s:", "password": "p:", "comment": "c:", "expiredate": "e:", "skel": "k:",
    "no-log-init": "l",
}  # fmt: skip
USERMOD = {"lock": "L", "unlock": "U", "expiredate": "e:", "shell": "s:", "password": "p:", "comment": "c:"}

Row = list[str]  # the fields of a line


class Refused(Exception):
    """What is wanted can't be done: the program's exit code and what it says."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def read(root: Path, file: str) -> list[Row]:
    """The lines of a file of the host's /etc, `passwd` for instance; none where there is no such file."""
    path = root / "etc" / file
    return [line.split(":") for line in path.read_text().splitlines()] if path.exists() else []


def write(root: Path, file: str, rows: list[Row]) -> None:
    aside = root / "etc" / f"{file}+"  # as the real ones call it
    aside.write_text("".join(f"{':'.join(row)}\n" for row in rows))
    aside.chmod(MODES[file])
    aside.replace(root / "etc" / file)


def row_of(rows: list[Row], name: str) -> Row | None:
    return next((row for row in rows if row[0] == name), None)


@contextlib.contextmanager
def alone(root: Path) -> Generator[None, None, None]:
    """Nobody else changes the accounts meanwhile."""
    with (root / "etc/.pwd.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def add_row(root: Path, file: str, row: Row) -> None:
    write(root, file, [*read(root, file), row])


def useradd(root: Path, name: str, options: dict[str, str]) -> None:
    """Makes the account; a home, if one is wanted, before the account is there to be used."""
    passwd, group = read(root, "passwd"), read(root, "group")
    if not NAME.fullmatch(name):
        raise Refused(BAD_ARGUMENT, f"invalid user name '{name}': use --badname to ignore")
    if row_of(passwd, name):
        raise Refused(NAME_TAKEN, f"user '{name}' already exists")
    own_group = "gid" not in options and "no-user-group" not in options
    if own_group and row_of(group, name):
        raise Refused(NAME_TAKEN, f"group {name} exists - if you want to add this user to that group, use -g.")
    uids = _numbers(passwd)
    uid = _number(options["uid"], "user") if "uid" in options else _free(uids, FIRST_PERSON)
    if uid in uids:
        raise Refused(UID_TAKEN, f"UID {uid} is not unique")
    gids = _numbers(group)
    gid = _free(gids, uid) if own_group else _gid(group, options.get("gid", "100"))
    home = _inside(root, _text(options.get("home-dir", f"/home/{name}"), "home directory"))
    shell, comment = _text(options.get("shell", "/bin/sh"), "shell"), _text(options.get("comment", ""), "comment")
    password = _text(options.get("password", LOCKED), "password")
    expires = _day(options.get("expiredate", ""))
    if "create-home" in options and "no-create-home" not in options:
        _make_home(root / home.lstrip("/"), root / _inside(root, options.get("skel", "/etc/skel")).lstrip("/"))
    add_row(root, "passwd", [name, "x", str(uid), str(gid), comment, home, shell])
    add_row(root, "shadow", [name, password, str(int(time.time()) // DAY_S), "0", "99999", "7", "", expires, ""])
    if own_group:
        add_row(root, "group", [name, "x", str(gid), ""])


def usermod(root: Path, name: str, options: dict[str, str]) -> None:
    passwd, shadow = read(root, "passwd"), read(root, "shadow")
    account = row_of(passwd, name)
    if not account:
        raise Refused(NO_SUCH, f"user '{name}' does not exist")
    secret = row_of(shadow, name)
    if secret is None:  # a useradd that was killed
        secret = [name, LOCKED, "", "0", "99999", "7", "", "", ""]
        shadow.append(secret)
    account[4] = _text(options.get("comment", account[4]), "comment")
    account[6] = _text(options.get("shell", account[6]), "shell")
    secret[1] = _text(options.get("password", secret[1]), "password")
    secret[7] = _day(options["expiredate"]) if "expiredate" in options else secret[7]
    if "lock" in options and not secret[1].startswith(LOCKED):
        secret[1] = LOCKED + secret[1]
    if "unlock" in options:
        if secret[1] == LOCKED:
            _say("unlocking the user's password would result in a passwordless account.")
            _say("You should set a password with usermod -p to unlock this user's password.")
        secret[1] = secret[1].removeprefix(LOCKED) or LOCKED
    write(root, "passwd", passwd)
    write(root, "shadow", shadow)


def _numbers(rows: list[Row]) -> set[int]:
    """The uids or gids that are taken."""
    return {int(row[2]) for row in rows if len(row) > 2 and row[2].isdigit()}


def _number(text: str, kind: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 2**32 - 1):
        raise Refused(BAD_ARGUMENT, f"invalid {kind} ID '{text}'")
    return int(text)


def _free(taken: set[int], wish: int) -> int:
    return next(number for number in (wish, *range(FIRST_PERSON, LAST_PERSON)) if number not in taken)


def _gid(groups: list[Row], wanted: str) -> int:
    found = [row for row in groups if wanted in row[:1] + row[2:3]]
    if not found:
        raise Refused(NO_SUCH, f"group '{wanted}' does not exist")
    return int(found[0][2])


def _text(value: str, what: str) -> str:
    """`value`, if it can be a field of a line."""
    if any(letter == ":" or ord(letter) < 32 for letter in value):
        raise Refused(BAD_ARGUMENT, f"invalid {what} '{value}'")
    return value


def _inside(root: Path, place: str) -> str:
    """A directory as it is called on the host, also where somebody says how the emulator calls it."""
    if not place.startswith("/") or ".." in Path(place).parts:
        raise Refused(BAD_ARGUMENT, f"invalid home directory '{place}'")
    path = Path(place)
    return f"/{path.relative_to(root)}" if path.is_relative_to(root) else place


def _day(date: str) -> str:
    """A day as shadow counts them, from 1970-01-01; empty for none."""
    if date in ("", "-1"):
        return ""
    if date.isascii() and date.isdigit():
        return str(int(date))
    try:
        parsed = time.strptime(date, "%Y-%m-%d")
    except ValueError:
        raise Refused(BAD_ARGUMENT, f"invalid date '{date}'") from None
    return str(calendar.timegm(parsed) // DAY_S)


def _make_home(home: Path, skeleton: Path) -> None:
    if home.exists():
        _say(f"warning: the home directory {home} already exists.")
        _say("Not copying any file from skel directory into it.")
        return
    home.mkdir(mode=0o750)
    home.chmod(0o750)
    for file in skeleton.iterdir() if skeleton.is_dir() else ():
        if file.is_file():
            (home / file.name).write_bytes(file.read_bytes())


def _say(text: str) -> None:
    print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr)


def _parse(known: dict[str, str], words: list[str]) -> tuple[str, dict[str, str]]:
    """The login name and the options, by their long names."""
    long = [f"{name}=" if letter.endswith(":") else name for name, letter in known.items()]
    try:
        found, rest = getopt.gnu_getopt(words, "".join(known.values()), long)
    except getopt.GetoptError as error:
        raise Refused(USAGE, error.msg) from None
    if len(rest) != 1:
        raise Refused(USAGE, "exactly one login name is wanted")
    names = {f"-{letter[0]}": name for name, letter in known.items()}
    return rest[0], {names.get(option, option.lstrip("-")): value for option, value in found}


def main(program: str, words: list[str]) -> int:
    root = os.environ.get("TPUFLEET_HOST_ROOT", "")
    try:
        if not root:
            raise Refused(1, "this is the stand-in of an emulated host, and must not be called elsewhere")
        if "TPUFLEET_PERSON" in os.environ:
            raise Refused(1, "Permission denied.")
        name, options = _parse(USERADD if program == "useradd" else USERMOD, words)
        with alone(Path(root)):
            (useradd if program == "useradd" else usermod)(Path(root), name, options)
    except Refused as refused:
        _say(str(refused))
        return refused.status
    except OSError as error:
        _say(f"cannot change the accounts: {error.strerror}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[0]).name, sys.argv[1:]))
