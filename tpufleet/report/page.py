"""The page, from top to bottom."""

from __future__ import annotations

from importlib import resources

from tpufleet.report.completions import completions
from tpufleet.report.details import run_details
from tpufleet.report.html import Child, Element, el, stylesheet
from tpufleet.report.load import Collection, Run
from tpufleet.report.marks import MOST, key
from tpufleet.report.svg import Series, chart, outside
from tpufleet.report.table import run_link, runs_table
from tpufleet.report.text import count, measured
from tpufleet.report.view import View, concerns, headline, view, when, winner

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_MOST_PICTURES = 12
_MOST_CONCERNS = 20


def page(collection: Collection) -> Element:
    """The whole report as one element, `<html>`. The same collection always gives the same page."""
    v = view(collection)
    parts = [("curves", "Curves", _curves(v)), ("runs", "Runs", _runs(v))]
    parts += [("completions", "Completions", _completions(v)), ("details", "Run by run", _details(v))]
    sections = [(anchor, name, content) for anchor, name, content in parts if content]
    return el(
        "html",
        _head(collection.fleet),
        el(
            "body",
            el("a", "Skip to the content", href="#content", class_="skip"),
            _header(v, [(anchor, name) for anchor, name, _ in sections]),
            el(
                "main",
                [el("section", el("h2", name), content, id=anchor) for anchor, name, content in sections],
                id="content",
            ),
            el("footer", el("p", "Written by tpufleet. This file needs no network and runs no script.")),
        ),
        lang="en",
    )


def _head(fleet: str) -> Element:
    css = resources.files("tpufleet.report").joinpath("style.css").read_text(encoding="utf-8")
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", f"{fleet} – tpufleet report"),
        stylesheet(css),
    )


def _header(v: View, sections: list[tuple[str, str]]) -> Element:
    best = winner(v)
    time = when(v)
    return el(
        "header",
        el("p", "tpufleet report", class_="kind"),
        el("h1", v.collection.fleet),
        el("p", headline(v), _winner(v, *best) if best else None, class_="lead"),
        el("p", time, class_="meta") if time else None,
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
    items = [el("li", [run_link(run), " "] if run else None, sentence) for sentence, run in found[:_MOST_CONCERNS]]
    if len(found) > _MOST_CONCERNS:
        items.append(el("li", f"And {len(found) - _MOST_CONCERNS:,} more; they stand with their runs."))
    return el("aside", el("h2", "Worth knowing"), el("ul", items), class_="concerns")


def _curves(v: View) -> Child:
    if not v.main and not v.others:
        return el("p", "No metrics came home.", class_="quiet") if v.runs else None
    small = v.others[:_MOST_PICTURES]
    return [
        _large(v, v.main) if v.main else None,
        el("div", [_small(v, name) for name in small], class_="pictures") if small else None,
        _left_out(len(v.others) - len(small)),
    ]


def _large(v: View, metric: str) -> Element:
    series = _series(v, metric)
    grey = len(series) - sum(s.mark is not None for s in series)
    more = f" The best {MOST} are marked, the other {grey:,} are grey." if grey else ""
    above = f" {sentence}" if (sentence := outside(series)) else ""
    caption = el("figcaption", el("b", metric), f" over steps, {count(len(series), 'run')}.{more}{above}")
    return el("figure", caption, chart(metric, series, labels=True), _legend(v, metric), class_="large")


def _small(v: View, metric: str) -> Element:
    return el("figure", el("figcaption", el("b", metric)), chart(metric, _series(v, metric), labels=False))


def _series(v: View, metric: str) -> list[Series]:
    return [Series(run.id, run.curves[metric], v.marks.get(run.id)) for run in v.runs if metric in run.curves]


def _legend(v: View, metric: str) -> Element:
    """Names and last values below the picture, where the screen is too narrow for them beside it."""
    marked = [run for run in v.runs if run.id in v.marks and metric in run.metrics]
    items = [el("li", key(v.marks[r.id]), run_link(r), " ", el("b", measured(r.metrics[metric]))) for r in marked]
    return el("ul", items, class_="legend")


def _left_out(metrics: int) -> Child:
    if metrics <= 0:
        return None
    return el(
        "p", f"{count(metrics, 'further metric')} not drawn; the last values stand with each run.", class_="quiet"
    )


def _runs(v: View) -> Child:
    return runs_table(v) if v.runs else None


def _completions(v: View) -> Child:
    cards = completions(v)
    if cards is None:
        return None
    explained = el(
        "p", el("span", "Marked", class_="prompt"), " is the prompt, the rest is what the model wrote.", class_="quiet"
    )
    return [explained, cards]


def _details(v: View) -> Child:
    return [run_details(v, run) for run in v.runs] if v.runs else None
