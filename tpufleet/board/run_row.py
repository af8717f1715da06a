"""A run as a row of the board's table: what state it is in, how far it got, how fast, and what it has learnt."""

from __future__ import annotations

from datetime import UTC, timedelta

from tpufleet.board.markup import to_log
from tpufleet.board.scene import RunRow
from tpufleet.report.html import Child, Element, el
from tpufleet.report.text import count, duration, measured, number

COLUMNS = ("State", "Run", "Chips", "Step", "Steps/s", "Left", "Loss")
SYMBOLS = {"running": "▶", "recovering": "↻", "queued": "…", "done": "✓", "failed": "✕", "stopped": "■"}
_ORDER = ("running", "recovering", "queued", "failed", "stopped", "done")


def run_row(part: str, run: RunRow) -> Element:
    """The row with the id `part`. Each cell says its column's name, and by which value it is sorted."""
    cells = (
        _cell("State", _state(run), _ORDER.index(run.state) if run.state in _ORDER else len(_ORDER), class_="state"),
        _name(run),
        _cell("Chips", ", ".join(run.chips) or "–", run.chips[0] if run.chips else ""),
        _cell("Step", _steps(run), run.step),
        _cell("Steps/s", "–" if run.rate is None else _rate(run.rate), run.rate, class_="n"),
        _cell("Left", "–" if run.left_s is None else _rest(run.left_s), run.left_s, class_="n"),
        _loss(run),
        el("td", _about(run), class_="about", hidden=True),
    )
    return el("tr", cells, id=part, role="row", data_run=run.id)


def _cell(column: str, content: Child, value: str | float | None, **attributes: str) -> Element:
    return el("td", content, role="cell", data_label=column, data_value="" if value is None else value, **attributes)


def _state(run: RunRow) -> Child:
    symbol = el("span", f"{SYMBOLS.get(run.state, '?')}\ufe0e", class_="symbol", aria_hidden="true")
    why = run.reason if run.state in ("failed", "stopped", "recovering") else run.why
    return [
        el("span", symbol, el("span", run.state), class_=f"word {run.state if run.state in SYMBOLS else ''}".rstrip()),
        el("span", why, class_="why", title=why) if why else None,
    ]


def _name(run: RunRow) -> Element:
    link = to_log(run.id, run.id, title=run.id) if run.person is None else el("a", run.id, href="#runs", title=run.id)
    who = el("span", f"by {run.person}", class_="why") if run.person else None
    return el("th", link, who, scope="row", role="rowheader", data_label="Run", data_value=run.id)


def _rate(rate: float) -> str:
    return f"{rate:.1f}" if 1 <= rate < 1000 else number(rate)


def _steps(run: RunRow) -> Child:
    if run.step is None:
        return "–"
    if not run.of:
        return f"{run.step:,}"
    return [
        el("span", f"{run.step:,}", el("span", f" of {run.of:,}", class_="of")),
        el("progress", value=min(run.step, run.of), max=run.of, aria_label=f"Steps of {run.id}"),
    ]


def _rest(seconds: float) -> str:
    """How long it will take, no finer than can be known: minutes, beyond a few of them."""
    return duration(timedelta(seconds=seconds if seconds < 300 else round(seconds / 60) * 60)).replace(" 00 s", "")


def _loss(run: RunRow) -> Element:
    """The deciding metric as a number, and one more beside it."""
    shown = sorted((m for m in run.metrics if "loss" in m[0].lower()), key=lambda metric: metric[0] != "test_loss")
    if not shown:
        return _cell("Loss", "–", None, class_="n")
    (name, value), *more = shown
    other = el("span", f"{more[0][0]} {measured(more[0][1])}", class_="why") if more else None
    return _cell("Loss", [el("span", measured(value), title=name, class_="value"), other], value, class_="n")


def _about(run: RunRow) -> Element:
    """All that is known of the run, for the page that shows nothing else."""
    started = f"{run.started.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if run.started else None
    facts: list[tuple[str, str | None]] = [
        ("Job", run.job),
        ("Person", run.person),
        ("Started", started),
        ("Attempts", count(run.attempts, "start") if run.attempts else None),
        ("Reason", run.reason),
        ("Waits for", run.why),
        *run.params,
        *((name, measured(value)) for name, value in run.metrics),
    ]
    return el("dl", [[el("dt", name), el("dd", value)] for name, value in facts if value])
