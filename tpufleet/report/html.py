"""A tree of elements that becomes markup, in which every text is only ever text.

There is one way in for a string, as a child or as an attribute's value, and both are cleaned and escaped when
the tree is rendered. Nothing can be passed through as markup, no element can carry a script, and a link can
only lead to a place in the same page.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tpufleet.report.text import clean

Child: TypeAlias = "Element | str | Sequence[Child] | None"
Value: TypeAlias = "str | int | float | bool | None"

_TAG = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")
_FORBIDDEN_TAGS = frozenset({"script", "iframe", "object", "embed", "base", "link", "form", "foreignObject"})
_VOID = frozenset({"meta", "br", "hr", "col", "input", "link"})
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
    if not _TAG.fullmatch(tag) or tag in _FORBIDDEN_TAGS:
        raise ValueError(f"no <{tag}> in a report")
    pairs = tuple(
        (_attribute_name(name), "" if value is True else str(value))
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    for name, value in pairs:
        if _FORBIDDEN_ATTRIBUTES.fullmatch(name) or (name == "href" and not value.startswith("#")):
            raise ValueError(f"no {name}={value!r} in a report")
    return Element(tag, pairs, children)


def stylesheet(css: str) -> Element:
    """A style element of the package's own CSS; markup has no escapes inside it, so `<` is refused."""
    if "<" in css:
        raise ValueError("a stylesheet must not contain '<'")
    return Element("style", (), (css,))


def render(root: Element) -> str:
    """The tree as an HTML document's text."""
    out = ["<!doctype html>\n"]
    _render(root, out)
    out.append("\n")
    return "".join(out)


def fragment(root: Element) -> str:
    """The tree as markup without a doctype, such as one picture."""
    out: list[str] = []
    _render(root, out)
    return "".join(out)


def _attribute_name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _render(node: Child, out: list[str]) -> None:
    if node is None:
        return
    if isinstance(node, str):
        out.append(html.escape(clean(node), quote=False))
    elif isinstance(node, Element):
        _render_element(node, out)
    else:
        for child in node:
            _render(child, out)


def _render_element(element: Element, out: list[str]) -> None:
    out.append(f"<{element.tag}")
    out.extend(f' {name}="{html.escape(clean(value))}"' for name, value in element.attributes)
    out.append(">")
    if element.tag in _VOID:
        return
    if element.tag == "style":  # raw text by the HTML standard; only stylesheet() makes one with children
        out.extend(child for child in element.children if isinstance(child, str))
    else:
        _render(element.children, out)
    out.append(f"</{element.tag}>")
