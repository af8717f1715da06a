"""Looks at a real fleet, one after the other: one question to each host, and what was known before of those that
don't answer."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from tpufleet.board.happenings import Seen, between, newest, of_run, seen
from tpufleet.board.look import Look, Shown, Told, host_of, rank, shown, told, trusted
from tpufleet.board.reading import Reading
from tpufleet.board.records import Json, Points
from tpufleet.board.scene import Happening, Piece, RunRow, Scene
from tpufleet.board.writings import Writings
from tpufleet.model import GONE_STATES, Host, HostView, Node
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.observe import find_nodes, hosts_of, view_of
from tpufleet.pace import Pace, left_s, rounded
from tpufleet.people import Seating
from tpufleet.report.records import as_record
from tpufleet.ssh.fanout import gather
from tpufleet.text import natural


@dataclass
class _Run:
    """A run as its host told it last: `raw` in the host's words, and what was made of them."""

    host: Host
    raw: Json
    told: Told
    happenings: tuple[Happening, ...]
    order: tuple[tuple[int, str], ...]
    pace: Pace = field(default_factory=Pace)
    of: int | None = None
    ended: RunRow | None = None  # its row, once it has ended


@dataclass(frozen=True)
class Answer:
    """What a host said to one question: its `view`, and the rest of the answer to what it was `asked`."""

    view: HostView
    asked: Mapping[str, Any] | None
    results: Json
    people: Json

    @classmethod
    def of(cls, view: HostView, asked: Mapping[str, Any] | None, told: Json) -> Answer:
        """The parts of what a host `told`, by the verb `look`."""
        return cls(view, asked, as_record(told.get("results")), as_record(told.get("people")))


@dataclass(frozen=True)
class Round:
    """What was heard of cloud and hosts at one moment (`ticks`: the same in seconds of a steady clock)."""

    nodes: Sequence[Node]
    answers: Sequence[Answer]
    at: datetime
    ticks: float


