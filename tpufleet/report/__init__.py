"""The collected results as one page: `write(home)` reads `artifacts/FLEET` and writes its `report/index.html`.

Below the command line, beside `ops`: it knows files, and nothing of clouds, hosts or SSH. Files become frozen
values (`load`), values become a tree of elements (`page`), and the tree becomes markup (`html`), which is the
one place where text from runs is cleaned and escaped.
"""

from __future__ import annotations

from pathlib import Path

from tpufleet.errors import StateError
from tpufleet.paths import write_atomically, writing
from tpufleet.report.html import render
from tpufleet.report.load import load
from tpufleet.report.page import page

__all__ = ["write"]


def write(home: Path) -> Path:
    """Write the report on what lies in `home` (`artifacts/FLEET`), and return its path.

    The file is written aside and renamed, so that a reader finds the old page or the new one. Raises
    StateError when there is nothing at `home`, or the page can't be written.
    """
    text = render(page(load(home)))
    target = home / "report" / "index.html"
    try:
        with writing(target):
            target.parent.mkdir(exist_ok=True)
            write_atomically(target, text.encode(), mode=0o644)
    except OSError as error:
        raise StateError(f"the report can't be written: {error.strerror}", where=str(target)) from error
    return target
