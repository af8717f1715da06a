"""The board itself: what each chip does, how the runs fare, what the models write, to be read from the back of a room.

It is whole without scripts, but for the curves; with them, its parts are exchanged as they change.
"""

from __future__ import annotations

from collections.abc import Sequence

from tpufleet.board.markup import page, to
from tpufleet.board.parts import Item, draw, head, part_id
from tpufleet.board.run_row import COLUMNS
from tpufleet.board.scene import Scene
from tpufleet.report.html import Child, Element, el

REFRESH_S = 5
STYLES = ("/uPlot.min.css", "/curves.css", "/live.css")
PLOT_SCRIPTS = ("/uPlot.iife.min.js", "/curves_numbers.js", "/curves_picture.js", "/curves.js")
SCRIPTS = (*PLOT_SCRIPTS, "/live.js", "/drawer.js", "/runs.js", "/pieces.js", "/board.js")


def board_page(fleet: str, scene: Scene) -> str:
    """The page of `fleet`, as a whole document."""
    return page(
        fleet,
        el("a", "Skip to the runs", href="#runs-title", class_="skip"),
        el(
            "header",
            el("h1", fleet),
            el("p", "not live", id="line", class_="line", title="whether news arrive by themselves"),
            el("nav", to("/wall", "Wall"), aria_label="Pages"),
            head(scene),
            class_="top",
        ),
        el(
            "main",
            _section("chips", "Chips", el("div", _parts("hosts", scene.hosts), id="hosts", class_="hosts")),
            _section("runs", "Runs", _runs_tools(), _runs(scene)),
            _section("curves", "Curves", el("div", id="curves"), hidden=True),
            _section("pieces", "What the models write", _pieces_tools(), _pieces(scene)),
            _section("happenings", "Events", _happenings(scene)),
        ),
        refresh_s=REFRESH_S,
        scripts=SCRIPTS,
        styles=STYLES,
        kind="live",
    )


def _section(name: str, title: str, *content: Child, hidden: bool = False) -> Element:
    heading = el("h2", title, id=f"{name}-title", tabindex=-1)
    return el("section", heading, content, aria_labelledby=f"{name}-title", class_=f"of-{name}", hidden=hidden)


def _parts(name: str, items: Sequence[Item]) -> list[Child]:
    """The elements of a list, each id once."""
    return list({part_id(name, item): draw(name, item) for item in items}.values())


def _runs(scene: Scene) -> Element:
    names = [el("th", column, scope="col", role="columnheader", data_label=column) for column in COLUMNS]
    return el(
        "table",
        el("thead", el("tr", names, role="row"), role="rowgroup"),
        el("tbody", _parts("runs", scene.runs), id="runs", role="rowgroup"),
        role="table",
        aria_labelledby="runs-title",
        class_="table",
    )


def _runs_tools() -> Element:
    """What only scripts can do is hidden until they run."""
    return el(
        "p",
        el("label", "Filter the runs", for_="runs-filter", class_="unseen"),
        el("input", type="search", id="runs-filter", placeholder="name, state, chip …"),
        el("label", "Order", for_="runs-order", class_="unseen"),
        el("select", id="runs-order"),
        el("span", id="runs-count", class_="help"),
        class_="tools",
        hidden=True,
    )


def _pieces(scene: Scene) -> Element:
    return el("div", _parts("pieces", scene.pieces), id="pieces", class_="pieces")


def _pieces_tools() -> Element:
    def choice(name: str, title: str, *options: Element) -> list[Child]:
        return [el("label", title, for_=name, class_="unseen"), el("select", options, id=name)]

    return el(
        "p",
        choice("pieces-prompt", "Prompt", el("option", "All prompts", value="")),
        choice("pieces-who", "Who", el("option", "All runs and people", value="")),
        choice(
            "pieces-step", "Steps", el("option", "Newest step of each run", value="newest"), el("option", "All steps")
        ),
        el("button", "", type="button", id="pieces-new", hidden=True),
        class_="tools",
        hidden=True,
    )


def _happenings(scene: Scene) -> Element:
    found = _parts("happenings", scene.happenings)
    return el("ol", found, id="happenings", class_="happenings", tabindex=0, aria_label="Events")  # it may scroll
