"""flock: a lock belongs to an open file and to every process that inherited it, and dies with the last of them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Generator
from pathlib import Path

POLL_S = 0.005


def try_lock(path: Path, patience_s: float = 0.0, mode: int = 0o600) -> int | None:
    """A descriptor that holds `path`'s lock, or None when someone else holds it for all of `patience_s`.

    A little patience tells a real holder from someone who only looks (as `is_held` does).
    """
    fd = _open(path, mode)
    if _lock_within(fd, patience_s):
        return fd
    os.close(fd)
    return None


def lock_again(fd: int) -> bool:
    """Whether the open file `fd` holds its lock now; one that held it already goes on to."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path: Path, patience_s: float = 0.0) -> bool:
    """Whether anyone holds `path`'s lock (for all of `patience_s`); a missing file is held by nobody."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        return not _lock_within(fd, patience_s)
    finally:
        os.close(fd)


@contextlib.contextmanager
def locked(path: Path) -> Generator[int]:
    """Holds `path`'s lock, waiting for it as long as it takes; gives the descriptor."""
    fd = _open(path, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)


def _lock_within(fd: int, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while not lock_again(fd):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def _open(path: Path, mode: int) -> int:
    """Opens first and creates second: with fs.protected_regular, O_CREAT on another user's file in a sticky directory
    is refused even to root (kernel documentation, admin-guide/sysctl/fs.rst)."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
            os.fchmod(fd, mode)  # whatever the umask is
            return fd
        return os.open(path, flags)
