"""What a run leaves besides its numbers: completions, checkpoints, the end of its log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tpufleet.report.curves import spread
from tpufleet.report.records import (
    as_count,
    as_list,
    as_number,
    as_record,
    as_text,
    is_plain_file,
    read_json,
    records,
)
from tpufleet.report.text import count, size

LOG_LINES = 30
_LOG_BYTES = 64 << 10  # 30 lines are rarely more
_LOG_COLUMNS = 400
_COMPLETION = 4_000
_DIFF_BYTES = 40_000
_LARGEST_STEP = 2**53  # what is beyond is no step, and isn't exact
_CHECKPOINT = re.compile(r"step-\d{1,16}")


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model wrote after `prompt` at `step`; `text` is the model's part alone."""

    step: float | None
    prompt: str
    text: str


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    path: str
    size: int | None
    sha256: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint by its manifest; `problem` says what is not as the manifest has it, and is empty else.

    Only presence and size are looked at here: `collect` has compared the checksums.
    """

    step: int
    files: tuple[CheckpointFile, ...]
    problem: str

    @property
    def size(self) -> int:
        return sum(file.size or 0 for file in self.files)


def read_completions(path: Path, limit: int, notes: list[str]) -> tuple[Completion, ...]:
    """At most `limit` completions from the earliest to the newest, evenly spread over the training.

    As with metrics, a step that was passed already means that the run resumed: what came after it is void.
    """
    kept: list[Completion] = []
    broken = 0
    for record in records(path):
        if record is None or not isinstance(record.get("text"), str):
            broken += 1
            continue
        step = as_number(record.get("step"))
        if step is not None and not abs(step) <= _LARGEST_STEP:  # NaN, too
            step = None
        if kept and _beyond(kept[-1].step, step):
            kept = [c for c in kept if c.step != step and not _beyond(c.step, step)]
        prompt, text = as_text(record.get("prompt"), _COMPLETION), as_text(record["text"], _COMPLETION)
        kept.append(Completion(step, prompt, text.removeprefix(prompt)))
        if len(kept) >= 4 * limit:
            kept = [kept[i] for i in spread(len(kept), 2 * limit)]
    if broken:
        notes.append(f"completions.jsonl: {count(broken, 'line')} could not be read.")
    return tuple(kept[i] for i in spread(len(kept), limit))


def _beyond(earlier: float | None, step: float | None) -> bool:
    return earlier is not None and step is not None and earlier > step


def read_checkpoints(directory: Path) -> tuple[Checkpoint, ...]:
    """The checkpoints in a run's directory, by step."""
    if directory.is_symlink() or not directory.is_dir():
        return ()
    folders = [p for p in directory.iterdir() if _CHECKPOINT.fullmatch(p.name) and not p.is_symlink()]
    return tuple(sorted(map(_checkpoint, folders), key=lambda checkpoint: checkpoint.step))


def _checkpoint(folder: Path) -> Checkpoint:
    manifest = as_record(read_json(folder / "manifest.json"))
    step = as_count(manifest.get("step"))
    files = tuple(
        CheckpointFile(as_text(f.get("path")), as_count(f.get("size")), as_text(f.get("sha256"), 64))
        for f in map(as_record, as_list(manifest.get("files")))
    )
    step = int(folder.name.removeprefix("step-")) if step is None else step
    return Checkpoint(step, files, _problem(folder, files))


def _problem(folder: Path, files: tuple[CheckpointFile, ...]) -> str:
    if not files:
        return "no manifest that could be read"
    for file in files:
        path = PurePosixPath(file.path)
        if path.is_absolute() or ".." in path.parts or "\0" in file.path or not path.parts:
            return "a file name that is not safe"
        if not is_plain_file(folder / path):
            return f"{file.path} is not here"
        if (folder / path).stat().st_size != file.size:
            return f"{file.path} has another size"
    return ""


def read_log(path: Path) -> str:
    """The end of a log; empty where there is none."""
    if not is_plain_file(path):
        return ""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        file.seek(max(0, end - _LOG_BYTES))
        return file.read(_LOG_BYTES).decode("utf-8", errors="replace")


def last_lines(tail: str) -> tuple[str, ...]:
    """The last lines of a log as a terminal would have left them: of a line that a progress bar wrote over
    again and again, only what it said last."""
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in tail.rstrip("\n").split("\n")]
    cut = [line if len(line) <= _LOG_COLUMNS else f"{line[: _LOG_COLUMNS - 1]}…" for line in lines]
    return tuple(cut[-LOG_LINES:]) if tail else ()


def read_diff(path: Path) -> str:
    """What was changed by hand in the checkout that the run started from; a long diff ends with a note."""
    if not is_plain_file(path):
        return ""
    with path.open("rb") as file:
        text = file.read(_DIFF_BYTES).decode("utf-8", errors="replace")
    whole = path.stat().st_size
    return text if whole <= _DIFF_BYTES else f"{text}\n… cut here; all {size(whole)} are in {path.name}"
