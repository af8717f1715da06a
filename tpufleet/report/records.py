"""Reading what a run wrote: JSON that may be broken, lines that may be half there, values of any kind.

Nothing here raises for what a file contains; what cannot be read comes back empty, and is counted where that
is worth saying.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

MAX_LINE = 1 << 20  # no honest record is longer than a MiB; the rest of such a line is skipped
MAX_FILE = 64 << 20  # nor is a run.json or a manifest
MAX_TEXT = 400
_YEARS = (1970, 2500)
_BLOCK = 64 << 10  # of a file at a time, in bytes

Record = Mapping[str, object]


def read_json(path: Path) -> object:
    """The value in a JSON file, or None when there is no such regular file or it can't be read."""
    if not is_plain_file(path) or path.stat().st_size > MAX_FILE:
        return None
    return parse(path.read_bytes())


def parse(data: bytes) -> object:
    """The value of one JSON text, or None. (A record is never null, so None is free to mean broken.)"""
    try:
        return json.loads(data.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):  # ValueError also covers a number of more than 4,300 digits
        return None


def is_plain_file(path: Path) -> bool:
    """Whether there is a regular file, not a link: a link from a host could lead anywhere here."""
    return not path.is_symlink() and path.is_file()


def records(path: Path) -> Iterator[Record | None]:
    """The objects of a JSON-lines file in order; None for a line that holds none. Blank lines pass."""
    for batch in batches(path):
        yield from batch


def batches(path: Path) -> Iterator[list[Record | None]]:
    """The same, some at a time."""
    for block in _blocks(path):
        yield [None] if block is None else _parse_all(block.strip())


def _blocks(path: Path) -> Iterator[bytes | None]:
    """A file's whole lines, some at a time; None for one that is too long to be a record."""
    if not is_plain_file(path):
        return
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            rest = file.readline(MAX_LINE)
            if len(rest) < MAX_LINE or rest.endswith(b"\n"):
                yield block + rest
                continue
            yield block[: block.rfind(b"\n") + 1]
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(MAX_LINE)
            yield None


def _parse_all(block: bytes) -> list[Record | None]:
    """The records of some lines: all at once, which is much faster, or one by one when any is not right."""
    joined = block.replace(b"}\n{", b"},{")
    whole = joined.startswith(b"{") and joined.endswith(b"}") and b"\n" not in joined
    values = as_list(parse(b"[" + joined + b"]")) if whole else []
    if not values or len(values) != block.count(b"\n") + 1:
        values = [parse(line) for line in block.splitlines() if line.strip()]
    return [as_record(value) or None for value in values]


def as_record(value: object) -> Record:
    """A JSON object, or an empty one for anything else. (JSON's keys are always strings.)"""
    return cast("Record", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def as_text(value: object, limit: int = MAX_TEXT) -> str:
    """Any JSON value as a person would write it, cut to `limit` characters; null is empty."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else _written(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _written(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:  # it was read where the stack had a little more room
        return "…"


def as_number(value: object) -> float | None:
    """A JSON number as a float (infinite when it is too large for one), or None for anything else."""
    if isinstance(value, float):
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def as_count(value: object) -> int | None:
    """A whole number of at least 0 that is exact as a float, or None."""
    amount = as_number(value)
    return int(amount) if amount is not None and 0 <= amount <= 2**53 else None


def as_time(value: object) -> datetime | None:
    """An RFC 3339 time in UTC, or None; also for one so far away that a calendar ends before it."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):  # Overflow: the year 1 or 9999 moved by its offset
        return None
    return time if _YEARS[0] <= time.year < _YEARS[1] else None
