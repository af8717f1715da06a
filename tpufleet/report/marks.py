"""A run's own colour and shape, the same in every picture, table and heading of the page.

Shape and colour vary together, so that nobody needs to see the colour; the colours themselves (in style.css)
follow Okabe and Ito's palette for colour-blind readers, darkened or lightened until each stands out 3:1.
"""

from __future__ import annotations

from tpufleet.report.html import Element, el

COLOURS = 8
_SHAPES = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",  # circle
    "M-3.6-3.6h7.2v7.2h-7.2z",  # square
    "M0-4.8L4.6 3.6H-4.6z",  # triangle
    "M0-5.2L5.2 0L0 5.2L-5.2 0z",  # diamond
    "M0 4.8L4.6-3.6H-4.6z",  # triangle, point down
    "M-1.5-4.6h3v3.1h3.1v3h-3.1v3.1h-3v-3.1h-3.1v-3h3.1z",  # plus
    "M-4.8-2.4h9.6v4.8h-9.6z",  # bar
    "M-4.4-4.4L0-1.6L4.4-4.4L1.6 0L4.4 4.4L0 1.6L-4.4 4.4L-1.6 0z",  # star of four
)
MOST = COLOURS * 2  # more runs than this can't be told apart at a glance; the others stay grey


def colour_class(index: int | None) -> str:
    """The class that sets a run's colour; None is for runs without a mark of their own."""
    return "grey" if index is None else f"c{index % COLOURS}"


def shape(index: int) -> Element:
    """The mark itself, 10 pixels wide around the origin, in the current colour."""
    turn = index // COLOURS  # the second round of colours begins at another shape
    return el("path", class_="mark", d=_SHAPES[(index + 3 * turn) % len(_SHAPES)])


def key(index: int | None) -> Element | None:
    """The mark as a small picture in front of a run's name."""
    if index is None:
        return None
    return el(
        "svg",
        shape(index),
        class_=f"key {colour_class(index)}",
        viewBox="-6 -6 12 12",
        width=12,
        height=12,
        aria_hidden="true",
    )
