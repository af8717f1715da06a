"""Whether a file at home is still the one that came: told by size, time and inode, so that nobody reads gigabytes.

A seal that still fits is taken for an untouched file, as git and rsync do; one that doesn't means: look inside.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

Seal = list[int]  # size in bytes, modification time in nanoseconds, inode; a list, since it is kept as JSON
BLOCK = 1 << 20


def seal_of(path: Path) -> Seal | None:
    """The seal of a regular file; None where there is none (a link is none)."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ino] if stat.S_ISREG(status.st_mode) else None


def is_as(path: Path, size: int, sha256: str | None) -> bool:
    """Whether the file at `path` has this size and this SHA-256; every byte is read if the size is right."""
    seal = seal_of(path)
    return seal is not None and seal[0] == size and sha256_of(path) == sha256


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def blocks(file: BinaryIO, length: int) -> Iterator[bytes]:
    """The first `length` bytes of an open file."""
    file.seek(0)
    while length and (block := file.read(min(BLOCK, length))):
        yield block
        length -= len(block)
