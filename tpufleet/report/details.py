"""Everything about one run, folded away until somebody asks."""

from __future__ import annotations

import shlex
from datetime import timedelta

from tpufleet.report.artifacts import Checkpoint
from tpufleet.report.html import Child, Element, el
from tpufleet.report.load import Attempt, Run
from tpufleet.report.marks import key
from tpufleet.report.table import commit, in_time, scrolling, state
from tpufleet.report.text import clock, duration, measured, number, size
from tpufleet.report.view import FACTS, View

_MOST = 100  # sections that are all in the page at once; of more, each is put in when it is opened


def run_details(v: View, run: Run) -> Element:
    """One run's section; a link to it opens it, since its anchor lies inside."""
    value = run.metrics.get(v.main) if v.main else None
    return el(
        "details",
        el(
            "summary",
            el("h3", key(v.marks.get(run.id)), run.id),
            el("span", state(run), class_="aside"),
            el("span", f"{v.main} {measured(value)}", class_="aside") if value is not None else None,
        ),
        in_time(_body(v, run), lazy=len(v.runs) > _MOST),
        class_="run",
        data_run=run.id,
    )


def _body(v: View, run: Run) -> Element:
    return el(
        "div",
        [el("p", note, class_="note") for note in run.notes],
        _facts(v, run),
        _attempts(run),
        _checkpoints(run),
        _diff(run),
        _troubles(run),
        _log(run),
        class_="body",
        id=f"run-{run.id}",
    )


def _facts(v: View, run: Run) -> Element:
    command = el("code", shlex.join(run.command)) if run.command else None
    pairs: list[tuple[str, Child]] = [
        ("Command", command),
        ("Parameters", _named(run.params)),
        ("Last values", _named({name: measured(value) for name, value in run.metrics.items() if name not in FACTS})),
        ("Job", run.job),
        ("Chips", ", ".join(run.chips)),
        ("Host", run.host),
        ("Commit", commit(run, 40) if run.commit else None),
        ("Started", f"{clock(run.started)} UTC" if run.started else None),
        ("Ended", f"{clock(run.ended)} UTC" if run.ended and run.state != "running" else None),
        ("Time on a chip", duration(run.trained_for) if run.trained_for is not None else None),
        ("Cost", f"${v.cost.runs[run.id]:,.2f} at list prices" if run.id in v.cost.runs else None),
        ("Versions", _named(run.versions)),
        ("Compilations", _compilations(run)),
        ("Resumed from", run.resumed_from),
        ("Files", f"runs/{run.id}/"),
        *run.facts.items(),
    ]
    return el("dl", [[el("dt", name), el("dd", value)] for name, value in pairs if value])


def _compilations(run: Run) -> str:
    """`12, which took 48 s`, as far as the job has said so."""
    times, seconds = (run.metrics.get(name) for name in ("compilations", "compile_seconds"))
    took = duration(timedelta(seconds=seconds)) if seconds is not None and 0 <= seconds < 1e9 else ""
    if times is None:
        return took
    return f"{number(times)}, which took {took}" if took else number(times)


def _named(values: dict[str, str]) -> list[Child]:
    return [el("span", f"{name} ", el("b", value), class_="pair") for name, value in values.items()]


def _attempts(run: Run) -> Child:
    if not run.attempts:
        return el("p", "It has not been started.", class_="quiet")
    headings = ("Attempt", "Chips", "Started (UTC)", "Ended (UTC)", "Exit code", "Reason")
    return [
        el("h4", "Attempts"),
        scrolling(
            f"Attempts of {run.id}",
            el("thead", el("tr", [el("th", name, scope="col") for name in headings])),
            el("tbody", [_attempt(attempt) for attempt in run.attempts]),
        ),
    ]


def _attempt(attempt: Attempt) -> Element:
    cells = (
        str(attempt.number),
        ", ".join(attempt.chips) or attempt.host or "–",
        clock(attempt.started) if attempt.started else "–",
        clock(attempt.ended) if attempt.ended else "–",
        "–" if attempt.exit_code is None else str(attempt.exit_code),
        attempt.reason or "–",
    )
    return el("tr", [el("td", cell) for cell in cells])


def _checkpoints(run: Run) -> Child:
    if not run.checkpoints:
        return el("p", "No checkpoint came home.", class_="quiet")
    headings = ("Step", "File", "Size", "SHA-256")
    return [
        el("h4", "Checkpoints"),
        scrolling(
            f"Checkpoints of {run.id}",
            el("thead", el("tr", [el("th", name, scope="col") for name in headings])),
            el("tbody", [_files(checkpoint) for checkpoint in run.checkpoints]),
        ),
    ]


def _files(checkpoint: Checkpoint) -> list[Element]:
    rows = [
        el(
            "tr",
            el("td", number(checkpoint.step)),
            el("td", file.path),
            el("td", "–" if file.size is None else size(file.size)),
            el("td", el("code", file.sha256)),
        )
        for file in checkpoint.files
    ]
    if checkpoint.problem:
        rows.append(el("tr", el("td", number(checkpoint.step)), el("td", checkpoint.problem, colspan=3, class_="note")))
    return rows


def _diff(run: Run) -> Child:
    if not run.diff:
        return None
    label = f"Changes in the code of {run.id} that are in no commit"
    return [
        el("h4", "Changes that are in no commit"),
        el("pre", _lines(run.diff), tabindex=0, role="region", aria_label=label),
    ]


def _lines(diff: str) -> list[Child]:
    """A diff with its added and its removed lines marked."""
    kinds = {"+": "ins", "-": "del", "@": "hunk"}
    return [[el("span", line, class_=kinds[line[0]]) if line[:1] in kinds else line, "\n"] for line in diff.split("\n")]


def _troubles(run: Run) -> Child:
    """What the log says that is in docs/troubleshooting.md. The words are tpufleet's own, none of them the log's."""
    if not run.troubles:
        return None
    items = [
        el("li", el("b", f"{trouble.meaning}."), f" {trouble.mend} (", el("code", trouble.chapter), ")")
        for trouble in run.troubles
    ]
    return [el("h4", "What its log says, and what mends it"), el("ul", items)]


def _log(run: Run) -> Child:
    if not run.log:
        return el("p", "No log came home.", class_="quiet")
    return [
        el("h4", "End of the log"),
        el("pre", "\n".join(run.log), tabindex=0, role="region", aria_label=f"End of the log of {run.id}"),
    ]
