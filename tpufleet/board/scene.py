"""What the board shows of the fleet at one moment: plain values, made by `look`, drawn by `parts`, told by `feed`.

Equal values look equal, so that only what has changed is drawn and sent again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Chip:
    """A chip: whose seat it is, in which `state` (free, run, in use), and `who` is on it otherwise.

    `since` is when that began, `hbm_used` and `hbm_total` bytes, `duty` per cent of the time that it computes; None
    where it isn't known.
    """

    name: str
    state: str
    seat: str | None = None
    who: str | None = None
    run: str | None = None
    since: datetime | None = None
    hbm_used: int | None = None
    hbm_total: int | None = None
    duty: float | None = None


@dataclass(frozen=True)
class HostChips:
    """A host's chips, or the `problem` why they aren't known (it is down)."""

    name: str
    chips: tuple[Chip, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class RunRow:
    """A run of the fleet, or of a `person` who agreed to be shown.

    `of` is how many steps it will take, `rate` its steps per second, `left_s` the seconds that remain by both, and
    `metrics` the last value of each metric; None and empty where it isn't known.
    """

    id: str
    job: str
    state: str
    reason: str | None = None
    person: str | None = None
    chips: tuple[str, ...] = ()
    step: int | None = None
    of: int | None = None
    rate: float | None = None
    left_s: float | None = None
    metrics: tuple[tuple[str, float], ...] = ()
    params: tuple[tuple[str, str], ...] = ()
    attempts: int = 0
    started: datetime | None = None
    why: str | None = None


@dataclass(frozen=True)
class Piece:
    """What a model wrote at `step` of a run that began at `started`; `person` for people's own runs."""

    person: str | None
    run: str
    step: int | None
    prompt: str
    text: str
    started: str = ""


@dataclass(frozen=True)
class Happening:
    """Something that happened to `subject` (a run, a node, a host) at a moment: preempted, made anew, resumed.

    `kind` is one word of those, by which it is drawn; `text` says it in a few words.
    """

    at: datetime
    kind: str
    subject: str
    text: str


@dataclass(frozen=True)
class Scene:
    """The fleet at one moment. `problem` says why nothing newer is known, if so.

    `runs` with those under way first; `pieces` and `happenings` with the newest first.
    """

    at: datetime | None = None
    hosts: tuple[HostChips, ...] = ()
    standing: tuple[str, ...] = ()
    runs: tuple[RunRow, ...] = ()
    pieces: tuple[Piece, ...] = ()
    happenings: tuple[Happening, ...] = ()
    problem: str | None = None
