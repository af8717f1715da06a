"""The journal: what was asked for before it is done, and how it ended; and where each run was sent.

sqlite in WAL mode. Intent before effect, result after: what a killed command had begun can be told. The journal
is a help, never the truth. It may be deleted at any time; nodes are found by their label and runs on their hosts.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tpufleet.errors import StateError
from tpufleet.state.migrations import MIGRATIONS, migrate


@dataclass(frozen=True)
class Placement:
    """A run was sent to `host`, which was the VM `identity` at that time."""

    run: str
    host: str
    identity: str


class Journal:
    """One fleet's journal. Raises StateError where it can't be read or written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._guarded():
            self._db = sqlite3.connect(path, timeout=20, isolation_level=None, check_same_thread=False)
            path.chmod(0o600)
            self._db.execute("PRAGMA journal_mode=WAL")
            if int(self._db.execute("PRAGMA user_version").fetchone()[0]) > len(MIGRATIONS):
                raise StateError(
                    f"the journal {path} was written by a newer tpufleet",
                    hint="upgrade tpufleet, or delete the file",
                )
            migrate(self._db)

    @contextlib.contextmanager
    def intent(self, command: str, action: str, subject: str, **detail: Any) -> Generator[None]:
        """Record that `action` on `subject` is about to happen; its end (or the error) is recorded after."""
        with self._guarded():
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

    def placed(self, placements: tuple[Placement, ...]) -> None:
        """Record where runs are about to be sent, all or none."""
        with self._guarded(), self._transaction():
            self._db.executemany(
                "INSERT OR REPLACE INTO placements (run, host, identity, placed) VALUES (?, ?, ?, ?)",
                [(item.run, item.host, item.identity, _now()) for item in placements],
            )

    def placements(self) -> dict[str, Placement]:
        with self._guarded():
            rows = self._db.execute("SELECT run, host, identity FROM placements").fetchall()
        return {row[0]: Placement(*row) for row in rows}

    def close(self) -> None:
        self._db.close()

    def _end(self, row: int | None, result: str) -> None:
        with self._guarded():
            self._db.execute("UPDATE intents SET ended = ?, result = ? WHERE id = ?", (_now(), result, row))

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
            yield
        except (sqlite3.Error, OSError) as error:
            raise StateError(
                f"the journal {self._path} can't be used: {error}",
                hint="it may be deleted: nodes and runs are found again without it",
            ) from error


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
