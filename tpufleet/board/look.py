"""Pure: what the board shows of hosts and runs, from what they say of themselves, none of it believed blindly."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast

from tpufleet.board.records import FACTS, Json, Points, as_step, finite, written
from tpufleet.board.scene import Chip, HostChips, Piece, RunRow, Scene
from tpufleet.model import HostView
from tpufleet.names import RunId, UserName
from tpufleet.people import Seating
from tpufleet.report.records import as_count, as_list, as_number, as_record, as_text, as_time
from tpufleet.report.text import clean
from tpufleet.restart import State

LONGEST = 4_000  # characters of a completion
LONGEST_WORD = 400
MOST_METRICS = 12  # values that a row has
MOST_PARAMS = 60
MOST_CHIPS = 64  # of a host
MOST_RUNS = 5_000
STATES = {"free": "free", "run": "run", "person": "in use", "busy": "in use"}
RUN_STATES = frozenset(state.value for state in State)


@dataclass(frozen=True)
class Look:
    """What is there at one moment: the `scene`, and of runs' curves what is new since the look before."""

    scene: Scene = field(default_factory=Scene)
    points: Sequence[Points] = ()


@dataclass(frozen=True)
class Attempt:
    """One start of a run, as its host tells it."""

    chips: tuple[str, ...]
    started: datetime | None
    ended: datetime | None
    reason: str
    exit_code: int | None


@dataclass(frozen=True)
class Told:
    """A run as its host tells it, checked. `life` changes when its files may have: with each attempt and its end."""

    row: RunRow
    attempts: tuple[Attempt, ...]
    submitted: str
    resumed_from: str
    speed: float | None
    of: int | None
    life: str

    @property
    def is_active(self) -> bool:
        return self.row.state in ("queued", "running", "recovering")


def told(state: Json) -> Told | None:
    """The run that a host's probe tells of; None for what is none."""
    try:
        run = RunId(state.get("id"))
    except ValueError:
        return None
    word = state.get("state")
    if not isinstance(word, str) or word not in RUN_STATES:
        return None
    attempts = tuple(_attempt(as_record(item)) for item in as_list(state.get("attempts")))
    numbers = as_record(state.get("metrics"))
    reason, began = _word(state.get("reason")), as_text(state.get("began"))
    row = RunRow(
        id=str(run),
        job=_word(state.get("job")),
        state=word,
        reason=reason or None,
        chips=_words(state.get("chips")),
        step=as_step(state.get("step")),
        metrics=tuple(_numbers(numbers)),
        params=tuple(
            (clean(name)[:80], _word(value))
            for name, value in list(as_record(state.get("params")).items())[:MOST_PARAMS]
        ),
        attempts=len(attempts),
        started=attempts[0].started if attempts else None,
        why=_word(state.get("why")) or None,
    )
    ended = attempts[-1].ended if attempts else None
    return Told(
        row=row,
        attempts=attempts,
        submitted=as_text(state.get("submitted")),
        resumed_from=as_text(state.get("resumed_from")),
        speed=as_number(numbers.get("steps_per_second")),
        of=as_count(numbers.get("steps")),
        life=f"{word} {began} {len(attempts)} {ended}",
    )


def _attempt(attempt: Json) -> Attempt:
    exit_code = attempt.get("exit_code")
    return Attempt(
        chips=_words(attempt.get("chips")),
        started=as_time(attempt.get("started")),
        ended=as_time(attempt.get("ended")),
        reason=_word(attempt.get("reason")),
        exit_code=exit_code if type(exit_code) is int and abs(exit_code) < 2**31 else None,
    )


def _numbers(numbers: Json) -> Iterator[tuple[str, float]]:
    """The last value of each metric that is a number, and not a fact of the run as a whole."""
    left = MOST_METRICS
    for name, value in numbers.items():
        number = finite(amount) if (amount := as_number(value)) is not None else None
        if number is not None and left and name not in FACTS:
            left -= 1
            yield clean(name)[:80], number


def _word(value: object) -> str:
    return clean(as_text(value, LONGEST_WORD))


def _words(value: object) -> tuple[str, ...]:
    return tuple(_word(item) for item in as_list(value)[:64])


# ----------------------------------------------------------------------------------------------------- hosts, chips


def host_of(view: HostView, seating: Seating, since: Mapping[str, datetime]) -> HostChips:
    """A host as its probe shows it; `since` says of chips when what is on them began."""
    name = str(view.host.name)
    if view.error or view.bare:
        return HostChips(name, problem=clean(view.error) if view.error else "it was not set up yet")
    chips = [chip for chip in view.chips if as_step(chip.get("index")) is not None]
    return HostChips(name, tuple(_chip(name, chip, seating, since) for chip in chips))


