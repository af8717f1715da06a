"""Processes as /proc shows them: who lives, who belongs to a run, who has a file open, and how to end them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from tpufleet.host.records import Handle

PROC = Path("/proc")
POLL_S = 0.02


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that matter here (proc(5)); `start` is in clock ticks since boot."""

    state: str
    parent: int
    session: int
    start: int

    @property
    def dead(self) -> bool:
        return self.state in "ZXx"


def stat_of(pid: int) -> Stat | None:
    """None when there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything, spaces and brackets too
    return Stat(state=fields[0], parent=int(fields[1]), session=int(fields[3]), start=int(fields[19]))


def is_alive(pid: int, start: int) -> bool:
    """Whether the process that began at `start` as `pid` lives; a zombie does not."""
    stat = stat_of(pid)
    return stat is not None and not stat.dead and stat.start == start


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir(PROC) if name.isdigit()]  # noqa: PTH208 - half the time


def tree_of(handle: Handle, run_dir: Path) -> list[int]:
    """The living processes of a run's attempt, the supervisor not among them.

    They are found by the session of the training, by the variable that the run's processes inherit (daemons have a
    session of their own), and as descendants of either.
    """
    mark = f"TPUFLEET_RUN_DIR={run_dir}".encode()
    stats = {pid: stat for pid in all_pids() if (stat := stat_of(pid)) is not None and not stat.dead}
    session_is_ours = handle.pid not in stats or stats[handle.pid].start == handle.start
    ours = {
        pid
        for pid, stat in stats.items()
        if stat.start >= handle.start and ((session_is_ours and stat.session == handle.pid) or _has_mark(pid, mark))
    }
    ours |= _descendants(ours, stats)
    return sorted(ours - {handle.supervisor, os.getpid()})


def descendants_of(pid: int) -> list[int]:
    """The living children of a process, their children, and so on."""
    stats = {other: stat for other in all_pids() if (stat := stat_of(other)) is not None and not stat.dead}
    return sorted(_descendants({pid}, stats) - {pid})


def end(find: Callable[[], Collection[int]], grace_s: float) -> bool:
    """Ends all processes that `find` finds: SIGTERM, then SIGKILL once `grace_s` is over; whether SIGKILL was needed.

    `find` is asked again and again, so that processes born meanwhile are ended too.
    """
    asked: set[int] = set()
    deadline = time.monotonic() + grace_s
    while pids := find():
        if time.monotonic() >= deadline:
            _kill_until_gone(find)
            return True
        for pid in set(pids) - asked:
            send(pid, signal.SIGTERM)
        asked |= set(pids)
        time.sleep(POLL_S)
    return False


def _kill_until_gone(find: Callable[[], Collection[int]]) -> None:
    """SIGKILL until none is left; a process that hangs in the kernel (state D) is waited for, it holds the chip."""
    while pids := find():
        for pid in pids:
            send(pid, signal.SIGKILL)
        time.sleep(POLL_S)


def send(pid: int, number: int) -> None:
    """A signal to a process that may be gone, or another's, by now."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def holders(files: Collection[Path]) -> dict[Path, list[int]]:
    """Which processes have which of `files` open. What this user may not look into is passed over."""
    wanted = {str(path): path for path in files}
    found: dict[Path, list[int]] = {}
    if not wanted:
        return found
    for pid in all_pids():
        for target in set(_open_files(pid)):
            if target in wanted:
                found.setdefault(wanted[target], []).append(pid)
    return found


def command_of(pid: int) -> str | None:
    """A process's command line, printable, words joined by spaces, at most 300 characters; None when it has none."""
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None
    return printable(raw.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")[:300]) or None


def printable(text: str) -> str:
    """What a process calls itself may hold anything; it ends up on people's terminals."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def owner_of(pid: int) -> str | None:
    """The name of the user a process belongs to; None for a process that is gone."""
    try:
        return user_name((PROC / str(pid)).stat().st_uid)
    except OSError:
        return None


def user_name(uid: int) -> str:
    import pwd  # late: only a chip that somebody holds needs it

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _open_files(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - thousands of them, on every probe
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            yield os.readlink(f"{folder}/{name}")  # noqa: PTH115 - the same


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        return mark in (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _descendants(ancestors: set[int], stats: dict[int, Stat]) -> set[int]:
    found = set(ancestors)
    while new := {pid for pid, stat in stats.items() if stat.parent in found and pid not in found}:
        found |= new
    return found
