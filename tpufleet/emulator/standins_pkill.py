"""`pkill -u USER` of an emulated host: ends what that person runs there, and nothing else.

This file is installed on the host as the program, so it needs nothing but Python's standard library (3.10). All hosts
and accounts are one user of the machine underneath; a process is a person's when its first environment says so
(`TPUFLEET_HOST_ROOT` and `TPUFLEET_PERSON`), or when such a process is among its ancestors. One that empties its
environment and leaves its parents escapes until the host goes down.
"""

from __future__ import annotations

import contextlib
import getopt
import os
import signal
import sys
from pathlib import Path

NONE_MATCHED, USAGE, FATAL = 1, 2, 3  # the real one's exit codes
REAL_ONES_PATH = "/usr/bin:/bin"


def marked(root: str, person: str) -> set[int]:
    """The living processes of `person` on the host with that root, zombies and this one not among them."""
    root = os.path.realpath(root)
    found: set[int] = set()
    children: dict[int, list[int]] = {}
    for pid in (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()):
        try:
            # The name in parentheses may hold spaces and parentheses of its own.
            state, parent = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:2]
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:  # another user's, or just gone
            continue
        if state in (b"Z", b"X"):
            continue
        children.setdefault(int(parent), []).append(pid)
        mine = dict(line.split(b"=", 1) for line in environment if line.startswith(b"TPUFLEET_") and b"=" in line)
        its_root = os.fsdecode(mine.get(b"TPUFLEET_HOST_ROOT", b""))
        if os.fsdecode(mine.get(b"TPUFLEET_PERSON", b"")) == person and os.path.realpath(its_root) == root:
            found.add(pid)
    pending = list(found)
    while pending:
        new = [child for child in children.get(pending.pop(), ()) if child not in found]
        found.update(new)
        pending += new
    return found - {os.getpid()}


def send(number: int, root: str, person: str) -> int:
    """Sends the signal to all of them; how many there were."""
    with contextlib.ExitStack() as stack:
        handles: dict[int, int] = {}
        for pid in marked(root, person):
            with contextlib.suppress(ProcessLookupError):
                handles[pid] = os.pidfd_open(pid)
                stack.callback(os.close, handles[pid])
        reached = 0
        # Between look and signal a number may have become another process's: a handle stays with its own.
        for pid in marked(root, person) & set(handles):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handles[pid], number)
                reached += 1
        return reached


def names_of(root: str, users: str) -> set[str]:
    """The accounts that are meant by names or numbers with commas between them."""
    rows = [line.split(":") for line in Path(root, "etc/passwd").read_text().splitlines()]
    found = {user: {row[0] for row in rows if user in (row[0], row[2])} for user in users.split(",")}
    for user, names in found.items():
        if not names and not user.isdigit():
            raise ValueError(f"invalid user name: {user}")
    return {name for names in found.values() for name in names}


def parse(words: list[str]) -> tuple[int, str]:
    """The signal and the users; raises ValueError for what this one doesn't know."""
    number, users = int(signal.SIGTERM), ""
    if words and (first := signal_of(words[0].removeprefix("-"))) is not None:
        number, words = first, words[1:]
    try:
        options, rest = getopt.gnu_getopt(words, "u:U:", ["euid=", "uid=", "signal="])
    except getopt.GetoptError as error:
        raise ValueError(error.msg) from None
    if rest:
        raise ValueError("this is the stand-in of an emulated host, and knows no pattern beside a user")
    for option, value in options:
        if option != "--signal":
            users = value
        elif (named := signal_of(value)) is not None:
            number = named
        else:
            raise ValueError(f"Unknown signal: {value}")
    return number, users


def signal_of(word: str) -> int | None:
    """KILL, SIGKILL or 9."""
    if word.isascii() and word.isdigit():
        return int(word)
    return signal.Signals.__members__.get(f"SIG{word.removeprefix('SIG')}")


def main(words: list[str]) -> int:
    root = os.environ.get("TPUFLEET_HOST_ROOT", "")
    try:
        if not root or not any(word.startswith(("-u", "-U", "--euid", "--uid")) for word in words):
            os.environ["PATH"] = REAL_ONES_PATH
            os.execvp("pkill", ["pkill", *words])  # noqa: S606 - becomes the real one, no shell wanted
        number, users = parse(words)
        names = names_of(root, users)
    except ValueError as error:
        print(f"pkill: {error}", file=sys.stderr)
        return USAGE
    except OSError as error:
        print(f"pkill: {error.strerror}", file=sys.stderr)
        return FATAL
    caller = os.environ.get("TPUFLEET_PERSON")
    if caller:
        for name in names - {caller}:
            for pid in marked(root, name):
                print(f"pkill: killing pid {pid} failed: Operation not permitted", file=sys.stderr)
        names &= {caller}
    return 0 if sum(send(number, root, name) for name in names) else NONE_MATCHED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