def _chip(host: str, chip: Json, seating: Seating, since: Mapping[str, datetime]) -> Chip:
    seats = {str(seat): person for person, seat in seating.seats.items()}
    name = f"{host}:{chip.get('index')}"
    on_it = next((_word(chip[word]) for word in ("person", "run", "user") if chip.get(word)), None)
    seat = seats.get(name) or seats.get(host)
    state = STATES.get(str(chip.get("state")), "in use")
    duty = as_number(chip.get("duty_pct"))
    return Chip(
        name,
        state,
        seat=seat,
        who=None if on_it == seat else on_it,
        run=_word(chip.get("run")) or None if state == "run" else None,
        since=since.get(name) if state != "free" else None,
        hbm_used=as_count(chip.get("hbm_used")),
        hbm_total=as_count(chip.get("hbm_total")),
        duty=duty if duty is not None and 0 <= duty <= 100 else None,
    )


def trusted(answer: Json) -> Json:
    """A host's probe, of which what isn't a list of objects is none, and no more than a host can have."""
    probe = as_record(answer.get("probe"))
    chips, runs = (objects(probe.get(name))[:most] for name, most in (("chips", MOST_CHIPS), ("runs", MOST_RUNS)))
    return {**probe, "chips": chips, "runs": runs, "code": []}


def objects(value: object) -> list[Json]:
    """The JSON objects of what should be a list of them."""
    return [cast("Json", item) for item in as_list(value) if isinstance(item, dict)]


# ------------------------------------------------------------------------------------------------------- people


@dataclass(frozen=True)
class Shown:
    """A run that a person shows: its row, its completions (the oldest first), its curves."""

    row: RunRow
    pieces: tuple[Piece, ...] = ()
    points: tuple[tuple[int, Mapping[str, float]], ...] = ()


def shown(host: str, answer: Json, sharing: Collection[str], on_chips: Mapping[str, str]) -> list[Shown]:
    """What people show, by a host's answer to `shared`; only who is in `sharing` agreed to be read.

    `on_chips` says who is on which chip now, where that is known: by it a training that was cut off is told from one
    that runs.
    """
    found: list[Shown] = []
    for run in objects(answer.get("runs")):
        person = run.get("person")
        if isinstance(person, str) and person in sharing and (known := _shown(host, UserName(person), run, on_chips)):
            found.append(known)
    return found


def _shown(host: str, person: str, run: Json, on_chips: Mapping[str, str]) -> Shown | None:
    try:
        name = str(RunId(run.get("run")))
    except ValueError:
        return None
    started = as_text(run.get("started"), 32)
    index = as_step(run.get("chip"))
    chips = () if index is None else (f"{host}:{index}",)
    ended, code = as_time(run.get("ended")), run.get("exit_code")
    here = not chips or on_chips.get(chips[0], person) == person
    state = "running" if ended is None and here else "failed" if ended is not None and code not in (0, None) else "done"
    numbers = as_record(run.get("metrics"))
    row = RunRow(
        id=name,
        job="",
        state="stopped" if ended is None and not here else state,
        person=person,
        chips=chips,
        step=as_step(run.get("step")),
        of=as_count(numbers.get("steps")),
        rate=as_number(numbers.get("steps_per_second")),
        metrics=tuple(_numbers(numbers)),
        attempts=1,
        started=as_time(started),
    )
    texts = [text for item in objects(run.get("completions")) if (text := written(item, LONGEST))]
    pieces = tuple(Piece(person, name, text.step, text.prompt, text.text, started) for text in texts)
    return Shown(row, pieces, tuple(_points(as_record(run.get("curves")))))


def _points(curves: Json) -> Iterator[tuple[int, dict[str, float]]]:
    """Curves as `{name: [[step…], [value…]]}` as points in the order of their steps."""
    found: dict[int, dict[str, float]] = {}
    for name, curve in list(curves.items())[:MOST_METRICS]:
        columns = [as_list(part) for part in as_list(curve)]
        for step, value in zip(*columns, strict=False) if len(columns) == 2 else ():
            at, number = as_step(step), as_number(value)
            if at is not None and number is not None and name not in FACTS:
                found.setdefault(at, {})[clean(name)[:80]] = number
    yield from sorted(found.items())


def rank(row: RunRow) -> int:
    """A sort key: those under way first."""
    return _ORDER[row.state]


_ORDER = {state: n for n, state in enumerate(("running", "recovering", "queued", "failed", "done", "stopped"))}
