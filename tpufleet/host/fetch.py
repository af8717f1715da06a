"""The verb `fetch`: files of runs as one stream: before each a line of JSON, then exactly the bytes it promises."""

from __future__ import annotations

import json
import os
import sys
from typing import NamedTuple

from tpufleet.host import files
from tpufleet.host.errors import INTERNAL, HostError, bad
from tpufleet.host.files import JsonObject
from tpufleet.host.places import Places

BLOCK = 1 << 20
GONE = -1
MOST_HELD = 500  # open files; a process may have 1024


class Piece(NamedTuple):
    """A part of a file of a run."""

    run: str
    path: str
    offset: int
    length: int


def fetch(places: Places, request: JsonObject) -> None:
    """Streams the request's `files` in their order. A file that is gone, or not a plain one, has the length -1.

    Those of checkpoints are opened before the first byte is sent: what the job removes meanwhile, because it keeps its
    newest only, still arrives. Else a line that is slower than the job would never bring a checkpoint home.
    """
    asked = files.as_list(request.get("files"))
    if asked is None:
        raise bad("fetch needs a list of files")
    pieces = [_parse(item) for item in asked]
    early = [piece for piece in pieces if piece.path.startswith("checkpoints/")][:MOST_HELD]
    held = {piece: _open(places, piece) for piece in early}
    for piece in pieces:
        _send(piece, held.pop(piece) if piece in held else _open(places, piece))
    sys.stdout.buffer.flush()


def _parse(item: object) -> Piece:
    fields = files.as_object(item) or {}
    run, path, offset, length = (fields.get(name) for name in Piece._fields)
    if not isinstance(run, str) or not isinstance(path, str):
        raise bad("a file to fetch needs a run and a path")
    if type(offset) is not int or type(length) is not int or offset < 0 or length < 0:
        raise bad("a file to fetch needs an offset and a length, not below zero")
    return Piece(run, path, offset, length)


def _open(places: Places, piece: Piece) -> int | None:
    try:
        return files.open_beneath(places.run(piece.run).dir, piece.path)
    except OSError:
        return None


def _send(piece: Piece, fd: int | None) -> None:
    if fd is None:
        _announce(piece, GONE)
        return
    try:
        length = max(0, min(piece.length, os.fstat(fd).st_size - piece.offset))
        _announce(piece, length)
        _copy(fd, piece.offset, length)
    finally:
        os.close(fd)


def _announce(piece: Piece, length: int) -> None:
    line = json.dumps({**piece._asdict(), "length": length})
    sys.stdout.buffer.write(line.encode() + b"\n")


def _copy(fd: int, offset: int, length: int) -> None:
    """Copies what was promised. A file that shrinks under our hands breaks the stream off: the client asks again."""
    end = offset + length
    while offset < end:
        block = os.pread(fd, min(BLOCK, end - offset), offset)
        if not block:
            sys.stdout.buffer.flush()
            raise HostError(INTERNAL, "a file shrank while it was sent")
        sys.stdout.buffer.write(block)
        offset += len(block)
