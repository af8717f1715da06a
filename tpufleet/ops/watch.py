"""`watch`: look, mend, mirror, wait; again. Whatever it does may be cut off at any moment and be done again.

Nodes are mended in a thread of their own, since a node may take long to come (or never), and meanwhile the others'
runs are still to be brought home.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tpufleet.actions import AwaitNode, Plan
from tpufleet.errors import TpufleetError
from tpufleet.model import Code, HostView, RunSpec, Snapshot, Spec
from tpufleet.ops import accounts
from tpufleet.ops.accounts_wanted import anybody_on, wiped
from tpufleet.ops.create import create, resolve_code
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.home import is_over
from tpufleet.ops.ledger import remember
from tpufleet.ops.mend import REMADE, Mending, mend
from tpufleet.ops.mirror import home_states, keep, mirror, until_due
from tpufleet.ops.observe import hosts_of, observe, probe, survey
from tpufleet.ops.people import opened
from tpufleet.ops.planned import planned
from tpufleet.ops.recover import lost_runs
from tpufleet.ops.rooms import free_chips
from tpufleet.ops.runs import Located, located, plan_launch
from tpufleet.ops.start import send
from tpufleet.ops.turn import turn
from tpufleet.paths import writing
from tpufleet.restart import FINAL_STATES, State
from tpufleet.state.lock import locked
from tpufleet.text import counted, listed

MEND_LIMIT_S = 300.0  # of one try to bring nodes up; then others may have their turn with the fleet
CLOUD = "the cloud"  # what is told of has a space in its name, which no run or host can have
TRIES = 3  # to bring home what can't be had
FIRST_REST_S, LONGEST_REST_S = 15.0, 300.0  # between tries that failed
PEOPLE_REST_S = 60.0  # the same, for accounts

States = dict[str, Mapping[str, Any]]


@dataclass
class Seen:
    """The fleet at one look: what is there, each run's newest word, and the runs that are nowhere."""

    there: Snapshot
    runs: Mapping[str, Located]
    states: States
    lost: tuple[str, ...] = ()
    sent: frozenset[str] = frozenset()  # the runs that the journal knows of, wherever they are
    not_home: frozenset[str] = frozenset()  # runs that have ended, and what they left has still to come home
    left: bool = True  # whether the file wants any node that is still to be kept

    @property
    def ended(self) -> States | None:
        """The runs' ends when all have ended; None before. What only home knows is of earlier days."""
        ends = {run: self.states[run] for run in {*self.runs, *self.sent} if run in self.states}
        over = all(is_over(state) for state in ends.values())
        return ends if over and not (self.lost or self.not_home) and self.sent <= ends.keys() else None


@dataclass
class SharedLock:
    """The fleet's lock, for all threads of this process together; never waited for: StateError says who has it."""

    path: Path
    command: str
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _holders: int = 0
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        with self._mutex:
            if self._holders == 0:
                self._stack.enter_context(locked(self.path, self.command, wait_s=0, waiting=lambda _: None))
            self._holders += 1
        try:
            yield
        finally:
            with self._mutex:
                self._holders -= 1
                if self._holders == 0:
                    self._stack.close()


