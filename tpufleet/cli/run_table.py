"""Runs as a table: where they are, how far, how fast, how long still, and what their losses are; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tpufleet.cli.pace import BOOKKEEPING, Pace, metrics_of, steps
from tpufleet.cli.render import number, state_words
from tpufleet.cli.tables import Column, by_word, short
from tpufleet.text import clean, lasted

MOST_METRICS = 8
LONGEST_HEADING = 20
STATE_STYLES = {
    "running": "green",
    "queued": "yellow",
    "recovering": "magenta",
    "failed": "bold red",
    "stopped": "dim",
    "done": "cyan",
}
State = Mapping[str, Any]
Table = tuple[list[Column], list[tuple[str, ...]]]


def run_table(
    states: Sequence[State],
    pace: Pace | None = None,
    *,
    home: Mapping[str, int | None] | None = None,
    now: datetime | None = None,
) -> Table:
    """Columns and rows, a run each; `home` adds the step whose checkpoint is home, by run.

    Where there is little room these go first, in this order: what it waits for, commit, tries, metrics
    beyond the main one, time, chip, steps/s, left, home, the main metric. The id, the state and the step stay.
    """
    pace = pace or Pace()
    moment = now or datetime.now(UTC)
    metrics = metric_names(states)
    columns = [
        Column("run", least=16, middle=True),
        Column("state", least=8, paint=by_word(STATE_STYLES)),
        Column("step", least=4, number=True),
        *([Column("home", rank=2, least=4, number=True)] if home is not None else []),
        Column("steps/s", rank=3, least=4, number=True),
        Column("left", rank=2, least=6, number=True),
        *(
            Column(metric_heading(name), rank=(6 + place if place else 1), least=6, number=True)
            for place, name in enumerate(metrics)
        ),
        Column("chip", rank=4, least=10),
        Column("time", rank=5, least=6, number=True),
        Column("tries", rank=30, least=5, number=True),
        Column("commit", rank=31, least=10),
        Column("waits for", rank=32, least=20),
    ]
    rows = [
        (
            str(state["id"]),
            state_words({**state, "waits": None}),
            step_words(state),
            *([_word(home.get(str(state["id"])))] if home is not None else []),
            _number(pace.rate(state)),
            _lasted(pace.left_s(state)),
            *(_word(metrics_of(state).get(name)) for name in metrics),
            chips_word(state),
            _lasted(_took(state, moment)),
            str(len(_attempts(state)) or ""),
            str(state.get("commit") or "")[:10] + ("*" if state.get("dirty") else ""),
            waits_words(state),
        )
        for state in states
    ]
    return columns, rows


def metric_names(states: Sequence[State]) -> list[str]:
    """The metrics that are worth a column, the most telling first: test losses, losses, then by how many have them."""
    found = Counter(str(name) for state in states for name in metrics_of(state))
    names = [name for name in found if name not in BOOKKEEPING]
    return sorted(
        names, key=lambda name: ("loss" not in name, not name.startswith(("test", "val")), -found[name], name)
    )[:MOST_METRICS]


def metric_heading(name: str) -> str:
    """A metric's name over its column: a job may choose any."""
    return short(clean(name), LONGEST_HEADING)


def chips_word(state: State) -> str:
    """`tpu-0-w0:3`, `tpu-0-w0:0-3`, or the host while it has no chip."""
    chips = [str(chip) for chip in state.get("chips") or ()]
    if len(chips) > 1:
        first, _, last = chips[0], "", chips[-1].rpartition(":")[2]
        return f"{first}-{last}" if _in_a_row(chips) else f"{first} +{len(chips) - 1}"
    return chips[0] if chips else str(state.get("host") or "")


def waits_words(state: State) -> str:
    """What a run that is queued or recovering waits for, in its host's words."""
    return str(state.get("waits") or state.get("why") or "") if state.get("state") in ("queued", "recovering") else ""


def step_words(state: State) -> str:
    """`1500/2000`, `1500`, or nothing."""
    step, of = state.get("step"), steps(state)
    return "" if step is None else f"{step}/{of}" if of else str(step)


def _in_a_row(chips: Sequence[str]) -> bool:
    numbers = [chip.rpartition(":")[2] for chip in chips]
    return all(one.isdigit() for one in numbers) and int(numbers[-1]) - int(numbers[0]) == len(chips) - 1


def _attempts(state: State) -> list[State]:
    """The attempts of this life of the run: `--restart` begins another."""
    attempts: list[State] = state.get("attempts") or []
    return [attempt for attempt in attempts if str(attempt.get("started")) >= str(state.get("began") or "")]


def _took(state: State, now: datetime) -> float | None:
    """Seconds since the first attempt began, until now or the end of the last."""
    attempts = _attempts(state)
    try:
        began = datetime.fromisoformat(attempts[0]["started"])
        ended = attempts[-1].get("ended")
        return max(0.0, ((datetime.fromisoformat(ended) if ended else now) - began).total_seconds())
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def _lasted(seconds: float | None) -> str:
    return "" if seconds is None else lasted(seconds)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _word(value: object) -> str:
    return "" if value is None else number(value)
