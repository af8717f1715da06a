"""The verb `manifest`: what each run has left that is worth bringing home. Only plain files with plain names count."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from tpufleet.host import checkpoints, files, logfile, settle
from tpufleet.host.checkpoints import Checkpoint
from tpufleet.host.errors import NOT_FOUND, HostError, bad
from tpufleet.host.files import JsonObject
from tpufleet.host.places import Places
from tpufleet.host.store import RunStore

ALWAYS = ("log.txt", "metrics.jsonl", "completions.jsonl", "changes.diff")
MOST_FILES = 20_000
DEEPEST = 16


def manifest(places: Places, request: JsonObject) -> JsonObject:
    """The files and checkpoints of the request's `runs`, of all of them for null; with `digests` also what is in the
    files now, for whoever wants to compare."""
    named = request.get("runs") is not None
    runs = files.as_texts(request["runs"]) if named else places.runs()
    if runs is None:
        raise bad("manifest needs a list of runs, or null for all")
    digests = request.get("digests") is True
    return {"runs": [found for run in runs if (found := _of_run(places, run, named=named, digests=digests))]}


def _of_run(places: Places, run: str, *, named: bool, digests: bool) -> JsonObject | None:
    store = RunStore(places.run(run))
    state = store.state()
    if state is None:
        if named:
            raise HostError(NOT_FOUND, f"there is no run {run} on this host")
        return None
    with logfile.steady(store.at):
        cut = logfile.cut_of(store.at)
    found = _checkpoints(store)
    kept = {f"checkpoints/{point.name}/" for point in found}
    wanted = [*ALWAYS, *store.spec().artifacts]
    return {
        "state": settle.view(store, state).public,
        "log_cut": cut.gone,  # another number than before: what was copied is no beginning of it any more
        "files": [
            _entry(store.at.dir, path, status, digests=digests)
            for path, status in plain_files(store.at.dir)
            if _matches(path, wanted) and not any(path.startswith(prefix) for prefix in kept)
        ],
        "checkpoints": [_shown(point) for point in found],
    }


def _entry(top: Path, path: str, status: os.stat_result, *, digests: bool) -> JsonObject:
    entry: JsonObject = {"path": path, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    if digests:
        with contextlib.suppress(OSError):  # removed meanwhile: fetch says so
            entry["sha256"] = _digest(top, path, status.st_size)
    return entry


def _digest(top: Path, path: str, size: int) -> str:
    """The SHA-256 of the first `size` bytes: the job may be adding to the file."""
    digest = hashlib.sha256()
    with os.fdopen(files.open_beneath(top, path), "rb") as file:
        while size and (block := file.read(min(checkpoints.BLOCK, size))):
            digest.update(block)
            size -= len(block)
    return digest.hexdigest()


def _shown(point: Checkpoint) -> JsonObject:
    return {
        "name": point.name,
        "step": point.step,
        "verified": point.verified,
        "problem": point.problem,
        "files": [record._asdict() for record in point.files],
    }


def _checkpoints(store: RunStore) -> list[Checkpoint]:
    """The run's checkpoints, the oldest first. A file that was not touched since its last hash is not read again."""
    known = files.read_json(store.at.verified) or {}
    used: JsonObject = {}
    folder = store.at.checkpoints

    def hasher_of(name: str) -> checkpoints.Hasher:
        def cached(fd: int, path: str) -> str:
            status = os.fstat(fd)
            key = f"{name}/{path}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}:{status.st_ino}"
            used[key] = known.get(key) or checkpoints.sha256_of(fd)
            return used[key]

        return cached

    found = [checkpoints.check(folder / name, hasher_of(name)) for name in reversed(checkpoints.names(folder))]
    if used != known:
        with contextlib.suppress(OSError):  # a full disk is when bringing things home matters most
            files.write_json(store.at.verified, used)
    return found


def plain_files(top: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Regular files below `top` as (relative path, status), sorted; nothing hidden, no symlinks, no odd names."""

    def walk(folder: Path, prefix: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            return  # the job removed it meanwhile
        for entry in entries:
            path = prefix + entry.name
            if not files.safe_relative(path):
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    if depth < DEEPEST:
                        yield from walk(folder / entry.name, f"{path}/", depth + 1)
                elif entry.is_file(follow_symlinks=False):
                    yield path, entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue

    for count, found in enumerate(walk(top, "", 0)):
        if count >= MOST_FILES:
            return
        yield found


def _matches(path: str, patterns: list[str]) -> bool:
    return any(matches(path.split("/"), pattern.split("/")) for pattern in patterns)


def matches(parts: list[str], pattern: list[str]) -> bool:
    """Whether a path matches a glob, both split at "/"; `**` stands for any number of directories (or all below)."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        rest = pattern[1:]
        return bool(parts) if not rest else any(matches(parts[skip:], rest) for skip in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and matches(parts[1:], pattern[1:])