class Watch:
    """One watch over one fleet. `reload` gives the fleet file as it is now."""

    def __init__(self, fleet: Fleet, key_line: str, reload: Callable[[], Spec]) -> None:
        self._fleet = fleet
        self._key_line = key_line
        self._reload = reload
        self._lock = SharedLock(fleet.paths.lock, fleet.command)
        self._said: dict[str, str] = {}
        self._brought: Counter[tuple[str, str, int]] = Counter()  # runs that have ended: TRIES for what is home
        self._mender: threading.Thread | None = None
        self._bug: BaseException | None = None
        self._rest_s = 0.0
        self._rest_until = 0.0
        self._people_rest_until = 0.0
        self._wake = threading.Event()
        self._last = Snapshot()
        self._due_s = math.inf  # until the next run is to be mirrored

    def once(self) -> Seen:
        """One look, and all that follows from it, to its end."""
        seen = self._look()
        if self._mending(seen).actions:
            self._mend()
            seen = self._look()
        self._look_after_people(seen)
        return self._care(seen)

    def step(self) -> Seen:
        """One look, and what can be done at once; nodes are mended meanwhile."""
        if self._bug:
            raise self._bug
        seen = self._look()
        mending = self._mending(seen)
        busy = self._mender is not None and self._mender.is_alive()
        needed = any(not isinstance(action, AwaitNode) for action in mending.actions)
        if needed and not busy and time.monotonic() >= self._rest_until:
            self._mender = threading.Thread(target=self._mend_aside, name="mend", daemon=True)
            self._mender.start()
        self._look_after_people(seen)
        return self._care(seen)

    def wait(self, seconds: float) -> None:
        """Until the next look; less when nodes were mended, or when a run is to be mirrored earlier."""
        self._wake.wait(min(seconds, self._due_s))
        self._wake.clear()

    # ------------------------------------------------------------------------------------------------------ looking

    def _look(self) -> Seen:
        """What is there. A cloud that doesn't answer is said once, and the hosts of the last look are asked."""
        self._fleet.journal.reopen_if_replaced()
        with self._guarded("the fleet file"):
            self._fleet.spec = self._reload()
        with self._guarded(CLOUD):
            found = survey(self._fleet.spec, self._fleet.cloud, self._fleet.spec.cloud.zones)
            self._last = replace(found, hosts=())
            remember(self._fleet, found.nodes)
        return self._heard(probe(self._fleet, hosts_of(self._fleet, self._last.nodes)))

    def _heard(self, hosts: tuple[HostView, ...]) -> Seen:
        """What the hosts say, with what is known at home and in the journal."""
        there = replace(self._last, hosts=hosts)
        for view in there.hosts:
            self._tell(view.host.name, None if view.probe else f"silent: {view.error}", good="heard")
        runs = located(there.hosts)
        with self._guarded("the runs' states"):
            keep(self._fleet, {run: item.state for run, item in runs.items()})
        states: States = {**home_states(self._fleet), **{run: item.state for run, item in runs.items()}}
        sent = self._fleet.journal.placements()
        if CLOUD in self._said:
            lost: tuple[str, ...] = ()
        else:
            zones = self._fleet.spec.cloud.zones
            lost = lost_runs(there.nodes, there.hosts, sent=sent, home=states, zones=zones)
        if all(view.probe for view in there.hosts):
            self._say_forgotten([run for run in states if run not in runs and run not in sent], states)
        return Seen(there, runs, states, lost, frozenset(sent))

    def _say_forgotten(self, runs: Sequence[str], states: States) -> None:
        """Runs that are nowhere and not in the journal (it was deleted): what they were, only the file can tell."""
        unfinished = [run for run in runs if not is_over(states[run])]
        said = f"{listed(unfinished, 3)} had not ended and can't be sent on by itself: tpufleet run JOB goes on with it"
        self._tell("the unfinished", said if unfinished else None)

    # ---------------------------------------------------------------------------------------------------- the nodes

    def _mending(self, seen: Seen) -> Mending:
        """What the nodes need; nothing while the cloud can't be asked."""
        if CLOUD in self._said:
            return Mending()
        journal = self._fleet.journal
        mending = mend(self._fleet.spec, seen.there, journal.marks(), journal.taken_down(), time.time())
        for subject, text in mending.notes:
            self._tell(f"note of {subject}", text, subject=subject)
        with self._guarded("the journal"):
            for (subject, mark), value in mending.marks.items():
                if mark != REMADE:  # that one belongs to the deed
                    journal.mark(subject, mark, value)
        seen.left = bool(mending.left) or not self._fleet.spec.nodes
        return mending

    def _mend(self) -> None:
        """Make the nodes as they are wanted, by what is there once nobody else changes it."""
        with self._guarded("the nodes") as outcome, self._lock.held():
            seen = Seen(observe(self._fleet), {}, {})
            mending = self._mending(seen)
            for (subject, mark), value in mending.marks.items():
                if mark == REMADE:
                    self._fleet.journal.mark(subject, mark, value)
            answering = [run for view in seen.there.hosts if view.host.name in mending.bad_hosts for run in view.runs]
            with self._guarded("the runs' files"):  # the last chance to have what lies on machines that are given up
                if answering:
                    mirror(self._fleet, seen.there, [str(run["id"]) for run in answering])
            actions = tuple(action for action in mending.actions if not isinstance(action, AwaitNode))
            if actions:
                code = resolve_code(self._fleet.spec, self._fleet.paths.directory)
                create(self._fleet, Plan(actions), (), code, self._key_line, limit_s=MEND_LIMIT_S)
        self._rest_s = 0.0 if outcome.well else min(LONGEST_REST_S, max(FIRST_REST_S, 2 * self._rest_s))
        self._rest_until = time.monotonic() + self._rest_s

    def _mend_aside(self) -> None:
        try:
            self._mend()
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self._bug = error
        self._wake.set()

    # --------------------------------------------------------------------------------------------------- the people

    def _look_after_people(self, seen: Seen) -> None:
        """Tell hosts what they have missed of the list of people; whose host is gone sits elsewhere."""
        nodes, views = seen.there.nodes, seen.there.hosts
        nobody = not self._fleet.spec.people and not anybody_on(views)
        if nobody or CLOUD in self._said or time.monotonic() < self._people_rest_until:
            return
        with self._guarded("the people") as outcome:
            config = self._fleet.paths.config
            with opened(config, self._fleet.command, dry_run=True) as people:
                why = wiped(people.persons, people.revoked, views)
                self._tell("the list of people", why)
                if why or not accounts.has_news(self._fleet, people, nodes, views):
                    return
            with opened(config, self._fleet.command, wait_s=0) as people:
                applied = accounts.apply(self._fleet, people, nodes=nodes, views=views, only_news=True)
            accounts.say_moved(self._fleet, applied)
            outcome.well = not applied.missed
        if not outcome.well:
            self._people_rest_until = time.monotonic() + PEOPLE_REST_S

    # ----------------------------------------------------------------------------------------------------- the runs

    def _care(self, seen: Seen) -> Seen:
        """Bring home what is due, and send on what has lost its host."""
        for run, state in seen.states.items():
            where = ", ".join(state.get("chips") or ()) or state.get("host")
            word = f"{state['state']}: {state['reason']}" if state.get("reason") else str(state["state"])
            if run in seen.runs:
                self._tell(run, f"{word} on {where}")
        ends = {
            (run, str(item.state["state"]), len(item.state.get("attempts") or ())): run
            for run, item in seen.runs.items()
            if item.state["state"] in FINAL_STATES
        }
        news = {key: run for key, run in ends.items() if self._brought[key] < TRIES}
        with self._guarded("the runs' files"):
            left = until_due(self._fleet, seen.runs, time.time())
            if wanted := {run for run, seconds in left.items() if seconds <= 0} | set(news.values()):
                problems = mirror(self._fleet, seen.there, wanted).problems
                self._tell("not home", "; ".join(problems[:3]) if problems else None)
                self._brought.update(dict.fromkeys(news, 1 if problems else TRIES))
        left = until_due(self._fleet, seen.runs, time.time())
        self._due_s = min((seconds for seconds in left.values() if seconds > 0), default=math.inf)
        seen.not_home = frozenset(run for key, run in news.items() if self._brought[key] < TRIES)
        if seen.lost:
            hosts = hosts_of(self._fleet, self._last.nodes)
            with self._guarded("the lost runs"), self._lock.held(), turn(self._fleet, hosts, wait_s=0) as views:
                self._send_on(self._heard(views))
        return seen

    def _send_on(self, seen: Seen) -> None:
        """Send the lost runs to hosts that have room; while nodes are on their way the others wait for those."""
        mending = self._mending(seen)
        views = [view for view in seen.there.hosts if view.probe and view.host.name not in mending.bad_hosts]
        sent = self._fleet.journal.placements()
        room = None if not mending.actions else _room(views)
        largest = max((len(view.chips) for view in views), default=0)
        for (job, _), (runs, code) in self._planned(seen.lost).items():
            chosen: list[RunSpec] = []
            for run in runs:
                chips = largest if run.spec.whole_host else max(1, run.spec.chips)
                if room is None or room >= chips:
                    room = None if room is None else room - chips
                    chosen.append(run)
            secrets = runs[0].spec.secrets
            missing = [name for name in secrets if name not in os.environ]
            if missing:
                self._tell(job, f"{listed(missing)} is not set here, so its runs can't go on: tpufleet run {job}")
            elif chosen and views:
                home = {run: seen.states[run] for run in seen.lost if run in seen.states}
                unheard = [view for view in seen.there.hosts if not view.probe]
                plan = plan_launch(chosen, [*views, *unheard], home=home, sent=sent)
                values = {str(name): os.environ[name] for name in secrets}
                send(self._fleet, chosen, plan, views, code=code, secrets=values, home=home)
                self._wake.set()

    def _planned(self, runs: Sequence[str]) -> dict[tuple[str, str], tuple[list[RunSpec], Code]]:
        """The runs as they were planned, by job and commit."""
        sent = self._fleet.journal.placements()
        found: dict[tuple[str, str], tuple[list[RunSpec], Code]] = {}
        unknown: list[str] = []
        for run in runs:
            known = planned(sent[run]) if run in sent else None
            if known is None:
                unknown.append(run)
            else:
                found.setdefault((known[0].job, known[1].commit), ([], known[1]))[0].append(known[0])
        if unknown:
            self._tell("the journal", f"does not know what {counted(len(unknown), 'run')} were: tpufleet run JOB")
        return found

    # ------------------------------------------------------------------------------------------------------ telling

    def _tell(self, about: str, text: str | None, *, subject: str | None = None, good: str | None = None) -> None:
        """Say it when it is news; None: all is well (again)."""
        before = self._said.get(about)
        if text is None:
            self._said.pop(about, None)
            if before is not None and good:
                self._fleet.say(subject or about, good, "done")
        elif text != before:
            self._said[about] = text
            self._fleet.say(subject or about, text)

    @contextlib.contextmanager
    def _guarded(self, what: str) -> Generator[_Outcome]:
        """What goes wrong here is said once, and tried again at the next look."""
        outcome = _Outcome()
        try:
            with writing(self._fleet.paths.directory):
                yield outcome
        except TpufleetError as error:
            outcome.well = False
            self._tell(what, f"{error} (going on)")
        else:
            self._tell(what, None, good="all is well again")


@dataclass
class _Outcome:
    well: bool = True


def _room(views: Sequence[HostView]) -> int:
    """The chips that are free and that nothing on the hosts waits for."""
    free = sum(len(free_chips(view)) for view in views)
    waiting = [run for view in views for run in view.runs if run["state"] in (State.QUEUED, State.RECOVERING)]
    return free - sum(max(1, int(run.get("slot") or 1)) for run in waiting)
