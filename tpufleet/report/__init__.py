"""The collected results as one page: `write(home)` reads `artifacts/FLEET` and writes its `report/`.

Below the command line, beside `ops`: it knows files, and nothing of clouds, hosts or SSH. Files become frozen
values (`load`), values become a tree of elements (`page`), and the tree becomes markup (`html`), which is the
one place where text from runs is cleaned and escaped.
"""

from __future__ import annotations

from pathlib import Path

from tpufleet.errors import StateError
from tpufleet.paths import replacing, write_atomically, writing
from tpufleet.report.downloads import METRICS_HEAD, metric_lines, runs_csv, runs_json
from tpufleet.report.html import render
from tpufleet.report.load import Collection, load, look_for
from tpufleet.report.markdown import markdown
from tpufleet.report.metrics import Metrics
from tpufleet.report.page import page
from tpufleet.report.view import view

__all__ = ["write"]


def write(home: Path) -> Path:
    """Write the report on what lies in `home` (`artifacts/FLEET`), and return the path of its page.

    Each file is written aside and renamed, the page last, so that a reader finds the old one or the new one. Raises
    StateError when there is nothing at `home`, or the report can't be written.
    """
    look_for(home)
    folder = home / "report"
    target = folder / "index.html"
    try:
        with writing(target):
            folder.mkdir(exist_ok=True)
            v = view(_load_and_tell(home, folder / "metrics.csv"))
            _put(folder / "runs.csv", runs_csv(v))
            _put(folder / "runs.json", runs_json(v))
            _put(folder / "index.md", markdown(v))
            _put(target, render(page(v)))
    except OSError as error:
        raise StateError(f"the report can't be written: {error.strerror}", where=str(target)) from error
    return target


def _load_and_tell(home: Path, table: Path) -> Collection:
    """What there is; every point of it goes to the `table` while it is read, since that's the long part."""
    with replacing(table, mode=0o644) as file:

        def told(run: str, metrics: Metrics) -> None:
            file.write(metric_lines(run, metrics).encode("utf-8", errors="replace"))

        file.write(METRICS_HEAD.encode())
        return load(home, told)


def _put(path: Path, text: str) -> None:
    write_atomically(path, text.encode("utf-8", errors="replace"), mode=0o644)
