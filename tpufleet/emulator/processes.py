"""Processes of emulated hosts: starting them, finding them all, killing them.

A process belongs to a host when `TPUFLEET_HOST_ROOT` in its first environment names the host's root, when a
process of the host is among its ancestors, or when it is an orphan that this daemon inherited (it is a child
subreaper) and works in the host's directory. A process that empties its environment, leaves its parent *and*
the host's directory escapes until the daemon stops, which kills every child it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import signal
import struct
import subprocess
import termios
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
MARK = b"TPUFLEET_HOST_ROOT="
KILL_DEADLINE_S = 20


@dataclass(frozen=True)
class Child:
    """A started session process and our ends of its descriptors; on a terminal the three are one and no error."""

    process: subprocess.Popen[bytes]
    stdin: int
    stdout: int
    stderr: int | None


def spawn(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> Child:
    """Starts `argv` in a session of its own with pipes; raises OSError."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=env,
        umask=0o022,
        start_new_session=True,
    )
    assert process.stdin and process.stdout and process.stderr  # noqa: S101 - for the type checker
    return Child(process, _taken(process.stdin), _taken(process.stdout), _taken(process.stderr))


def spawn_on_terminal(argv: Sequence[str], cwd: Path, env: Mapping[str, str], size: tuple[int, int, int, int]) -> Child:
    """Starts `argv` as the leader of a new session on a new terminal of `size` (columns, rows, pixels)."""
    ours, theirs = os.openpty()
    resize(ours, size)
    name = os.ttyname(theirs)
    try:
        # A session leader without a terminal gets the first one it opens as its controlling terminal.
        process = subprocess.Popen(
            ["/bin/sh", "-c", 'exec "$@" <>"$0" 1>&0 2>&0', name, *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=cwd,
            env=env,
            umask=0o022,
            start_new_session=True,
            pass_fds=(theirs,),  # open until the child has opened it, else the terminal hangs up
        )
    except OSError:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    os.set_blocking(ours, False)
    return Child(process, os.dup(ours), ours, None)


def stand_for(what: str, cwd: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A process that does nothing until its standard input ends; the process table shows `what` it stands for."""
    return subprocess.Popen(
        ["/bin/sh", "-c", "read -r _", what],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )


def resize(terminal: int, size: tuple[int, int, int, int]) -> None:
    columns, rows, width, height = size
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, width, height))


def _taken(pipe: IO[bytes]) -> int:
    """The descriptor of `pipe`, now ours to close, non-blocking."""
    descriptor = os.dup(pipe.fileno())
    pipe.close()
    os.set_blocking(descriptor, False)
    return descriptor


def become_subreaper() -> None:
    """Orphaned descendants become this process's children from now on; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


@dataclass(frozen=True)
class Seen:
    """A line of the process table."""

    pid: int
    parent: int
    root: str | None  # TPUFLEET_HOST_ROOT of its environment


def table() -> list[Seen]:
    """All living processes (zombies don't count) whose environment may be read or not."""
    found = [_look(int(entry.name)) for entry in os.scandir("/proc") if entry.name.isdigit()]
    return [seen for seen in found if seen is not None]


def _look(pid: int) -> Seen | None:
    try:
        # The name in parentheses may hold spaces and parentheses of its own.
        state, parent = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:2]
    except OSError:
        return None
    if state in (b"Z", b"X"):
        return None
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # another user's, or just gone
        environment = []
    marks = [os.fsdecode(line[len(MARK) :]) for line in environment if line.startswith(MARK)]
    return Seen(pid, int(parent), marks[0] if marks else None)


def below(directory: Path) -> set[int]:
    """The processes of the host, or of all hosts, whose root is or lies below `directory`; never this one."""
    seen = table()
    mine = os.getpid()
    members = {
        one.pid
        for one in seen
        if _is_below(one.root, directory) or (one.parent == mine and _works_below(one.pid, directory))
    } - {mine}
    children: dict[int, list[int]] = {}
    for one in seen:
        children.setdefault(one.parent, []).append(one.pid)
    pending = list(members)
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in members and child != mine:
                members.add(child)
                pending.append(child)
    return members


def _is_below(path: str | None, directory: Path) -> bool:
    return path is not None and Path(path).is_relative_to(directory)


def _works_below(pid: int, directory: Path) -> bool:
    try:
        return _is_below(str(Path(f"/proc/{pid}/cwd").readlink()), directory)
    except OSError:
        return False


def children() -> set[int]:
    """This process's own children, zombies included."""
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


def reap_orphans(known: Iterable[int]) -> None:
    """Collects every zombie that was inherited; `known` are the pids somebody else waits for."""
    for pid in children() - set(known):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


async def kill_below(directory: Path) -> int:
    """SIGKILLs the processes of `below(directory)` until none is left; returns how many there were.

    Raises TimeoutError when some can't be killed (they hang in the kernel).
    """
    killed: set[int] = set()
    async with asyncio.timeout(KILL_DEADLINE_S):
        while members := below(directory):
            kill(members)
            killed |= members
            await asyncio.sleep(0.005)  # nothing announces the death of a process that isn't our child
    return len(killed)


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
