"""Files that are whole or absent, and files that are opened without following anyone's symlink."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, cast

JsonObject = dict[str, Any]


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Puts `data` at `path` so that a reader, or a crash at any moment, finds the old or the new, on disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, mode)
            file.write(data)
            file.flush()
            os.fsync(fd)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory survive a crash."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_json(path: Path, value: JsonObject, mode: int = 0o644) -> None:
    write_atomic(path, json.dumps(value, ensure_ascii=False, allow_nan=False).encode(), mode)


def read_json(path: Path) -> JsonObject | None:
    """The JSON object in a file of ours; None when it is missing or not one (half a disk's worth of bad luck)."""
    try:
        value: object = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return as_object(value)


def as_object(value: object) -> JsonObject | None:
    """`value` if it is a JSON object, else None."""
    return cast("JsonObject", value) if isinstance(value, dict) else None  # JSON's keys are always str


def as_list(value: object) -> list[object] | None:
    """`value` if it is a JSON array, else None."""
    return cast("list[object]", value) if isinstance(value, list) else None


def as_texts(value: object) -> list[str] | None:
    """`value` if it is a JSON array of strings without NUL, else None."""
    items = as_list(value)
    if items is None or not all(isinstance(item, str) and "\0" not in item for item in items):
        return None
    return cast("list[str]", items)


def safe_relative(path: str) -> bool:
    """Whether `path` is plain and relative: no `..`, nothing hidden, no control characters, nothing empty."""
    if not path or len(path) > 1024 or not path.isprintable():
        return False
    return all(part and not part.startswith(".") for part in path.split("/"))


def open_beneath(directory: Path, path: str) -> int:
    """A descriptor of the regular file `directory/path`; no component below `directory` may be a symlink.

    Raises OSError when there is none, or something else stands in its place (never opens a pipe or a device).
    """
    if not safe_relative(path):
        raise FileNotFoundError(path)
    *parents, name = path.split("/")
    here = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for parent in parents:
            below = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = below
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=here)
    finally:
        os.close(here)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(path)
    return fd
