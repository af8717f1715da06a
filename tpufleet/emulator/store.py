"""The daemon's directory: who owns it, and its files, each written aside and renamed."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, cast

from tpufleet.emulator.wire import Json
from tpufleet.errors import StateError


class Store:
    """Every path of one emulator; exists for as long as its daemon owns the directory."""

    def __init__(self, directory: Path) -> None:
        """Takes `directory` (made if absent, 0700); raises StateError when another daemon has it."""
        self.directory = directory.absolute()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        self.hosts = self.directory / "hosts"
        self.hosts.mkdir(exist_ok=True)
        self.announcement = self.directory / "emulator.json"
        self.log = self.directory / "emulator.log"
        self._cloud = self.directory / "cloud.json"
        self._lock = _locked(self.directory / "lock")

    def load(self) -> Json:
        """The state that `save` wrote last, or an empty one; raises StateError when it can't be read."""
        try:
            stored: Any = json.loads(self._cloud.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise StateError(f"can't read {self._cloud}: {error}") from error
        if not isinstance(stored, dict):
            raise StateError(f"{self._cloud} does not hold the emulator's state")
        return cast(Json, stored)

    def save(self, state: Json) -> None:
        write_whole(self._cloud, json.dumps(state))  # on one line: twenty times as fast, and written at every step

    def announce(self, facts: Json) -> None:
        write_whole(self.announcement, json.dumps(facts, indent=1) + "\n")

    def withdraw(self) -> None:
        """The daemon no longer serves; called when it ends (and at its start, for one that was killed)."""
        self.announcement.unlink(missing_ok=True)

    def release(self) -> None:
        os.close(self._lock)


def write_whole(path: Path, text: str) -> None:
    """`path` with `text` and mode 0600; a reader sees the old or the new content, nothing between."""
    aside = path.with_name(f".{path.name}.new")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def _locked(path: Path) -> int:
    """Takes the lock for this process's life; a reader that asks who holds it has it for an instant."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + 0.5
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise StateError(f"another emulator is using {path.parent}") from error
            time.sleep(0.01)
        else:
            return descriptor
