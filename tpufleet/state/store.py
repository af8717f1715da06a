"""The journal: what was asked for before it is done, and how it ended; where each run was sent, and as what.

sqlite in WAL mode. Intent before effect, result after: what a killed command had begun can be told. The journal
is a help, never the truth. It may be deleted at any time; nodes are found by their label and runs on their hosts.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tpufleet.errors import DiskFull, StateError
from tpufleet.paths import writing
from tpufleet.state.migrations import MIGRATIONS, migrate

LITTLE = 1 << 20
MADE = ("create-node", "adopt-node")
NODE_ACTIONS = ("create-node", "start-node", "delete-node")


@dataclass(frozen=True)
class Placement:
    """A run was sent to `host`, which was the VM `identity` at that time.

    `spec` is the run as it was planned (`model.RunSpec`, without any secret), `code` the commit and where it comes
    from (`model.Code`). Both are None for runs that an older tpufleet sent.
    """

    run: str
    host: str
    identity: str
    zone: str = ""
    spec: Mapping[str, Any] | None = None
    code: Mapping[str, Any] | None = None


class Journal:
    """One fleet's journal. Raises StateError where it can't be read or written.

    A `spare` one does without where its disk is full: it knows nothing then and keeps nothing (`is_kept`).
    """

    def __init__(self, path: Path, *, spare: bool = False) -> None:
        self._path = path
        self._turn = threading.RLock()
        self._spare = spare
        self.is_kept = True
        with self._guarded():
            self._db = self._opened_or_spare()
            self._inode = path.stat().st_ino if self.is_kept else 0

    def reopen_if_replaced(self) -> None:
        """For commands that live long: a journal that somebody deleted is begun anew."""
        with self._guarded():
            if self._path.exists() and self._path.stat().st_ino == self._inode:
                return
            self._db.close()
            self._db = self._opened()
            self._inode = self._path.stat().st_ino

    @contextlib.contextmanager
    def intent(self, command: str, action: str, subject: str, **detail: Any) -> Generator[None]:
        """Record that `action` on `subject` is about to happen; its end (or the error) is recorded after."""
        row = None
        with self._written():
            row = self._db.execute(
                "INSERT INTO intents (asked, command, action, subject, detail) VALUES (?, ?, ?, ?, ?)",
                (_now(), command, action, subject, json.dumps(detail)),
            ).lastrowid
        try:
            yield
        except BaseException as error:
            self._end(row, f"failed: {type(error).__name__}: {error}"[:500])
            raise
        self._end(row, "done")

    def unfinished(self) -> tuple[Mapping[str, str], ...]:
        """Intents without an end: a command was killed there."""
        with self._guarded():
            rows = self._db.execute(
                "SELECT asked, command, action, subject FROM intents WHERE ended IS NULL ORDER BY id"
            ).fetchall()
        return tuple(dict(zip(("asked", "command", "action", "subject"), row, strict=True)) for row in rows)

    def zones(self) -> tuple[str, ...]:
        """The zones in which something was asked for and not deleted since: the file may not name them any more."""
        with self._guarded():
            rows = self._db.execute(
                "SELECT subject, action, json_extract(detail, '$.zone') FROM intents "
                "WHERE action IN ('create-node', 'adopt-node', 'delete-node', 'release-node') ORDER BY id"
            ).fetchall()
        last = {(subject, zone): action for subject, action, zone in rows if zone}
        return tuple(dict.fromkeys(zone for (_, zone), action in last.items() if action in MADE))

    def placed(self, placements: Sequence[Placement]) -> None:
        """Record where runs are about to be sent, all or none."""
        with self._guarded(), self._transaction():
            self._db.executemany(
                "INSERT OR REPLACE INTO placements (run, host, identity, placed, zone, spec, code) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (item.run, item.host, item.identity, _now(), item.zone, _text(item.spec), _text(item.code))
                    for item in placements
                ],
            )

    def placements(self) -> dict[str, Placement]:
        with self._guarded():
            rows = self._db.execute("SELECT run, host, identity, zone, spec, code FROM placements").fetchall()
            return {row[0]: Placement(*row[:4], spec=_object(row[4]), code=_object(row[5])) for row in rows}

    def forget(self, runs: Sequence[str]) -> None:
        """These runs are not to be sent again by themselves: a person ended them."""
        with self._guarded(), self._transaction():
            self._db.executemany("DELETE FROM placements WHERE run = ?", [(run,) for run in runs])

    def taken_down(self) -> frozenset[str]:
        """The nodes whose last word was `tpufleet delete`."""
        with self._guarded():
            rows = self._db.execute(
                "SELECT subject, action, command FROM intents WHERE action IN (?, ?, ?) ORDER BY id", NODE_ACTIONS
            ).fetchall()
        last = {subject: (action, command) for subject, action, command in rows}
        return frozenset(name for name, word in last.items() if word == ("delete-node", "delete"))

    def mark(self, subject: str, mark: str, value: str | None) -> None:
        """Remember `value` of a node as its `mark`; None forgets it."""
        with self._guarded():
            if value is None:
                self._db.execute("DELETE FROM marks WHERE subject = ? AND mark = ?", (subject, mark))
            else:
                self._db.execute("INSERT OR REPLACE INTO marks VALUES (?, ?, ?)", (subject, mark, value))

    def marks(self) -> dict[tuple[str, str], str]:
        """What is remembered, by subject and mark."""
        with self._guarded():
            rows = self._db.execute("SELECT subject, mark, value FROM marks").fetchall()
        return {(subject, mark): value for subject, mark, value in rows}

    def close(self) -> None:
        self._db.close()

    def _opened_or_spare(self) -> sqlite3.Connection:
        try:
            return self._opened()
        except (sqlite3.Error, OSError, DiskFull):
            if not (self._spare and self._is_full()):
                raise
        self.is_kept = False
        db = _connected(":memory:")
        migrate(db)
        return db

    def _is_full(self) -> bool:
        """Whether the journal's disk lacks the little room that sqlite needs; it calls that an input/output error."""
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize < LITTLE

    def _opened(self) -> sqlite3.Connection:
        with writing(self._path):
            self._path.touch(mode=0o600)
        db = _connected(self._path)
        self._path.chmod(0o600)
        db.execute("PRAGMA journal_mode=WAL")
        if int(db.execute("PRAGMA user_version").fetchone()[0]) > len(MIGRATIONS):
            raise StateError(
                f"the journal {self._path} was written by a newer tpufleet",
                hint="upgrade tpufleet, or delete the file",
            )
        migrate(db)
        return db

    def _end(self, row: int | None, result: str) -> None:
        with self._written():
            self._db.execute("UPDATE intents SET ended = ?, result = ? WHERE id = ?", (_now(), result, row))

    @contextlib.contextmanager
    def _written(self) -> Generator[None]:
        """For intents, which a spare journal does without."""
        try:
            with self._guarded():
                yield
        except DiskFull:
            if not self._spare:
                raise
            self.is_kept = False

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _guarded(self) -> Generator[None]:
        try:
            with self._turn:
                yield
        except (sqlite3.Error, OSError, ValueError) as error:
            if self._is_full():
                raise DiskFull(self._path) from error
            raise StateError(
                f"the journal {self._path} can't be used: {error}",
                hint="it may be deleted: nodes and runs are found again without it",
            ) from error


def _connected(path: Path | str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=20, isolation_level=None, check_same_thread=False)


def _text(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value)


def _object(text: str | None) -> Mapping[str, Any] | None:
    return None if text is None else dict(json.loads(text))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
