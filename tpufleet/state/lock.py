"""One changing command per fleet directory at a time; a second one waits, and says for whom.

A POSIX file lock: the kernel lets go of it when its holder dies, however it dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Generator
from pathlib import Path

from tpufleet.errors import StateError
from tpufleet.paths import writing

POLL_S = 0.05


@contextlib.contextmanager
def locked(path: Path, command: str, *, wait_s: float, waiting: Callable[[str], None]) -> Generator[None]:
    """Hold the lock at `path`; `waiting` is told once who holds it. Raises StateError after `wait_s` seconds."""
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StateError(f"the lock {path} can't be opened: {error.strerror}") from error
    with os.fdopen(descriptor, "r+") as file:
        _acquire(file.fileno(), path, wait_s, waiting)
        _sign(file.fileno(), command)
        yield


def _sign(descriptor: int, command: str) -> None:
    """Who holds the lock, for those who wait. It holds as well without a word of it on a full disk."""
    os.truncate(descriptor, 0)
    with contextlib.suppress(OSError):
        os.write(descriptor, json.dumps({"pid": os.getpid(), "command": command}).encode())


def _acquire(descriptor: int, path: Path, wait_s: float, waiting: Callable[[str], None]) -> None:
    deadline = time.monotonic() + wait_s
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(path)
            if time.monotonic() > deadline:
                raise StateError(
                    f"another tpufleet command works on this fleet: {holder}",
                    hint="wait for it, or end it, and run the same command again",
                ) from None
            if not told:
                waiting(holder)
                told = True
            time.sleep(POLL_S)  # flock has no time-out, and a signal to break it would be the whole process's
        else:
            return


def _holder(path: Path) -> str:
    try:
        record = json.loads(path.read_text())
        return f"tpufleet {record['command']} (pid {record['pid']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "a tpufleet command"
