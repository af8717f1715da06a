"""The page, from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from tpufleet.report.completions import completions
from tpufleet.report.details import run_details
from tpufleet.report.fleet import fleet_time, usd
from tpufleet.report.html import DOWNLOADS, Child, Element, data, el, hashed, script, stylesheet
from tpufleet.report.load import Run
from tpufleet.report.marks import key
from tpufleet.report.pictures import curves, curves_data
from tpufleet.report.sweep import sweep
from tpufleet.report.table import run_link, runs_table
from tpufleet.report.view import View, concerns, headline, when, winner

_POLICY = "default-src 'none'; script-src {scripts}; style-src {styles}; base-uri 'none'; form-action 'none'"
_MOST_CONCERNS = 20
_MOST_NAMED = 4
_STYLES = ("style.css", "sections.css", "web/uPlot.min.css", "web/curves.css")
_CURVES = ("uPlot.iife.min.js", "curves_numbers.js", "curves_picture.js", "curves.js")  # each needs those before it
_SCRIPTS = (*(f"web/{name}" for name in _CURVES), "report.js")
_FIRST = 'document.documentElement.classList.add("js");'  # before anything is drawn that scripts would hide again


def page(v: View) -> Element:
    """The whole report as one element, `<html>`. The same collection always gives the same page."""
    parts: list[tuple[str, str, Child]] = [
        ("sweep", "What won", sweep(v)),
        ("curves", "Curves", curves(v)),
        ("runs", "Runs", runs_table(v) if v.runs else None),
        ("completions", "Completions", _completions(v)),
        ("fleet", "The fleet's time", fleet_time(v)),
        ("details", "Run by run", [run_details(v, run) for run in v.runs] if v.runs else None),
    ]
    sections = [(anchor, name, content) for anchor, name, content in parts if content]
    styles = [stylesheet(_own(name)) for name in _STYLES]
    first, scripts = script(_FIRST), [script(_own(name)) for name in _SCRIPTS]
    policy = _POLICY.format(scripts=hashed(first, *scripts), styles=hashed(*styles))
    return el(
        "html",
        _head(v.collection.fleet, policy, [first, *styles]),
        el(
            "body",
            el("a", "Skip to the content", href="#content", class_="skip"),
            _header(v, [(anchor, name) for anchor, name, _ in sections]),
            el(
                "main",
                [el("section", el("h2", name), content, id=anchor) for anchor, name, content in sections],
                id="content",
            ),
            _footer(),
            data("data", curves_data(v)),
            scripts,
        ),
        lang="en",
    )


def _own(name: str) -> str:
    """The text of one of this package's own files."""
    return resources.files("tpufleet.report").joinpath(name).read_text(encoding="utf-8")


def _head(fleet: str, policy: str, parts: list[Element]) -> Element:
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", f"{fleet} – tpufleet report"),
        parts,
    )


def _header(v: View, sections: list[tuple[str, str]]) -> Element:
    best = winner(v)
    time = when(v)
    spent = f"{usd(v.cost)} at list prices" if v.collection.nodes else ""
    return el(
        "header",
        el("p", "tpufleet report", class_="kind"),
        el("h1", v.collection.fleet),
        el("p", headline(v), _winner(v, *best) if best else None, class_="lead"),
        el("p", " · ".join(part for part in (time, spent) if part), class_="meta") if time or spent else None,
        _concerns(v),
        el("nav", [el("a", name, href=f"#{anchor}") for anchor, name in sections], aria_label="Sections")
        if sections
        else None,
    )


def _winner(v: View, words: str, run: Run) -> list[Child]:
    return [" ", el("strong", words), ": ", el("span", key(v.marks.get(run.id)), run_link(run), class_="name"), "."]


def _concerns(v: View) -> Child:
    found = concerns(v)
    if not found:
        return None
    same: dict[str, list[Run | None]] = {}
    for sentence, run in found:
        same.setdefault(sentence, []).append(run)
    items = [el("li", _whose(runs), sentence) for sentence, runs in list(same.items())[:_MOST_CONCERNS]]
    if len(same) > _MOST_CONCERNS:
        items.append(el("li", f"And {len(same) - _MOST_CONCERNS:,} more; they stand with their runs."))
    return el("aside", el("h2", "Worth knowing"), el("ul", items), class_="concerns")


def _whose(runs: Sequence[Run | None]) -> Child:
    """The runs that a sentence is about, in front of it; of many the first few."""
    named = [run for run in runs if run]
    links = [[", " if i else None, run_link(run)] for i, run in enumerate(named[:_MOST_NAMED])]
    more = f" and {len(named) - _MOST_NAMED:,} more" if len(named) > _MOST_NAMED else None
    return [links, more, " "] if named else None


def _completions(v: View) -> Child:
    cards = completions(v)
    if cards is None:
        return None
    explained = el(
        "p", el("span", "Marked", class_="prompt"), " is the prompt, the rest is what the model wrote.", class_="quiet"
    )
    return [explained, cards]


def _footer() -> Element:
    files = [[" · " if i else None, el("a", name, href=name)] for i, name in enumerate(DOWNLOADS)]
    return el(
        "footer",
        el("p", "Beside this page: ", files),
        el(
            "p",
            "Written by tpufleet. This file needs no network, and runs no script but its own; it can be read without.",
        ),
    )
