"""What the models wrote, by prompt: the newest of each run to be read aloud, the earlier ones folded below it."""

from __future__ import annotations

from collections.abc import Sequence

from tpufleet.report.artifacts import Completion
from tpufleet.report.html import Child, Element, el
from tpufleet.report.load import Run
from tpufleet.report.marks import key
from tpufleet.report.table import in_time, run_link
from tpufleet.report.text import count, measured, number, shorten
from tpufleet.report.view import View

_AT_ONCE = 24  # cards in the page from the start; a script puts in the others when they are wanted
_MOST_PROMPTS = 12  # prompts with a heading of their own; the others come together
_LONG = 80


def completions(v: View) -> Child:
    """A card for each run that wrote something, in the page's order of runs, under each prompt; None for no cards."""
    prompts = _prompts(v.runs)
    if not prompts:
        return None
    if len(prompts) == 1:
        return _gallery(v, None, v.runs)
    own = prompts[:_MOST_PROMPTS] if len(prompts) <= _MOST_PROMPTS else prompts[: _MOST_PROMPTS - 1]
    parts: list[Child] = [
        _prompt(v, shorten(prompt, _LONG) or "Without a prompt", frozenset([prompt])) for prompt in own
    ]
    others = frozenset(prompts[len(own) :])
    if others:
        parts.append(_prompt(v, f"{count(len(others), 'further prompt')}", others))
    return parts


def _prompts(runs: Sequence[Run]) -> list[str]:
    """Every prompt once, in the order in which the runs have them."""
    return list(dict.fromkeys(completion.prompt for run in runs for completion in run.completions))


def _prompt(v: View, heading: str, prompts: frozenset[str]) -> Element:
    return el("div", el("h3", heading, class_="asked"), _gallery(v, prompts, v.runs), class_="asked")


def _gallery(v: View, prompts: frozenset[str] | None, runs: Sequence[Run]) -> Element:
    chosen = [(run, [c for c in run.completions if prompts is None or c.prompt in prompts]) for run in runs]
    cards = [_card(v, run, said, 3 if prompts is None else 4) for run, said in chosen if said]
    later = in_time(cards[_AT_ONCE:], lazy=True) if len(cards) > _AT_ONCE else None
    return el("div", cards[:_AT_ONCE], later, class_="cards")


def _card(v: View, run: Run, said: Sequence[Completion], rank: int) -> Element:
    step = said[-1].step
    newest = [c for c in said if c.step == step]
    earlier = [c for c in said if c.step != step][::-1]
    value = run.metrics.get(v.main) if v.main else None
    return el(
        "article",
        el(f"h{rank}", key(v.marks.get(run.id)), run_link(run), class_="whose"),
        el("p", _at(step), f" · {v.main} {measured(value)}" if value is not None else None, class_="meta"),
        [_said(completion) for completion in newest],
        _earlier(earlier),
        class_="card",
        data_run=run.id,
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
