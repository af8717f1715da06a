"""The frame of the board's pages, and the elements that reports have no use for: forms, links to pages of our own.

Every text still goes through `report.html`, where it is cleaned and escaped; what is added here leads only to paths
that are written in this package, so nothing that anybody typed becomes an address or runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from tpufleet.report.html import Child, Element, Value, el, render

_PATH = re.compile(r"/[A-Za-z0-9/_.~%-]*")
AGAIN = ("/again.js",)


def page(
    title: str,
    *body: Child,
    refresh_s: int | None = None,
    scripts: Sequence[str] = (),
    styles: Sequence[str] = (),
    kind: str | None = None,
) -> str:
    """A whole page. `refresh_s`: the browser asks again; where it has no scripts only, if the page has `scripts`.

    `styles` come before the board's own; `kind` is the class of its body.
    """
    again = el("meta", http_equiv="refresh", content=str(refresh_s)) if refresh_s else None
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("noscript", again) if scripts else again,
        el("title", title),
        _own("link", "/icon.svg", rel="icon", type="image/svg+xml"),
        [_own("link", path, rel="stylesheet") for path in (*styles, "/board.css")],
        [Element("script", (("src", _path(path)), ("defer", "")), ()) for path in scripts],
    )
    return render(el("html", head, el("body", body, class_=kind), lang="en"))


def to(path: str, *children: Child, **attributes: Value) -> Element:
    """A link to a page of the board."""
    return _own("a", path, *children, **attributes)


def to_log(run: str, *children: Child, **attributes: Value) -> Element:
    """A link to the log of a run, whatever its name is made of."""
    return _own("a", f"/log/{quote(run, safe='', errors='replace')}", *children, **attributes)


def form(path: str, *children: Child) -> Element:
    """A form that is sent to `path`."""
    attributes = (("method", "post"), ("action", _path(path)), ("accept-charset", "utf-8"))
    return Element("form", attributes, children)


def moved(path: str) -> Element:
    """Leads on to `path` at once, from a page of ours: a strict cookie goes with that, unlike with a redirection."""
    return el("meta", http_equiv="refresh", content=f"0; url={_path(path)}")


def _own(tag: str, path: str, *children: Child, **attributes: Value) -> Element:
    made = el("a", *children, **attributes)
    return Element(tag, (("href", _path(path)), *made.attributes), children)


def _path(path: str) -> str:
    if not _PATH.fullmatch(path) or path.startswith("//"):
        raise ValueError(f"{path!r} is no page of the board")
    return path
