"""The wall: what the models write, one text at a time, for the projector and for reading aloud."""

from __future__ import annotations

from tpufleet.board.markup import page, to
from tpufleet.board.parts import draw, part_id
from tpufleet.board.scene import Scene
from tpufleet.report.html import el

REFRESH_S = 12


def wall_page(fleet: str, scene: Scene) -> str:
    """The page of `fleet`, as a whole document. Without scripts it shows the newest text."""
    pieces = {part_id("pieces", piece): draw("pieces", piece) for piece in scene.pieces}
    return page(
        f"{fleet}: the wall",
        el("h1", f"{fleet}: what the models write", class_="unseen"),
        el("main", el("div", list(pieces.values()), id="pieces"), id="wall"),
        el(
            "footer",
            el("p", id="wall-said", class_="said"),
            el("nav", to("/", fleet), aria_label="Pages"),
            el(
                "div",
                [
                    el("button", symbol, type="button", id=name, aria_label=title, title=title)
                    for name, symbol, title in (
                        ("wall-back", "←", "The one before (left arrow)"),
                        ("wall-pause", "❚❚", "Stay with this one (space)"),
                        ("wall-next", "→", "The next one (right arrow)"),
                        ("wall-full", "⛶", "Full screen (f)"),
                    )
                ],
                id="wall-keys",
                hidden=True,
            ),
        ),
        refresh_s=REFRESH_S,
        scripts=("/live.js", "/wall.js"),
        styles=("/wall.css",),
        kind="wall",
    )
