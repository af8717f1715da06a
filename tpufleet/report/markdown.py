"""`index.md`: what came of it, for a pull request or a chat.

Text from runs stands in code spans and code blocks only, where Markdown knows no link, picture, mention or markup,
between more backticks than it holds itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tpufleet.report.artifacts import Completion
from tpufleet.report.fleet import usd
from tpufleet.report.load import Run
from tpufleet.report.text import clean, count, duration, measured, number, shorten
from tpufleet.report.view import View, best_of, concerns, headline, param_names, when

_MOST_ROWS = 30
_MOST_PARAMS = 6
_MOST_METRICS = 6
_MOST_CONCERNS = 10
_LONG = 60
_LONGEST = 400  # of a sentence
_EXCERPT = 600
_OWN_STATE = re.compile(r"[a-z]{1,16}")


def markdown(v: View) -> str:
    """The report in short, as GitHub-flavoured Markdown."""
    parts = [f"# tpufleet report: {code(v.collection.fleet)}", _lead(v), *_concerns(v), *_table(v), *_said(v)]
    parts.append(
        "The whole report is `index.html` beside this file: one file, to be opened in any browser, without a network. "
        "Beside it are `runs.csv`, `runs.json` and `metrics.csv`."
    )
    return "\n\n".join(parts) + "\n"


def code(text: str, limit: int = _LONG) -> str:
    """`text` as a code span on one line that also fits into a table's cell; `–` for nothing.

    In a cell a vertical bar would end the cell even within code, so it becomes a broken one.
    """
    flat = " ".join(shorten(clean(text), limit).split()).replace("|", "¦")
    if not flat:
        return "–"
    fence = "`" * (_longest(flat) + 1)
    inner = f" {flat} " if flat.startswith("`") or flat.endswith("`") else flat
    return f"{fence}{inner}{fence}"


def block(text: str) -> str:
    """`text` as a block of code."""
    text = clean(text)
    fence = "`" * max(3, _longest(text) + 1)
    return f"{fence}text\n{text}\n{fence}"


def _longest(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _lead(v: View) -> str:
    words = [headline(v)]
    if v.best and v.main:
        words.append(f"Best {code(v.main)} **{measured(v.best.metrics[v.main])}**: {code(v.best.id, 128)}.")
    if time := when(v):
        words.append(f"{time}.")
    if v.collection.nodes:
        words.append(f"Cost: {usd(v.cost)} at list prices, not a bill.")
    return " ".join(words)


def _concerns(v: View) -> list[str]:
    found = concerns(v)
    if not found:
        return []
    lines = [
        f"- {code(run.id, 128)}: {code(said, _LONGEST)}" if run else f"- {code(said, _LONGEST)}" for said, run in found
    ]
    left = len(lines) - _MOST_CONCERNS
    more = [f"- and {left:,} more"] if left > 0 else []
    return ["**Worth knowing**", "\n".join([*lines[:_MOST_CONCERNS], *more])]


def _table(v: View) -> list[str]:
    if not v.runs:
        return []
    params = param_names(v.runs)[:_MOST_PARAMS]
    metrics = v.columns[:_MOST_METRICS]
    heads = ["run", "state", *map(code, params), "step", *map(code, metrics), "time on a chip", "commit"]
    bests = {name: best_of(v.runs, name) for name in metrics}
    rule = ["---", "---", *("---" for _ in params), "---:", *("---:" for _ in metrics), "---:", "---"]
    rows = [_row(run, params, bests) for run in v.runs[:_MOST_ROWS]]
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, rule, *rows)]
    left = len(v.runs) - _MOST_ROWS
    return ["\n".join(lines), *([f"{count(left, 'further run')} in `runs.csv`."] if left > 0 else [])]


def _row(run: Run, params: Sequence[str], bests: dict[str, float | None]) -> list[str]:
    return [
        code(run.id, 128),
        run.state if _OWN_STATE.fullmatch(run.state) else code(run.state),
        *(code(run.params.get(name, "")) for name in params),
        "–" if run.step is None else number(run.step),
        *(_value(run, name, best) for name, best in bests.items()),
        "–" if run.trained_for is None else duration(run.trained_for),
        f"{code(run.commit[:9])}{' + changes' if run.dirty else ''}" if run.commit else "–",
    ]


def _value(run: Run, name: str, best: float | None) -> str:
    value = run.metrics.get(name)
    if value is None:
        return "–"
    return f"**{measured(value)}**" if value == best else measured(value)


def _said(v: View) -> list[str]:
    """What the best run wrote last, to be read aloud."""
    run = v.best if v.best and v.best.completions else next((run for run in v.runs if run.completions), None)
    if run is None:
        return []
    last: Completion = run.completions[-1]
    text = f"{last.prompt}{last.text}"
    at = "" if last.step is None else f" at step {number(last.step)}"
    return [f"{code(run.id, 128)}{at} wrote:", block(text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…")]
