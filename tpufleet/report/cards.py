"""Cards as a page: one printed sheet per person, no network, no script, text as text."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from tpufleet.cards import Card, Command, facts, sections
from tpufleet.report.html import Child, Element, el, render, stylesheet

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def cards_page(cards: Sequence[Card]) -> str:
    """The cards as one HTML document; on paper each begins a sheet of its own."""
    title = f"{cards[0].fleet}: the card of {cards[0].name}" if len(cards) == 1 else "cards"
    css = resources.files("tpufleet.report").joinpath("cards.css").read_text(encoding="utf-8")
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", title),
        stylesheet(css),
    )
    return render(el("html", head, el("body", [card_element(card) for card in cards]), lang="en"))


def card_element(card: Card) -> Element:
    """One card, `<article>`."""
    rows: list[Child] = [el("div", el("dt", name), el("dd", value)) for name, value in facts(card)]
    return el(
        "article",
        el("header", el("p", card.fleet, class_="kind"), el("h1", card.name), el("dl", rows)),
        el("main", [_section(section.title, section.parts) for section in sections(card)]),
    )


def _section(title: str, parts: Sequence[str | Command]) -> Element:
    return el("section", el("h2", title), [_part(part) for part in parts])


def _part(part: str | Command) -> Child:
    if isinstance(part, str):
        return el("p", part)
    return [el("p", part.where, class_="where") if part.where else None, el("pre", el("code", part.text))]
