"""The room on the disk at home, divided before the bytes come: what won't fit isn't begun."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from tpufleet.errors import NoRoom
from tpufleet.text import size

MARGIN = 100_000_000  # bytes that stay free, or on a small disk
SHARE = 0.05  # this part of it


class Room:
    """What is free at `path`, less a margin. All hosts' threads take from it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        there = next(place for place in (path, *path.parents) if place.exists())
        disk = shutil.disk_usage(there)
        self.free = max(0, disk.free - min(MARGIN, int(disk.total * SHARE)))
        self._left = self.free
        self._refused = 0
        self._taking = threading.Lock()

    def take(self, count: int) -> bool:
        """Whether `count` bytes fit beside all that was taken before; then they are taken."""
        with self._taking:
            if count > self._left:
                self._refused += count
                return False
            self._left -= count
            return True

    def lack(self) -> NoRoom | None:
        """What to say of all that didn't fit."""
        if not self._refused:
            return None
        needed = self.free - self._left + self._refused
        return NoRoom(self._path, needed=size(needed), free=size(self.free))