class FleetLook:
    """What is remembered from look to look; it may be called by one thread, but for `place`."""

    def __init__(self) -> None:
        self._reading = Reading()
        self._writings = Writings()
        self._runs: dict[str, _Run] = {}
        self._people: dict[str, Json] = {}  # a host's last answer, by its identity
        self._theirs: dict[str, int] = {}  # people's runs, and the last step of their curves
        self._seen: Seen | None = None
        self._happened: tuple[Happening, ...] = ()

    def look(self, fleet: Fleet, seating: Seating, sharing: Collection[str]) -> Look:
        """The fleet as it is now; only who is in `sharing` agreed to be read. Raises what the cloud's answer raises."""
        nodes = find_nodes(fleet)
        hosts = hosts_of(fleet, nodes)
        answers = [outcome.unwrap() for outcome in gather(hosts, lambda host: self._ask(fleet, host, bool(sharing)))]
        return self.take(Round(nodes, answers, datetime.now(UTC), time.monotonic()), seating, sharing)

    def place(self, run: str) -> tuple[Host, Json] | None:
        """Where a run of the fleet is, or was last, and what its host told of it; None for a run that nobody knows."""
        known = self._runs.get(run)
        return (known.host, known.raw) if known else None

    def _ask(self, fleet: Fleet, host: Host, people: bool) -> Answer:
        asked = self._reading.ask(host)
        told: dict[str, Any] = {}

        def ask(host: Host) -> Mapping[str, Any]:
            request = {"fleet": str(fleet.spec.fleet), "runs": asked, "people": people}
            told.update(fleet.agent(host).ask("look", request, ship=not fleet.dry_run))
            return trusted(told)

        view = view_of(fleet, host, ask)
        return Answer.of(view, asked, told)

    # ------------------------------------------------------------------------------------------ from answers to a look

    def take(self, heard: Round, seating: Seating, sharing: Collection[str]) -> Look:
        """The look that a round of the hosts makes, together with what was known before."""
        answers = heard.answers
        views = sorted((answer.view for answer in answers), key=lambda view: natural(view.host.name))
        silent = {view.host.identity: view.error or "it was not set up yet" for view in views if view.probe is None}
        here = {view.host.identity for view in views}
        self._take_runs(answers, silent, here)
        points = self._take_results(answers)
        theirs = self._take_people(answers, here, sharing)
        points += self._their_points(theirs)
        self._note(heard, views)
        rows = [self._row(run, silent, here, heard.ticks) for run in self._runs.values()]
        rows.sort(key=lambda row: self._runs[row.id].order)
        their_rows = [one.row for one in theirs]
        pieces = self._writings.pieces(self._runs, chain.from_iterable(one.pieces for one in theirs))
        since = dict(_since(rows, self._runs, their_rows))
        scene = Scene(
            at=heard.at,
            hosts=tuple(host_of(view, seating, since) for view in views),
            standing=tuple(seating.standing),
            runs=tuple(sorted([*their_rows, *rows], key=rank)),
            pieces=pieces,
            happenings=newest(chain(self._happened, *(run.happenings for run in self._runs.values()))),
        )
        return Look(scene, points)

    def _take_runs(self, answers: Iterable[Answer], silent: Mapping[str, str], here: Collection[str]) -> None:
        """Keep what hosts tell of their runs. Where two know one (a node was replaced), the later word counts."""
        found: dict[str, tuple[Host, Json]] = {}
        for answer in answers:
            for raw in answer.view.runs:
                run = str(raw.get("id"))
                if run not in found or _submitted(raw) > _submitted(found[run][1]):
                    found[run] = answer.view.host, raw
        unheard = {
            run: known
            for run, known in self._runs.items()
            if (known.host.identity in silent or known.host.identity not in here)
            and (run not in found or _submitted(found[run][1]) < _submitted(known.raw))
        }
        runs: dict[str, _Run] = {}
        for run, (host, raw) in found.items():
            before = self._runs.get(run)
            if before and before.raw == raw and before.host == host:
                runs[run] = before
            elif made := told(raw):
                pace, of = (before.pace, before.of) if before else (Pace(), None)
                runs[run] = _Run(host, raw, made, of_run(made), natural(run), pace, of)
        self._runs = runs | unheard

    def _take_results(self, answers: Iterable[Answer]) -> list[Points]:
        points: list[Points] = []
        here: dict[str, dict[str, Told]] = {}
        for run, known in self._runs.items():
            here.setdefault(known.host.identity, {})[run] = known.told
        for answer in answers:
            if answer.view.probe is None:
                continue
            host = answer.view.host
            for news in self._reading.take(host, answer.asked, here.get(host.identity, {}), answer.results):
                run = self._runs[news.points.run]
                if news.points.of:
                    run.of, run.ended = news.points.of, None
                points.append(news.points)
                started = _text(run.told.row.started)
                pieces = [Piece(None, news.points.run, one.step, one.prompt, one.text, started) for one in news.pieces]
                self._writings.add(news.points.run, pieces, anew=news.anew)
        return points

    def _take_people(self, answers: Iterable[Answer], here: Collection[str], sharing: Collection[str]) -> list[Shown]:
        """What people show now; of a host that doesn't answer, what it said last."""
        on_chips: dict[str, str] = {}
        names: dict[str, str] = {}
        for answer in answers:
            host = answer.view.host
            names[host.identity] = str(host.name)
            if answer.view.probe is not None:
                self._people[host.identity] = answer.people
            for chip in answer.view.chips:
                on_chips[f"{host.name}:{chip.get('index')}"] = str(chip.get("person"))
        self._people = {identity: said for identity, said in self._people.items() if identity in here}
        found: dict[str, Shown] = {}
        for identity, said in self._people.items():
            for one in shown(names[identity], said, sharing, on_chips):
                if one.row.id not in self._runs:  # a run of the fleet is nobody's
                    found.setdefault(one.row.id, one)
        return sorted(found.values(), key=lambda one: (str(one.row.started), one.row.id))

    def _their_points(self, theirs: Iterable[Shown]) -> list[Points]:
        """People's curves come as a whole each time: what lies behind their last known step is new."""
        before, self._theirs = self._theirs, {}
        found: list[Points] = []
        for one in theirs:
            run, last = one.row.id, before.get(one.row.id, -1)
            self._theirs[run] = newest_step = one.points[-1][0] if one.points else last
            if newest_step < last:
                found.append(Points(run, one.points, anew=True))
            elif fresh := [point for point in one.points if point[0] > last]:
                found.append(Points(run, fresh, anew=last < 0))
        return found

    def _note(self, heard: Round, views: Sequence[HostView]) -> None:
        """Remember what happened to nodes and hosts since the last look."""
        silent = {str(view.host.name): view.error for view in views if view.error}
        answering = [str(view.host.name) for view in views if view.probe is not None]
        preempted = frozenset(node.name for node in heard.nodes if node.state in GONE_STATES)
        this = seen(self._seen, heard.nodes, silent, answering)
        self._happened = newest(chain(self._happened, between(self._seen, this, preempted, heard.at)))
        self._seen = this

    def _row(self, run: _Run, silent: Mapping[str, str], here: Collection[str], ticks: float) -> RunRow:
        """A run's row, with how fast it goes; and of what its host told last, that it may be so no more."""
        row, identity = run.told.row, run.host.identity
        of = run.of or run.told.of
        if not run.told.is_active:
            run.ended = run.ended or replace(row, of=of)
            return run.ended
        if identity not in here:
            return replace(row, of=of, state="recovering", why=f"{run.host.name} is gone")
        if identity in silent:
            return replace(row, of=of, why=f"{run.host.name} doesn't answer")
        if row.state != "running":
            return row if of is None else replace(row, of=of)
        measured = run.pace.rate(ticks, row.step)
        rate = measured if run.told.speed is None else rounded(run.told.speed)
        return replace(row, of=of, rate=rate, left_s=left_s(row.step, of, rate))


def _since(
    rows: Iterable[RunRow], runs: Mapping[str, _Run], theirs: Iterable[RunRow]
) -> Iterator[tuple[str, datetime]]:
    """Of chips, when the run that is on them now started there."""
    for row in rows:
        if row.state == "running" and (started := runs[row.id].told.attempts[-1:]) and started[0].started:
            yield from ((chip, started[0].started) for chip in row.chips)
    for row in theirs:
        if row.state == "running" and row.started:
            yield from ((chip, row.started) for chip in row.chips)


def _submitted(raw: Json) -> str:
    return str(raw.get("submitted"))


def _text(moment: datetime | None) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment else ""
