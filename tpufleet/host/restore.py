"""The verb `restore`: what came home of a run is put on another host, before the run is given to it.

The files were uploaded one by one under plain numbers (`restore/RUN/0`, `1`, …). They are checked against what the
request says of them, and the checkpoint against its manifest; then the run's directory appears at once, by a rename.
So a run finds here what it had left where it was before, or nothing.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tpufleet.host import checkpoints, files, logfile, metrics
from tpufleet.host.errors import HostError, bad
from tpufleet.host.files import JsonObject
from tpufleet.host.places import Places, RunPlaces
from tpufleet.host.records import Attempt, attempt_from
from tpufleet.host.store import RunStore

DAMAGED = "damaged"


class Past(NamedTuple):
    """A run's attempts on hosts before this one, all of them ended, and when this life of it `began`."""

    attempts: tuple[Attempt, ...] = ()
    began: str = ""


class Item(NamedTuple):
    """A file to put at `path` below the run's directory, and what it must be."""

    path: str
    size: int
    sha256: str
    mtime_ns: int


def restore(places: Places, request: JsonObject) -> JsonObject:
    """Puts the request's `files` into the directory of `run`; `{"restored": false}` for a run that is here already.

    Doing it again is harmless, as long as the run was not enqueued.
    """
    run, listed = request.get("run"), files.as_list(request.get("files"))
    if not isinstance(run, str) or listed is None:
        raise bad("restore needs a run and a list of files")
    items = [_parse(item) for item in listed]
    store = RunStore(places.run(run))
    staged = places.restore / run
    places.prepare()
    lock = store.take()
    if lock is None:
        return {"restored": False}
    try:
        if store.state() is not None:
            shutil.rmtree(staged, ignore_errors=True)
            return {"restored": False}
        _assemble(store, staged, items)
        shutil.rmtree(staged, ignore_errors=True)
        return {"restored": True}
    finally:
        os.close(lock)


def past_of(run: object) -> Past:
    """What the request to enqueue a run says of its past on other hosts."""
    fields = files.as_object(run) or {}
    listed, began = files.as_list(fields.get("attempts") or []), fields.get("began") or ""
    try:
        attempts = tuple(attempt_from(item) for item in listed or [])
    except (KeyError, TypeError, ValueError):
        raise bad("the attempts of a run are malformed") from None
    if listed is None or not isinstance(began, str) or any(attempt.ended is None for attempt in attempts):
        raise bad("the attempts that a run had elsewhere must have ended")
    return Past(attempts, began)


def _parse(value: object) -> Item:
    fields = files.as_object(value) or {}
    path, size, sha256, mtime_ns = (fields.get(name) for name in Item._fields)
    if not isinstance(path, str) or not files.safe_relative(path):
        raise bad("a file to restore needs a plain relative path")
    if type(size) is not int or type(mtime_ns) is not int or not isinstance(sha256, str):
        raise bad("a file to restore needs its size, its time and its SHA-256")
    return Item(path, size, sha256, mtime_ns)


def _assemble(store: RunStore, staged: Path, items: list[Item]) -> None:
    """Makes the run's directory aside, and shows it when all is as it should be. What lies there was a try before."""
    aside = store.at.dir.with_name(f".{store.at.id}.restored")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    for number, item in enumerate(items):
        _take_in(staged / str(number), aside / item.path, item)
    for name in checkpoints.names(aside / "checkpoints"):
        problem = checkpoints.check(aside / "checkpoints" / name).problem
        if problem:
            raise HostError(DAMAGED, f"{name} of {store.at.id} came damaged: {problem}")
    shutil.rmtree(store.at.dir, ignore_errors=True)
    aside.rename(store.at.dir)
    files.sync_directory(store.at.dir.parent)
    _nothing_is_new(store.at)


def _nothing_is_new(run: RunPlaces) -> None:
    """What stands in log and metrics was read on the host before: the patterns go on behind it."""
    records, end = metrics.records_from(run.metrics, 0)
    counts = Counter(name for record in records for name in record if name != "step")
    files.write_json(run.scan, {"log_offset": logfile.size_of(run), "metrics_offset": end, "counts": counts})


def _take_in(staged: Path, target: Path, item: Item) -> None:
    try:
        fd = files.open_beneath(staged.parent, staged.name)
    except OSError:
        raise HostError(DAMAGED, f"{item.path} did not arrive") from None
    try:
        if os.fstat(fd).st_size != item.size or checkpoints.sha256_of(fd) != item.sha256:
            raise HostError(DAMAGED, f"{item.path} came damaged")
    finally:
        os.close(fd)
    target.parent.mkdir(parents=True, exist_ok=True)
    staged.rename(target)
    os.utime(target, ns=(item.mtime_ns, item.mtime_ns))  # so that it isn't taken for a newer one and sent home again
