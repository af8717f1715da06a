"""A tree of elements that becomes markup, in which every text is only ever text.

There is one way in for a string, as a child or as an attribute's value, and both are cleaned and escaped when
the tree is rendered. Nothing can be passed through as markup, and a link can only lead to a place in the same page
or to one of the files that are written beside it. Styles and scripts are this package's own files, made by
`stylesheet` and `script`, and the page's policy names each by its hash, so that the browser runs nothing else;
`data` carries values to them as JSON, which no browser runs.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias, cast

from tpufleet.report.text import clean

Child: TypeAlias = "Element | str | Sequence[Child] | None"
Value: TypeAlias = "str | int | float | bool | None"

_TAG = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")
_FORBIDDEN_TAGS = frozenset({"script", "iframe", "object", "embed", "base", "link", "form", "foreignObject"})
_VOID = frozenset({"meta", "br", "hr", "col", "input", "link"})
_RAW = frozenset({"style", "script"})  # raw text by the HTML standard; only the constructors below give them children
_SPECIAL = re.compile(r"[^ !#-%(-;=?-~]")  # what is shown as something else: marks of markup, and all but plain ASCII
_LEAVES_SCRIPT = re.compile(r"</script|<script|<!--", re.IGNORECASE)
_IN_JSON = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}
DOWNLOADS = ("runs.csv", "runs.json", "metrics.csv", "index.md")
_FORBIDDEN_ATTRIBUTES = re.compile(r"on.*|style|src|srcdoc|action|formaction|xlink.*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Element:
    """One element: a tag, its attributes in the order written, its children."""

    tag: str
    attributes: tuple[tuple[str, str], ...]
    children: tuple[Child, ...]


def el(tag: str, *children: Child, **attributes: Value) -> Element:
    """An element. `class_` means class, `aria_label` aria-label; None and False leave an attribute out.

    Raises ValueError for a tag or an attribute that could run something or lead out of the page: such a call
    is a mistake in this package, whatever the data.
    """
    pairs: list[tuple[str, str]] = []
    for word, value in attributes.items():
        if value is not None and value is not False:
            name, said = _attribute_name(word), "" if value is True else str(value)
            if name == "href" and not _leads_nowhere(said):
                raise ValueError(f"no {name}={said!r} in a report")
            pairs.append((name, said))
    return Element(_safe_tag(tag), tuple(pairs), children)


def stylesheet(css: str) -> Element:
    """A style element of the package's own CSS; markup has no escapes inside it, so `<` is refused."""
    if "<" in css:
        raise ValueError("a stylesheet must not contain '<'")
    return Element("style", (), (css,))


def script(code: str) -> Element:
    """A script element of the package's own code; what could end it early is refused."""
    if _LEAVES_SCRIPT.search(code):
        raise ValueError("a script must hold neither a script element nor a comment's beginning")
    return Element("script", (), (code,))


def data(name: str, value: object) -> Element:
    """`value` as JSON in a block with the id `name`, for the page's scripts. Strings in it are cleaned, numbers that
    JSON has no word for become null, and nothing in it can end the block."""
    text = json.dumps(_plain(value), separators=(",", ":"), allow_nan=False)  # plain ASCII, so U+2028 is escaped too
    return Element("script", (("type", "application/json"), ("id", name)), (text.translate(_IN_JSON),))


def hashed(*elements: Element) -> str:
    """The sources by which a policy allows exactly these styles or scripts, and no others."""
    digests = (hashlib.sha256("".join(map(str, e.children)).encode()).digest() for e in elements)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def render(root: Element) -> str:
    """The tree as an HTML document's text."""
    out = ["<!doctype html>\n"]
    _render_element(root, out)
    out.append("\n")
    return "".join(out)


def fragment(root: Element) -> str:
    """The tree as markup without a doctype, such as one picture."""
    out: list[str] = []
    _render_element(root, out)
    return "".join(out)


def _leads_nowhere(href: str) -> bool:
    return href.startswith("#") or href in DOWNLOADS


def _plain(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        return (int(value) if value.is_integer() else value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {clean(str(name)): _plain(item) for name, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in cast("Sequence[object]", value)]
    return value


@cache  # tags and attributes are this package's own words, some dozens, and a page has 100,000 elements
def _safe_tag(tag: str) -> str:
    if not _TAG.fullmatch(tag) or tag in _FORBIDDEN_TAGS:
        raise ValueError(f"no <{tag}> in a report")
    return tag


@cache
def _attribute_name(name: str) -> str:
    written = name.rstrip("_").replace("_", "-")
    if _FORBIDDEN_ATTRIBUTES.fullmatch(written):
        raise ValueError(f"no {written}= in a report")
    return written


def _render(nodes: Sequence[Child], out: list[str]) -> None:
    for node in nodes:
        if isinstance(node, str):
            out.append(_escaped(node, quote=False))
        elif isinstance(node, Element):
            _render_element(node, out)
        elif node is not None:
            _render(node, out)


def _render_element(element: Element, out: list[str]) -> None:
    tag = element.tag
    pairs = [f' {name}="{_escaped(value, quote=True)}"' for name, value in element.attributes]
    out.append(f"<{tag}{''.join(pairs)}>")
    if tag in _VOID:
        return
    if tag in _RAW:
        out.extend(child for child in element.children if isinstance(child, str))
    else:
        _render(element.children, out)
    out.append(f"</{tag}>")


def _escaped(text: str, *, quote: bool) -> str:
    """`text` as markup that says it and nothing else; `quote` for what stands between double quotes."""
    return html.escape(clean(text), quote=quote) if _SPECIAL.search(text) else text
