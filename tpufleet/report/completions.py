"""What the models wrote: the newest of each run to be read aloud, the earlier ones folded below it."""

from __future__ import annotations

from tpufleet.report.artifacts import Completion
from tpufleet.report.html import Child, Element, el
from tpufleet.report.load import Run
from tpufleet.report.marks import key
from tpufleet.report.table import run_link
from tpufleet.report.text import count, measured, number
from tpufleet.report.view import View


def completions(v: View) -> Element | None:
    """A card for each run that wrote something, in the page's order of runs; None when none did."""
    cards = [_card(v, run) for run in v.runs if run.completions]
    return el("div", cards, class_="cards") if cards else None


def _card(v: View, run: Run) -> Element:
    step = run.completions[-1].step
    newest = [c for c in run.completions if c.step == step]
    earlier = [c for c in run.completions if c.step != step][::-1]
    value = run.metrics.get(v.main) if v.main else None
    return el(
        "article",
        el("h3", key(v.marks.get(run.id)), run_link(run)),
        el("p", _at(step), f" · {v.main} {measured(value)}" if value is not None else None, class_="meta"),
        [_said(completion) for completion in newest],
        _earlier(earlier),
        class_="card",
    )


def _earlier(earlier: list[Completion]) -> Child:
    if not earlier:
        return None
    items = [[el("p", _at(completion.step), class_="meta"), _said(completion)] for completion in earlier]
    return el("details", el("summary", count(len(earlier), "earlier completion")), items)


def _at(step: float | None) -> str:
    return "step unknown" if step is None else f"step {number(step)}"


def _said(completion: Completion) -> Element:
    prompt = el("span", completion.prompt, class_="prompt") if completion.prompt else None
    return el("blockquote", prompt, completion.text)
