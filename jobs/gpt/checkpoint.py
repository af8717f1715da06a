"""Checkpoints that are whole or absent: `checkpoints/step-00001000/` with its files and a `manifest.json`.

A checkpoint is written aside as `.step-00001000`, every file brought safely to the disk, then renamed; it is
removed the other way round. So whatever moment the process is killed at, a directory without a leading dot is
a whole checkpoint, and `verify` proves it by size and sha256. Loading never runs code (`weights_only`).
"""

import fcntl
import hashlib
import io
import json
import os
import pickle
import re
import shutil
import struct
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

MANIFEST = "manifest.json"
_NAME = re.compile(r"step-(\d{8,})")
# what torch raises for a file that is not as it would have written it, and Python for content that is not as we would
UNFIT = (
    *(RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError, ArithmeticError, EOFError),
    *(ImportError, struct.error, pickle.UnpicklingError),
)


class CheckpointError(Exception):
    """A checkpoint can't be used; the message is one sentence for a person."""


def save(directory: Path, step: int, parts: Mapping[str, object]) -> Path:
    """Writes `directory/step-STEP`, one file `NAME.pt` for each of `parts`, and returns its path.

    Tensors are moved to the CPU first, so that a checkpoint from a TPU opens anywhere. Raises OSError, and
    leaves nothing behind then, so that a full disk is not filled further.
    """
    final = directory / f"step-{step:08d}"
    aside = directory / f".{final.name}"
    aside.mkdir(parents=True)
    try:
        files = [_write(aside / f"{name}.pt", _pickled(part)) for name, part in parts.items()]
        _write(aside / MANIFEST, json.dumps({"step": step, "files": files}, indent=1).encode())
        _sync_directory(aside)
        aside.rename(final)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    _sync_directory(directory)
    _sync_directory(directory.parent)  # the first checkpoint made `directory` itself
    return final


def load(checkpoint: Path, name: str) -> Any:
    """Part `name` of a checkpoint that `verify` found good, as it was saved, on the CPU."""
    file = checkpoint / f"{name}.pt"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's advice, what else to try, is to run the code in the file
            return torch.load(io.BytesIO(file.read_bytes()), map_location="cpu", weights_only=True)
    except (OSError, *UNFIT):
        raise CheckpointError(
            f"{checkpoint} is not a checkpoint of this program: {file.name} can't be loaded"
        ) from None


def verify(checkpoint: Path) -> int:
    """The step of a checkpoint whose every file is as its manifest says; else raises CheckpointError."""
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_bytes())
        step, files = int(manifest["step"]), [(f["path"], f["size"], f["sha256"]) for f in manifest["files"]]
    except (OSError, *UNFIT):
        raise CheckpointError(f"{checkpoint} is not a checkpoint: it has no readable {MANIFEST}") from None
    for path, size, sha256 in files:
        if not isinstance(path, str) or Path(path).name != path:
            raise CheckpointError(f"{checkpoint} has a manifest that names a file elsewhere")
        if not _is_as_said(checkpoint / path, size, sha256):
            raise CheckpointError(f"{checkpoint} is damaged: {path} is not as its manifest says")
    return step


def newest(directory: Path) -> Path | None:
    """The newest verified checkpoint in `directory`, or None."""
    for checkpoint in reversed(_all(directory)):
        try:
            verify(checkpoint)
        except CheckpointError:
            continue
        return checkpoint
    return None


def claim(out: Path) -> None:
    """Makes `out` and keeps it for this process until it ends: two trainings in it would undo each other.

    Raises CheckpointError when another has it. Where the file system has no locks, nobody is kept out.
    """
    out.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(out, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CheckpointError(f"another training is writing to {out}: stop it, or --out writes elsewhere") from None
    except OSError:
        os.close(descriptor)


def find(where: Path) -> Path:
    """The checkpoint at `where`, or the newest verified one of the training that wrote there."""
    found = where if (where / MANIFEST).exists() else newest(where) or newest(where / "checkpoints")
    if found is None:
        raise CheckpointError(f"there is no whole checkpoint in {where}")
    return found


def to_go_on_from(out: Path, wanted: str | None) -> Path | None:
    """The checkpoint that a training in `out` goes on from: `wanted`, or with auto the newest there is; None: none.

    TPUFLEET_RESUME comes first: it holds this very run's progress, where `wanted` may say what the run set out
    from. A run of tpufleet's always goes on if it can; a person is asked, lest an old training is lost: raises
    CheckpointError, as it does for a checkpoint that isn't there.
    """
    wanted = os.environ.get("TPUFLEET_RESUME") or wanted
    directory = out / "checkpoints"
    latest = newest(directory)
    found = find(Path(wanted)) if wanted and wanted != "auto" else latest
    goes_on = wanted == "auto" or (wanted and found and found.resolve().parent == directory.resolve())
    if latest and not goes_on and not os.environ.get("TPUFLEET_RUN_DIR"):
        raise CheckpointError(f"{out} holds a training already: --resume auto goes on with it, --out writes elsewhere")
    return found


def prune(directory: Path, keep: int) -> None:
    """Removes all but the newest `keep` checkpoints."""
    for checkpoint in _all(directory)[:-keep]:
        _remove(checkpoint)


def cut(directory: Path, step: int) -> None:
    """Removes what lies after `step`, and what a killed process left half-written."""
    for leftover in directory.glob(".step-*"):
        shutil.rmtree(leftover)
    for checkpoint in _all(directory):
        if _step(checkpoint) > step:
            _remove(checkpoint)


def _all(directory: Path) -> list[Path]:
    """Checkpoints by name, verified or not, oldest first."""
    if not directory.is_dir():
        return []
    return sorted((path for path in directory.iterdir() if _NAME.fullmatch(path.name)), key=_step)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def _remove(checkpoint: Path) -> None:
    aside = checkpoint.with_name(f".{checkpoint.name}")
    checkpoint.rename(aside)
    shutil.rmtree(aside)


def _pickled(part: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(_map_tensors(torch.Tensor.cpu, part), buffer)
    return buffer.getvalue()


def _map_tensors(change: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """`value` with every tensor in its dictionaries and lists changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _map_tensors(change, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_map_tensors(change, item) for item in value)
    return value


def _write(path: Path, data: bytes) -> dict[str, object]:
    """Writes a file through to the disk; returns its line in the manifest."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {"path": path.name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _is_as_said(path: Path, size: object, sha256: object) -> bool:
    try:
        if not path.is_file() or path.stat().st_size != size:
            return False
        return hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    except (OSError, ValueError):  # unreadable; a name that no file can have
        return False


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
