"""The verb `belongings`: what a person who agreed has trained, and how they changed the code, as one stream.

It is run as root, which opens nothing in a home: a child that has become the person does, so that no link leads to what
the person may not read. What stands there is the person's to shape, so its size and number are bounded.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tpufleet.host import accounts_child, accounts_system, files, manifest, patches, people
from tpufleet.host.errors import INTERNAL, NOT_FOUND, HostError, bad
from tpufleet.host.files import JsonObject
from tpufleet.host.places import Places

BLOCK = 1 << 20
LONGEST_S = 3600.0
MOST_BYTES = 20 << 30  # of a person on this host, with what home has already
LARGEST = 4 << 30
SPARSE = 4  # times as long as what it has on the disk
SMALL = 1 << 20
MOST_NOTES = 100  # home takes no more than 200
RUNS = "runs"
CODE = "code"


class _File(NamedTuple):
    path: str
    size: int
    mtime_ns: int
    directory: Path
    name: str


def belongings(places: Places, request: JsonObject) -> JsonObject | None:
    """For a `person`: streams what they have, without what home has already (`have`: path -> [size, mtime_ns]).

    Before each file a line `{"path", "size", "mtime_ns"}`, then its bytes, then a line `{"sha256"}`; what couldn't be
    had is a line `{"note"}`; the last line is `{"end": true}`. Without a person: who agreed, `{"people": [name, …]}`.
    """
    fleet, person = request.get("fleet"), request.get("person")
    known = people.read(places)
    ours = known is not None and known.fleet == fleet
    agreed = sorted(each.name for each in known.people.values() if each.share) if known and ours else []
    if person is None:
        return {"people": agreed}
    account = accounts_system.by_name(places, person) if person in agreed else None
    if account is None or account.comment != accounts_system.mark(str(fleet)):
        raise HostError(NOT_FOUND, f"{person!r:.50} has not agreed, or has no account here")
    have = files.as_object(request.get("have") or {})
    if have is None:
        raise bad("`have` is no object")
    home = places.home(account.name)
    real = accounts_system.is_real(places)
    child = accounts_child.start(account.uid, account.gid, lambda: _stream(home, have), become=real)
    try:
        error = accounts_child.outcome(child, time.monotonic() + LONGEST_S).get("error")
    finally:
        if real and not (known and known.people[account.name].is_here):
            accounts_system.end_everything(places, account)  # whatever git has started for who is gone
    if error:
        raise HostError(INTERNAL, f"what {person} has could not be read to its end: {error}")
    return None


def _stream(home: Path, have: JsonObject) -> JsonObject:
    """Done by the person's own child."""
    out = sys.stdout.buffer
    left = MOST_BYTES
    notes: list[str] = []
    for file in _files(home):
        if have.get(file.path) == [file.size, file.mtime_ns] and file.size <= left:
            _say(out, {"path": file.path, "kept": True})
            left -= file.size
        else:
            left -= _send(out, file, left, notes)
    for name, patch in patches.of_clones(home):
        if isinstance(patch, str):
            notes.append(f"{name}: {patch}")
            continue
        _say(out, {"path": f"{CODE}/{name}.diff", "size": len(patch), "mtime_ns": 0})
        out.write(patch)
        _say(out, {"sha256": hashlib.sha256(patch).hexdigest()})
    more = len(notes) - MOST_NOTES
    for note in [*notes[:MOST_NOTES], *([f"and {more} others could not be had either"] if more > 0 else [])]:
        _say(out, {"note": note})
    _say(out, {"end": True})
    out.flush()
    return {}


def _files(home: Path) -> Iterator[_File]:
    """The plain files below ~/runs, which may be a link to the shared directory."""
    top = home / RUNS
    for path, status in manifest.plain_files(top):
        yield _File(f"{RUNS}/{path}", status.st_size, status.st_mtime_ns, top, path)


def _send(out: BinaryIO, file: _File, most: int, notes: list[str]) -> int:
    """Sends a file of at most `most` bytes, and gives how many it has; else 0, and `notes` say why."""
    try:
        fd = files.open_beneath(file.directory, file.name)
    except OSError as error:
        notes.append(f"{file.path}: {error.strerror or error}")
        return 0
    try:
        status = os.fstat(fd)  # a log may have grown meanwhile
        why = _too_much(status, most)
        if why:
            notes.append(f"{file.path}: {why}")
            return 0
        size = status.st_size
        _say(out, {"path": file.path, "size": size, "mtime_ns": file.mtime_ns})
        digest = hashlib.sha256()
        left = size
        while left:
            block = os.read(fd, min(BLOCK, left))
            if not block:
                raise HostError(INTERNAL, f"{file.path} shrank while it was sent")
            out.write(block)
            digest.update(block)
            left -= len(block)
        _say(out, {"sha256": digest.hexdigest()})
        return size
    finally:
        os.close(fd)


def _too_much(status: os.stat_result, most: int) -> str | None:
    """Why a file is left out, if it is to be."""
    if status.st_size > LARGEST:
        return f"it is larger than {LARGEST >> 30} GiB"
    if status.st_size > max(SMALL, status.st_blocks * 512 * SPARSE):
        return "most of it is empty (a sparse file)"
    if status.st_size > most:
        return f"with it there would be more than {MOST_BYTES >> 30} GiB of this person"
    return None


def _say(out: BinaryIO, line: JsonObject) -> None:
    out.write(json.dumps(line).encode() + b"\n")
