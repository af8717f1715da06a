"""What runs have written since somebody read it last: whole lines of their metrics and completions, as text.

How far a file was read is a token that only this module understands: inode, offset, and a sum of the bytes before it,
which tells a file that was written anew (a resumed job cuts its records) from one that grew.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import NamedTuple

from tpufleet.host import files
from tpufleet.host.errors import bad
from tpufleet.host.files import JsonObject
from tpufleet.host.places import FLEET, Places
from tpufleet.host.store import all_states

FILES = ("metrics", "completions")
MOST = 2 << 20  # bytes of an answer
LEAST = 64 << 10  # bytes that a file may have of it, however many there are
TAIL = 256 << 10  # bytes of completions that nobody has read: only the newest are shown
BEFORE = 64  # bytes before the offset that tell whether the file is the same


class _Place(NamedTuple):
    """How far a file was read."""

    inode: int
    offset: int
    sum: int

    @property
    def token(self) -> str:
        return f"{self.inode}:{self.offset}:{self.sum}"


def results(places: Places, request: JsonObject) -> JsonObject:
    """What is new in the files of the request's `runs` (`{RUN: {"metrics": token or null, "completions": …}}`, or null
    for all runs of the `fleet`), as `{RUN: {"metrics": {"text", "token", "anew", "more"}}}`.

    A file without news is left out. `anew`: `text` is its beginning, and what was read before is void. `more`: there
    are more whole lines than an answer has room for.
    """
    wanted = _wanted(places, request)
    each = max(LEAST, MOST // max(1, len(FILES) * len(wanted)))
    left = MOST
    found: dict[str, JsonObject] = {}
    for run, tokens in wanted.items():
        told: JsonObject = {}
        for name in FILES:
            news = _news(places.run(run).dir, name, tokens.get(name), max(0, min(each, left)))
            if news is not None:
                told[name] = news
                left -= len(news["text"].encode())
        if told:
            found[run] = told
    return found


def _wanted(places: Places, request: JsonObject) -> dict[str, JsonObject]:
    asked = request.get("runs")
    if asked is None:
        fleet = request.get("fleet")
        if not isinstance(fleet, str) or not FLEET.fullmatch(fleet):
            raise bad("all runs are those of a fleet, which must be named")
        return {state.id: {} for state in all_states(places) if state.fleet in ("", fleet)}
    runs = files.as_object(asked)
    if runs is None:
        raise bad("results needs an object of runs, or null for all")
    return {run: files.as_object(tokens) or {} for run, tokens in runs.items()}


def _news(folder: Path, name: str, token: object, room: int) -> JsonObject | None:
    """What is to be told of one file, in at most `room` bytes; None for nothing."""
    known = _place(token)
    try:
        fd = files.open_beneath(folder, f"{name}.jsonl")
    except OSError:
        return _told(b"", None, anew=True, more=False) if known else None
    try:
        status = os.fstat(fd)
        same = known is not None and known == _place_at(fd, status, known.offset)
        offset = known.offset if same and known else 0
        if known is None and name == "completions":
            offset = _line_after(fd, status.st_size - TAIL)
        data = os.pread(fd, room, offset)
        cut = len(data) == room and offset + len(data) < status.st_size
        # of a line that is longer than there may be of a file only the rest is told, which is no record
        whole = len(data) if cut and len(data) >= LEAST and b"\n" not in data else data.rfind(b"\n") + 1
        if same and not whole and not cut:
            return None
        place = _place_at(fd, status, offset + whole)
        return _told(data[:whole], place, anew=not same, more=cut)
    finally:
        os.close(fd)


def _told(data: bytes, place: _Place | None, *, anew: bool, more: bool) -> JsonObject:
    text = data.decode("utf-8", errors="replace")
    return {"text": text, "token": place and place.token, "anew": anew, "more": more}


def _place(token: object) -> _Place | None:
    parts = token.split(":") if isinstance(token, str) else []
    if len(parts) != len(_Place._fields) or not all(part.isdecimal() and len(part) <= 20 for part in parts):
        return None
    place = _Place(*map(int, parts))
    return place if place.offset < 1 << 62 else None


def _place_at(fd: int, status: os.stat_result, offset: int) -> _Place:
    before = min(BEFORE, offset)
    return _Place(status.st_ino, offset, zlib.crc32(os.pread(fd, before, offset - before)))


def _line_after(fd: int, offset: int) -> int:
    """The beginning of the first line that begins at `offset` or later."""
    if offset <= 0:
        return 0
    return offset + os.pread(fd, TAIL, offset - 1).find(b"\n")  # without any, what is there is no record anyway
