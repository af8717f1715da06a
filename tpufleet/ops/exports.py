"""What came home, for other people's tools: all points as one Parquet file, which pandas, polars and DuckDB read in a
blink, and TensorBoard's event files where they are wanted."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from tpufleet.ops.tensorboard import Kit, write_tensorboard
from tpufleet.paths import writing
from tpufleet.report.metrics import read_points
from tpufleet.report.rows import run_directories

NAME = "metrics.parquet"


def export(home: Path, kit: Kit | None) -> dict[str, str]:
    """Write beside the report what can be: the metrics as Parquet if pyarrow is there, event files given TensorBoard's
    `kit`. Where each of them is, by its name. Raises DiskFull."""
    written = {"metrics": write_parquet(home)}
    if kit is not None:
        written["tensorboard"] = home / "tensorboard"
        write_tensorboard(home, home / "tensorboard", kit)
    return {name: str(path) for name, path in written.items() if path is not None}


def write_parquet(home: Path) -> Path | None:
    """Write `home/metrics.parquet` with the columns run, metric, step, value, as `metric_rows` has them.

    None where pyarrow isn't installed. A file that is newer than all metrics stays as it is; a new one is renamed into
    its place, so that no reader sees a part. Raises DiskFull.
    """
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        return None
    target = home / NAME
    if _is_newest(target, home):
        return target
    table = _table(arrow, home)
    aside = home / f".{NAME}.{os.getpid()}.part"
    with writing(target):
        try:
            parquet.write_table(table, aside, compression="zstd")
            aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)
    return target


def _is_newest(target: Path, home: Path) -> bool:
    """Whether nothing was written, and no run came or went, after `target` was."""
    if not target.is_file():
        return False
    sources = [home / "runs", *run_directories(home)]
    sources += [path / "metrics.jsonl" for path in sources[1:]]
    return target.stat().st_mtime_ns > max(path.stat().st_mtime_ns for path in sources if path.exists())


def _table(arrow: Any, home: Path) -> Any:
    """All points as one Arrow table. Steps are whole numbers unless a job counts in parts of them."""
    runs: list[str] = []
    metrics: list[str] = []
    lengths: list[int] = []
    steps: list[float] = []
    values: list[float] = []
    for directory in run_directories(home):
        for metric, points in read_points(directory / "metrics.jsonl").items():
            runs.append(directory.name)
            metrics.append(metric)
            lengths.append(len(points))
            steps += (step for step, _ in points)
            values += (value for _, value in points)
    whole = all(float(step).is_integer() for step in steps)
    kind = arrow.int64() if whole else arrow.float64()
    return arrow.table(
        {
            "run": _repeated(arrow, runs, lengths),
            "metric": _repeated(arrow, metrics, lengths),
            "step": arrow.array([int(step) for step in steps] if whole else steps, type=kind),
            "value": arrow.array(values, type=arrow.float64()),
        }
    )


def _repeated(arrow: Any, names: list[str], lengths: list[int]) -> Any:
    """A dictionary column of each name so many times."""
    known = {name: code for code, name in enumerate(dict.fromkeys(names))}
    codes = [known[name] for name, length in zip(names, lengths, strict=True) for _ in range(length)]
    names_once = arrow.array(list(known), type=arrow.string())
    return arrow.DictionaryArray.from_arrays(arrow.array(codes, type=arrow.int32()), names_once)
