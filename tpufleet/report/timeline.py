"""Which chip did what when: what the picture of the fleet's time is drawn from. Pure: runs and nodes in, rows out.

A row is a chip, or, in a fleet of more than 80, a host with a lane for each of its chips.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tpufleet.report.load import Attempt, Run, natural
from tpufleet.report.nodes import Node

MOST_CHIPS = 80
MOST_ROWS = 400  # hosts; a picture of more is taller than anybody scrolls
_INTERRUPTED = re.compile(r"preempted|rebooted|lost|recover", re.IGNORECASE)
_STOPPED = re.compile(r"stop", re.IGNORECASE)
_STEPS = tuple(
    timedelta(seconds=s)
    for s in (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)
)

Span = tuple[datetime, datetime]
DONE, INTERRUPTED, STOPPED, FAILED, GOING = "done", "interrupted", "stopped", "failed", "going"


@dataclass(frozen=True, slots=True)
class Bar:
    """An attempt on one chip, in its row's `lane` of `lanes`."""

    run: Run
    attempt: Attempt
    start: datetime
    end: datetime
    ending: str
    lane: int


@dataclass(frozen=True, slots=True)
class Row:
    """A chip or a host: its `bars`, and the spans in which its node was there."""

    name: str
    lanes: int
    bars: tuple[Bar, ...]
    lives: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """All rows, from `start` to `end`; `left_out` says how many rows there would have been besides."""

    start: datetime
    end: datetime
    rows: tuple[Row, ...]
    left_out: int = 0

    def at(self, time: datetime) -> float:
        return (time - self.start) / (self.end - self.start)


def timeline(runs: Sequence[Run], nodes: Sequence[Node]) -> Timeline | None:
    """The fleet's time, or None where no attempt has begun."""
    begun = [(run, attempt) for run in runs for attempt in run.attempts if attempt.started and attempt.chips]
    moments = [t for _, a in begun for t in (a.started, a.ended) if t] + [n.until for n in nodes]
    starts = [a.started for _, a in begun if a.started] + [n.created for n in nodes]
    if not begun:
        return None
    start, end = min(starts), max([*moments, *starts])
    end = max(end, start + timedelta(seconds=1))
    chips = sorted({c for _, a in begun for c in a.chips} | {c for node in nodes for c in node.chips}, key=natural)
    lanes = _lanes(chips)
    bars: dict[str, list[Bar]] = {}
    for run, attempt in begun:
        for chip in attempt.chips:
            row, lane = lanes[chip]
            bars.setdefault(row, []).append(_bar(run, attempt, lane, end))
    width: dict[str, int] = {}
    for row, lane in lanes.values():
        width[row] = max(width.get(row, 0), lane + 1)
    lives = _lives(nodes)
    rows = [Row(name, width[name], tuple(bars.get(name, ())), lives.get(host_of(name), ())) for name in width]
    return Timeline(start, end, tuple(rows[:MOST_ROWS]), max(0, len(rows) - MOST_ROWS))


def host_of(chip: str) -> str:
    """`tpu-0-w0` of `tpu-0-w0:3`; a host's own name stays as it is."""
    return chip.rsplit(":", 1)[0]


def _lanes(chips: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Chip → its row's name and its lane there."""
    if len(chips) <= MOST_CHIPS:
        return {chip: (chip, 0) for chip in chips}
    taken: dict[str, int] = {}
    lanes: dict[str, tuple[str, int]] = {}
    for chip in chips:
        host = host_of(chip)
        lanes[chip] = (host, min(7, taken.get(host, 0)))
        taken[host] = taken.get(host, 0) + 1
    return lanes


def _bar(run: Run, attempt: Attempt, lane: int, end: datetime) -> Bar:
    start = attempt.started or end
    return Bar(run, attempt, start, max(start, attempt.ended or end), ending(attempt), lane)


def ending(attempt: Attempt) -> str:
    """How an attempt ended, as one of the marks of the picture."""
    if attempt.ended is None:
        return GOING
    if attempt.exit_code == 0:
        return DONE
    if _INTERRUPTED.search(attempt.reason):
        return INTERRUPTED
    return STOPPED if _STOPPED.search(attempt.reason) else FAILED


def _lives(nodes: Iterable[Node]) -> dict[str, tuple[Span, ...]]:
    """Host → when its node was there."""
    found: dict[str, tuple[Span, ...]] = {}
    for node in nodes:
        for host in node.hosts:
            found[host] = (*found.get(host, ()), (node.created, node.until))
    return found


def ticks(start: datetime, end: datetime, wanted: int = 8) -> list[tuple[datetime, str]]:
    """Round moments between `start` and `end` (UTC), at most about `wanted`, with the words for each."""
    step = next((s for s in _STEPS if (end - start) / s <= wanted), None)
    if step is None:
        step = timedelta(days=-(-(end - start) // timedelta(days=wanted)))
    midnight = datetime(start.year, start.month, start.day, tzinfo=UTC)
    found: list[tuple[datetime, str]] = []
    at = midnight + -(-(start - midnight) // step) * step
    while at <= end:
        found.append((at, _word(at, step)))
        at += step
    return found


def _word(at: datetime, step: timedelta) -> str:
    if step < timedelta(minutes=1):
        return f"{at:%H:%M:%S}"
    if step >= timedelta(days=1) or (at.hour, at.minute) == (0, 0):
        return f"{at.day} {at:%b}"
    return f"{at:%H:%M}"
