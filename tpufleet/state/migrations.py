"""The journal's schema, one numbered step after the other; a step that was released is never changed."""

from __future__ import annotations

import sqlite3

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE intents (
            id INTEGER PRIMARY KEY,
            asked TEXT NOT NULL,
            command TEXT NOT NULL,
            action TEXT NOT NULL,
            subject TEXT NOT NULL,
            detail TEXT NOT NULL DEFAULT '{}',
            ended TEXT,
            result TEXT
        )
        """,
        "CREATE INDEX open_intents ON intents (ended) WHERE ended IS NULL",
        """
        CREATE TABLE placements (
            run TEXT PRIMARY KEY,
            host TEXT NOT NULL,
            identity TEXT NOT NULL,
            placed TEXT NOT NULL
        )
        """,
    ),
    (  # what a run was, so that it can be sent again as it was planned; and what is remembered of nodes
        "ALTER TABLE placements ADD COLUMN zone TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE placements ADD COLUMN spec TEXT",
        "ALTER TABLE placements ADD COLUMN code TEXT",
        """
        CREATE TABLE marks (
            subject TEXT NOT NULL,
            mark TEXT NOT NULL,
            value TEXT NOT NULL,
            PRIMARY KEY (subject, mark)
        )
        """,
    ),
)


def migrate(db: sqlite3.Connection) -> None:
    """Bring `db` (in autocommit mode) to the newest schema; each step is whole or absent, also when two do it."""
    while True:
        db.execute("BEGIN IMMEDIATE")
        try:
            version = int(db.execute("PRAGMA user_version").fetchone()[0])
            for statement in MIGRATIONS[version] if version < len(MIGRATIONS) else ():
                db.execute(statement)
            if version < len(MIGRATIONS):
                db.execute(f"PRAGMA user_version = {version + 1}")
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
        if version + 1 >= len(MIGRATIONS):
            return
