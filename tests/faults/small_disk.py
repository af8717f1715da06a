"""Real disks that are small, so that they can be full: tmpfs, for tests that run as root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

FILLER = "filler"
BLOCK = 4096


class SmallDisk:
    """The disk at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def free(self) -> int:
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Leaves so many bytes, and none in a half-used block."""
        with (self.path / FILLER).open("wb", buffering=0) as file, contextlib.suppress(OSError):
            file.write(bytes(max(0, self.free - leave)))
            while not leave:
                file.write(bytes(BLOCK))
        assert self.free <= leave

    def make_room(self) -> None:
        (self.path / FILLER).unlink()


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[SmallDisk]:
    """Puts a disk of `size` (1m) at `path`, with what lies there; skips the test where that can't be done."""
    if os.getuid() != 0:
        pytest.skip("needs root, to mount a small disk")
    path.mkdir(parents=True, exist_ok=True)
    before = path.with_name(f"{path.name}.before")
    shutil.copytree(path, before, symlinks=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"can't mount a small disk here: {mounted.stderr.strip()}")
    try:
        subprocess.run(["cp", "-a", f"{before}/.", path], check=True)
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)
