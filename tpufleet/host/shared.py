"""The verb `shared`: what people who have agreed to it have trained, read for the board and nothing else.

Everything here was written by them and may be anything: nothing is read through a link, nothing that isn't a plain file
of theirs, and of each file, each person and all of it together no more than a page can show.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import math
import os
import re
import stat
from collections.abc import Generator, Iterator
from pathlib import Path

from tpufleet.host import files, metrics
from tpufleet.host.errors import bad
from tpufleet.host.files import JsonObject
from tpufleet.host.places import FLEET, Places

PERSON = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
MOST_PEOPLE = 200
MOST_NAMES = 20_000  # looked through in one directory
MOST_RUNS = 5  # of one person, the newest
MOST_COMPLETIONS = 3  # of one run, the last
LONGEST = 4_000  # characters of a text
TAIL = 64 << 10  # bytes of a file
METRICS_TAIL = 256 << 10
MOST_METRICS = 12  # of one run, that have a curve
MOST_POINTS = 60  # of one curve
LARGEST = 2**53  # of a step; beyond it floats don't count any more
MOST_CHARACTERS = 1_000_000  # of all texts together


def shared(places: Places, request: JsonObject) -> JsonObject:
    """The newest runs of those people of the request's `fleet` who agreed, as `{"runs": [...]}`, newest first."""
    fleet = request.get("fleet")
    if not isinstance(fleet, str) or not FLEET.fullmatch(fleet):
        raise bad("shared needs a fleet")
    runs: list[JsonObject] = []
    for name, uid in _people(places, fleet):
        with contextlib.suppress(OSError), _directory(places.base / "people" / name, uid) as home:
            for run in _newest(home, name):
                with contextlib.suppress(OSError), _directory(run, uid, home) as at:
                    runs.append(_run(name, run, at, uid))
    runs.sort(key=lambda run: str(run["started"] or ""), reverse=True)
    return {"runs": list(_within(runs))}


def _people(places: Places, fleet: str) -> Iterator[tuple[str, int]]:
    """Those who agreed, each with the uid that their files must have."""
    known = files.read_json(places.base / "people.json") or {}
    if known.get("fleet") != fleet:
        return
    for item in (files.as_list(known.get("people")) or [])[:MOST_PEOPLE]:
        person = files.as_object(item) or {}
        name, uid = person.get("name"), person.get("uid")
        if person.get("share") is True and isinstance(name, str) and PERSON.fullmatch(name) and type(uid) is int:
            # on a rehearsal host without accounts of its own every file is the one user's
            yield name, uid if places.root == Path("/") else os.getuid()


@contextlib.contextmanager
def _directory(path: Path | str, uid: int, inside: int | None = None) -> Generator[int]:
    """A descriptor of a directory of that user; raises OSError for anything else in its place."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, dir_fd=inside)
    try:
        if os.fstat(fd).st_uid != uid:
            raise PermissionError(str(path))
        yield fd
    finally:
        os.close(fd)


def _newest(home: int, name: str) -> list[str]:
    """The newest runs by their names, `NAME-YYYYMMDD-HHMMSS`, which sort as time does."""
    form = re.compile(re.escape(name) + r"-([0-9]{8}-[0-9]{6})(?:-([0-9]{1,4}))?")
    found: list[tuple[str, int, str]] = []
    with os.scandir(home) as entries:
        for count, entry in enumerate(entries):
            if count >= MOST_NAMES:
                break
            if match := form.fullmatch(entry.name):
                found.append((match[1], int(match[2] or 0), entry.name))
    return [run for _, _, run in heapq.nlargest(MOST_RUNS, found)]


def _run(person: str, run: str, at: int, uid: int) -> JsonObject:
    written = _tail(at, "metrics.jsonl", uid, METRICS_TAIL)
    numbers = metrics.numbers(written)
    told = _object(_tail(at, "run.json", uid))
    return {
        "person": person,
        "run": run,
        "chip": _one_of(told.get("chip"), int, str),
        "started": _one_of(told.get("started"), str),
        "ended": _one_of(told.get("ended"), str),
        "exit_code": _one_of(told.get("exit_code"), int),
        "step": numbers.step,
        "metrics": dict(list(numbers.metrics.items())[:20]),
        "curves": _curves(written),
        "completions": list(_completions(_tail(at, "completions.jsonl", uid)))[-MOST_COMPLETIONS:],
    }


def _curves(data: bytes) -> JsonObject:
    """Metrics over steps as `{name: [[step…], [value…]]}`, evenly thinned; the newest point is always among them."""
    points: dict[str, dict[int, float]] = {}
    for line in data.splitlines():
        record = _object(line)
        step = record.pop("step", None)
        if type(step) is not int or not 0 <= step <= LARGEST:
            continue
        for name, value in record.items():
            if type(value) in (int, float) and (name in points or len(points) < MOST_METRICS):
                points.setdefault(name[:80], {})[step] = value
    curves = {name: sorted(found.items()) for name, found in points.items()}
    return {name: _thinned(curve) for name, curve in curves.items()}


def _thinned(curve: list[tuple[int, float]]) -> list[list[float]]:
    """Steps and values of at most MOST_POINTS points, whose number can be said in JSON."""
    finite = [(step, value) for step, value in curve if abs(value) < math.inf]
    every = -(-len(finite) // MOST_POINTS) or 1
    kept = finite[::-1][::every][::-1]
    return [[step for step, _ in kept], [value for _, value in kept]]


def _completions(data: bytes) -> Iterator[JsonObject]:
    """The records of a completions.jsonl, from its end; a first or last line that was cut is passed over."""
    for line in data.splitlines():
        record = _object(line)
        text = record.get("text")
        if isinstance(text, str):
            prompt, step = record.get("prompt"), record.get("step")
            prompt = prompt[:LONGEST] if isinstance(prompt, str) else ""
            yield {"step": step if type(step) is int else None, "prompt": prompt, "text": text[:LONGEST]}


def _within(runs: list[JsonObject]) -> Iterator[JsonObject]:
    """As many of `runs` as may be sent together."""
    left = MOST_CHARACTERS
    for run in runs:
        left -= len(json.dumps(run))
        if left < 0:
            return
        yield run


def _tail(at: int, name: str, uid: int, size: int = TAIL) -> bytes:
    """The end of a plain file of that user in an open directory; nothing for anything else."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    except OSError:
        return b""
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid:
            return b""
        return os.pread(fd, size, max(0, status.st_size - size))
    finally:
        os.close(fd)


def _object(data: bytes) -> JsonObject:
    try:
        return files.as_object(json.loads(data)) or {}
    except (ValueError, RecursionError):
        return {}


def _one_of(value: object, *kinds: type) -> object:
    """`value` if it is of one of `kinds` (and short), else None; a bool is no number."""
    if isinstance(value, bool) or not isinstance(value, kinds):
        return None
    return value[:64] if isinstance(value, str) else value
