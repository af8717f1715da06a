"""Records, one JSON object a line, each with its step: `metrics.jsonl` and `completions.jsonl`.

A resumed run takes up at a checkpoint, so what was recorded after that checkpoint's step is cut off first:
each step stands there once, whatever moment the process before was killed at.
"""

import json
import math
import os
from pathlib import Path


def append(path: Path, record: dict[str, object]) -> None:
    """Adds `record` as a line, through to the disk; a number that JSON has no word for (NaN) becomes null."""
    line = json.dumps({key: _json(value) for key, value in record.items()}, allow_nan=False) + "\n"
    with path.open("a", encoding="ascii") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def cut(path: Path, step: int) -> None:
    """Drops every line after `step`, and a half-written one; the file is replaced in one go, or left alone."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    kept = [line for line in lines if _is_up_to(step, line)]
    if kept == lines:
        return
    aside = path.with_name(f".{path.name}")
    with aside.open("w", encoding="utf-8") as file:
        file.writelines(kept)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def last_step(path: Path) -> int | None:
    """The last step that was recorded; None where nothing was."""
    if not path.exists():
        return None
    steps = [_step(line) for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)]
    return max((step for step in steps if step is not None), default=None)


def _is_up_to(step: int, line: str) -> bool:
    at = _step(line)
    return at is not None and at <= step


def _step(line: str) -> int | None:
    """The step of a whole line; None for one that is half-written or says none."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return step if line.endswith("\n") and isinstance(step, int) else None


def _json(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
