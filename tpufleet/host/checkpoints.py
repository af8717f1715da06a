"""Checkpoints as a run leaves them, and whether they are what their manifests say (docs: the run contract)."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tpufleet.host import files

NAME = re.compile(r"step-(\d{1,12})")
SHA256 = re.compile(r"[0-9a-f]{64}")
MANIFEST = "manifest.json"
LARGEST_MANIFEST = 4 << 20
BLOCK = 1 << 20


class FileRecord(NamedTuple):
    """A file of a checkpoint: its path below the checkpoint, its size and its SHA-256 in hex."""

    path: str
    size: int
    sha256: str


class Checkpoint(NamedTuple):
    """A checkpoint; `problem` says why it is not verified, None when it is. `files` includes its manifest."""

    name: str
    step: int
    files: tuple[FileRecord, ...]
    problem: str | None

    @property
    def verified(self) -> bool:
        return self.problem is None


# How a file's SHA-256 is found: from its open descriptor and its path below the checkpoint's directory.
Hasher = Callable[[int, str], str]


class Flawed(Exception):
    """A checkpoint that is not what its manifest says."""


def names(folder: Path) -> list[str]:
    """The finished checkpoints in `folder`, the newest step first; `.step-…` are unfinished and not among them."""
    try:
        found = [entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((name for name in found if NAME.fullmatch(name)), key=_step, reverse=True)


def newest_verified(folder: Path) -> Path | None:
    """The directory of the newest checkpoint that is as its manifest says, every byte read again; None for none."""
    return next((folder / name for name in names(folder) if check(folder / name).verified), None)


def sha256_of(fd: int, _path: str = "") -> str:
    """The SHA-256 of an open file, in hex, read from its beginning."""
    digest = hashlib.sha256()
    offset = 0
    while block := os.pread(fd, BLOCK, offset):
        digest.update(block)
        offset += len(block)
    return digest.hexdigest()


def check(checkpoint: Path, hasher: Hasher = sha256_of) -> Checkpoint:
    """Compares a checkpoint with its manifest: shape, step, safe plain paths, sizes, hashes."""
    step = _step(checkpoint.name)
    try:
        manifest, own_record = _read_manifest(checkpoint)
        listed = _listed(manifest, step)
    except Flawed as flaw:
        return Checkpoint(checkpoint.name, step, (), str(flaw))
    records = (*listed, own_record)
    try:
        for record in listed:
            _compare(checkpoint, record, hasher)
    except Flawed as flaw:
        return Checkpoint(checkpoint.name, step, records, str(flaw))
    return Checkpoint(checkpoint.name, step, records, None)


def _step(name: str) -> int:
    return int(name.removeprefix("step-"))


def _read_manifest(checkpoint: Path) -> tuple[files.JsonObject, FileRecord]:
    try:
        fd = files.open_beneath(checkpoint, MANIFEST)
    except OSError:
        raise Flawed("it has no manifest") from None
    with os.fdopen(fd, "rb") as file:
        raw = file.read(LARGEST_MANIFEST + 1)
    if len(raw) > LARGEST_MANIFEST:
        raise Flawed("its manifest is too large")
    try:
        manifest = files.as_object(json.loads(raw))
    except (ValueError, RecursionError):
        manifest = None
    if manifest is None:
        raise Flawed("its manifest is not a JSON object")
    return manifest, FileRecord(MANIFEST, len(raw), hashlib.sha256(raw).hexdigest())


def _listed(manifest: files.JsonObject, step: int) -> list[FileRecord]:
    """The records of a manifest; it must speak of this step and of at least one file, each of them once."""
    if type(manifest.get("step")) is not int or manifest["step"] != step:
        raise Flawed("its manifest speaks of another step")
    listed = files.as_list(manifest.get("files"))
    if not listed:
        raise Flawed("its manifest lists no files")
    records = [_record(item) for item in listed]
    if len({record.path for record in records}) != len(records):
        raise Flawed("its manifest lists a file twice")
    return records


def _record(item: object) -> FileRecord:
    fields = files.as_object(item) or {}
    path, size, sha256 = fields.get("path"), fields.get("size"), fields.get("sha256")
    if not isinstance(path, str) or not files.safe_relative(path) or path == MANIFEST:
        raise Flawed("its manifest lists an unsafe path")
    if type(size) is not int or size < 0 or not isinstance(sha256, str) or not SHA256.fullmatch(sha256):
        raise Flawed(f"its manifest is malformed at {path}")
    return FileRecord(path, size, sha256)


def _compare(checkpoint: Path, record: FileRecord, hasher: Hasher) -> None:
    try:
        fd = files.open_beneath(checkpoint, record.path)
    except OSError:
        raise Flawed(f"{record.path} is missing") from None
    try:
        if os.fstat(fd).st_size != record.size:
            raise Flawed(f"{record.path} has another size")
        if hasher(fd, record.path) != record.sha256:
            raise Flawed(f"{record.path} has another content")
    finally:
        os.close(fd)
