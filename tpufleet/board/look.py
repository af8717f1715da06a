"""Pure: what the board shows of the fleet, from what hosts say of themselves, none of which is believed blindly."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeGuard, cast

from tpufleet.model import HostView
from tpufleet.names import RunId
from tpufleet.people import Seating
from tpufleet.text import natural

MOST_PIECES = 60
LONGEST = 4_000  # characters of a completion
LARGEST = 2**53  # of a number; what is larger, no program that trains has counted
STATES = {"free": "free", "run": "run", "person": "in use", "busy": "in use"}


@dataclass(frozen=True)
class Chip:
    """A chip: whose seat it is, in which `state` (free, run, in use), and `who` is on it otherwise."""

    name: str
    state: str
    seat: str | None = None
    who: str | None = None


@dataclass(frozen=True)
class HostChips:
    """A host's chips, or the `problem` why they aren't known."""

    name: str
    chips: tuple[Chip, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class Piece:
    """What a person's model wrote at `step` of a run that began at `started`."""

    person: str
    run: str
    step: int | None
    prompt: str
    text: str
    started: str = ""


@dataclass(frozen=True)
class Look:
    """The fleet at one moment. `problem` says why nothing newer is known, if so."""

    at: datetime | None = None
    hosts: tuple[HostChips, ...] = ()
    standing: tuple[str, ...] = ()
    pieces: tuple[Piece, ...] = ()
    problem: str | None = None


def look_of(
    views: Iterable[HostView], answers: Iterable[Mapping[str, Any]], seating: Seating, sharing: Collection[str]
) -> Look:
    """The look that hosts' probes and their answers to `shared` make; only who is in `sharing` agreed to be read."""
    return Look(
        at=datetime.now(UTC),
        hosts=tuple(_host(view, seating) for view in sorted(views, key=lambda view: natural(view.host.name))),
        standing=tuple(seating.standing),
        pieces=pieces_of(answers, sharing),
    )


def _host(view: HostView, seating: Seating) -> HostChips:
    name = str(view.host.name)
    if view.error or view.bare:
        return HostChips(name, problem=view.error or "it was not set up yet")
    return HostChips(name, tuple(_chip(name, chip, seating) for chip in view.chips if _is_number(chip.get("index"))))


def _chip(host: str, chip: Mapping[str, Any], seating: Seating) -> Chip:
    seats = {str(seat): person for person, seat in seating.seats.items()}
    name = f"{host}:{chip.get('index')}"
    on_it = next((str(chip[word]) for word in ("person", "run", "user") if chip.get(word)), None)
    seat = seats.get(name) or seats.get(host)
    return Chip(name, STATES.get(str(chip.get("state")), "in use"), seat, None if on_it == seat else on_it)


def pieces_of(answers: Iterable[Mapping[str, Any]], sharing: Collection[str]) -> tuple[Piece, ...]:
    """The completions in hosts' answers, newest run first, and of each run the last step first."""
    found: list[Piece] = []
    for answer in answers:
        for run in _objects(answer.get("runs")):
            person = run.get("person")
            if isinstance(person, str) and person in sharing:
                found += _pieces(person, run)
    found.sort(key=lambda piece: (piece.started, piece.run, -1 if piece.step is None else piece.step), reverse=True)
    return tuple(found[:MOST_PIECES])


def _pieces(person: str, run: Mapping[str, Any]) -> Iterable[Piece]:
    try:
        name = RunId(run.get("run"))
    except ValueError:
        return
    for completion in _objects(run.get("completions")):
        step, prompt, text = (completion.get(word) for word in ("step", "prompt", "text"))
        if isinstance(text, str):
            prompt = prompt[:LONGEST] if isinstance(prompt, str) else ""
            number = step if _is_number(step) else None
            said = text[:LONGEST].removeprefix(prompt)
            yield Piece(person, name, number, prompt, said, str(run.get("started") or "")[:32])


def _is_number(value: object) -> TypeGuard[int]:
    """Whether this counts something: no truth value, no fraction, nothing that is too long to be shown."""
    return type(value) is int and 0 <= value <= LARGEST


def _objects(value: object) -> Sequence[Mapping[str, Any]]:
    """The JSON objects of what should be a list of them."""
    if not isinstance(value, list):
        return ()
    return [cast("Mapping[str, Any]", item) for item in cast("list[object]", value) if isinstance(item, dict)]
