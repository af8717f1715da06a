"""The scripts, styles and pictures that the board's pages load: the package's own files, and nothing from elsewhere."""

from __future__ import annotations

from importlib import resources

_KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_BOARD = "board.css live.css wall.css icon.svg again.js live.js runs.js pieces.js drawer.js board.js wall.js"
_WEB = "uPlot.min.css curves.css uPlot.iife.min.js curves_numbers.js curves_picture.js curves.js"
_PLACES = {"board": _BOARD, "report": "cards.css", "report/web": _WEB}
FILES = {f"/{name}": place for place, names in _PLACES.items() for name in names.split()}


def file(path: str) -> tuple[str, str]:
    """The text of one of `FILES`, and its media type."""
    text = resources.files("tpufleet").joinpath(f"{FILES[path]}{path}").read_text(encoding="utf-8")
    return text, _KINDS[path.rpartition(".")[2]]
