"""What came home as TensorBoard event files: every metric's every point, completions as texts, parameters as hparams.

Written with the package `tensorboard` (extra `tensorboard`), by its parts that need no TensorFlow and load none.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpufleet.errors import UsageError
from tpufleet.paths import write_atomically
from tpufleet.report.artifacts import Completion, read_completions
from tpufleet.report.load import Run, load
from tpufleet.report.metrics import read_points
from tpufleet.report.text import clean, shorten

VERSION = "brain.Event:2"  # the format that TensorBoard reads
FORMAT = "1"  # of what is written here: another one writes all files anew
MOST_COMPLETIONS = 1_000  # of a run
SOURCES = ("metrics.jsonl", "completions.jsonl")


def write_tensorboard(home: Path, target: Path, kit: Kit | None = None) -> int:
    """Write `target/RUN/events.out.tfevents.…` for each run below `home`; how many had to be written anew.

    A run's file bears the digest of what it was made of, so that one that is up to date is left alone. Raises
    UsageError when `tensorboard` isn't installed, StateError when nothing is home or the disk is full.
    """
    kit = kit or Kit.load()
    return sum(_write_run(kit, home / "runs" / run.id, run, target / run.id) for run in load(home).runs)


@dataclass(frozen=True)
class Kit:
    """What is used of the package `tensorboard`, which has no types to speak of; its names are kept."""

    Event: Any
    Summary: Any
    TensorProto: Any
    DT_STRING: Any
    RecordWriter: Any
    create_summary_metadata: Any
    hparams_pb: Any

    @classmethod
    def load(cls) -> Kit:
        def of(module: str, name: str) -> Any:
            return getattr(importlib.import_module(f"tensorboard.{module}"), name)

        try:
            return cls(
                of("compat.proto.event_pb2", "Event"),
                of("compat.proto.summary_pb2", "Summary"),
                of("compat.proto.tensor_pb2", "TensorProto"),
                of("compat.proto.types_pb2", "DT_STRING"),
                of("summary.writer.record_writer", "RecordWriter"),
                of("plugins.text.metadata", "create_summary_metadata"),
                of("plugins.hparams.summary_v2", "hparams_pb"),
            )
        except ImportError:
            raise UsageError(
                "TensorBoard's event files need the package tensorboard", hint="pip install 'tpufleet[tensorboard]'"
            ) from None


def _write_run(kit: Kit, source: Path, run: Run, folder: Path) -> bool:
    """One run's event file, whole or not at all, in place of an older one; whether it was written."""
    began = int(run.started.timestamp()) if run.started else 0
    target = folder / f"events.out.tfevents.{began:010d}.tpufleet.{_digest(source, run)}"
    if target.is_file():
        return False
    folder.mkdir(parents=True, exist_ok=True)
    # TensorBoard reads whatever has "tfevents" in its name; two commands at once don't share the file
    aside = folder / f".tpufleet.{os.getpid()}"
    write_atomically(aside, _packed(kit, source, run), mode=0o644)
    aside.replace(target)
    for older in folder.glob("events.out.tfevents.*.tpufleet.*"):
        if older != target:
            older.unlink(missing_ok=True)
    return True


def _digest(source: Path, run: Run) -> str:
    """16 hex digits that change with whatever is written of a run."""
    digest = hashlib.sha256(json.dumps([FORMAT, run.params, *map(str, _span(source, run))]).encode())
    for name in SOURCES:
        if (source / name).is_file() and not (source / name).is_symlink():
            with (source / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _packed(kit: Kit, source: Path, run: Run) -> bytes:
    """The whole event file, a record for each event."""
    buffer = io.BytesIO()
    writer = kit.RecordWriter(buffer)
    for event in _events(kit, source, run):
        writer.write(event.SerializeToString())
    return buffer.getvalue()


def _events(kit: Kit, source: Path, run: Run) -> Iterator[Any]:
    """The run as events in the order of their steps."""
    began, ended = _span(source, run)
    yield kit.Event(wall_time=began, file_version=VERSION)
    if run.params:
        yield kit.Event(wall_time=began, summary=_parameters(kit, run, began))
    scalars = _by_step(source)
    texts = defaultdict[int, list[Completion]](list)
    for said in read_completions(source / SOURCES[1], MOST_COMPLETIONS, []):
        texts[int(said.step or 0)].append(said)
    last = max((*scalars, *texts), default=0)
    for step in sorted({*scalars, *texts}):
        when = began + (ended - began) * min(1.0, max(0.0, step / last if last else 0.0))
        yield kit.Event(wall_time=when, step=step, summary=_summary(kit, scalars.get(step, {}), texts.get(step, [])))


def _span(source: Path, run: Run) -> tuple[float, float]:
    """When the run's first and last point were, in seconds of Unix time. Records bear no times: what lies between is
    spread evenly over the steps. A run that is not over yet ends when its file was last written to."""
    file = source / SOURCES[0]
    written = file.stat().st_mtime if file.is_file() else 0.0
    began = run.started.timestamp() if run.started else written
    ended = run.ended.timestamp() if run.ended else written
    return began, max(began, ended)


def _by_step(source: Path) -> dict[int, dict[str, float]]:
    """Step → metric → value. (TensorBoard's steps are whole; of half a step the last value counts.)"""
    found = defaultdict[int, dict[str, float]](dict)
    for metric, points in read_points(source / SOURCES[0]).items():
        for step, value in points:
            found[math.floor(step)][metric] = value
    return found


def _summary(kit: Kit, scalars: dict[str, float], texts: list[Completion]) -> Any:
    """All that a run said at one step."""
    values = [kit.Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
    for said in texts:
        content = kit.TensorProto(dtype=kit.DT_STRING, string_val=[_verbatim(said).encode(errors="replace")])
        about = kit.create_summary_metadata(display_name=None, description=None)
        values.append(kit.Summary.Value(tag=_tag(said.prompt), metadata=about, tensor=content))
    return kit.Summary(value=values)


def _tag(prompt: str) -> str:
    """The card that a prompt's completions are on; a slash would make groups of it."""
    return f"completions/{shorten(' '.join(clean(prompt).replace('/', '∕').split()), 60) or 'no prompt'}"


def _verbatim(said: Completion) -> str:
    """Prompt and text as a block of code: TensorBoard reads Markdown, models write anything."""
    return "\n".join(f"    {line}" for line in clean(said.prompt + said.text).split("\n"))


def _parameters(kit: Kit, run: Run, began: float) -> Any:
    values = {clean(name): _number_or_text(text) for name, text in run.params.items()}
    return kit.hparams_pb(values, trial_id=run.id, start_time_secs=began)


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return clean(text)
