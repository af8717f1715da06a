"""Bring home what runs leave behind: logs, metrics, completions, checkpoints. Verified, whole or absent, once.

All hosts side by side, one connection and a few streams per host. What was cut is taken up at the byte where it
ended; what is home already isn't sent again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpufleet.model import Host, HostView
from tpufleet.ops.bring import Brought, Tally, Visit
from tpufleet.ops.choose import EVERYTHING, Choice
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.home import is_over, read_runs, write_json
from tpufleet.ops.progress import Progress
from tpufleet.ops.room import Room
from tpufleet.ops.runs import located
from tpufleet.ops.share import Missing
from tpufleet.paths import writing
from tpufleet.ssh.fanout import gather
from tpufleet.state.lock import locked
from tpufleet.text import counted, listed, natural, size

SAY_EVERY_S = 5.0
SCHEMA = 1
LOCK_WAIT_S = 600.0


@dataclass
class Collected(Tally):
    """What one `collect` brought. `coming` holds of each host the files and bytes that came, or would come; `free` what
    the disk has room for."""

    coming: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    free: int = 0

    def add(self, host: str, other: Brought) -> None:
        self.count(other)
        self.coming[host] = (other.files, other.bytes)
        if other.error:
            self.problems.append(f"{host}: {other.error.message}")


def collect(
    fleet: Fleet,
    views: Sequence[HostView],
    choice: Choice = EVERYTHING,
    *,
    wait_s: float = LOCK_WAIT_S,
    say_every_s: float = SAY_EVERY_S,
) -> Collected:
    """Bring home from all hosts what is chosen, and write `runs.json`.

    One command at a time does so; raises StateError when another one still does after `wait_s`.
    """

    def waiting(holder: str) -> None:
        fleet.say("home", f"waiting for {holder}")

    with locked(fleet.paths.home_lock, fleet.command, wait_s=wait_s, waiting=waiting):
        return _Round(fleet, views, choice, say_every_s).collect()


def look(fleet: Fleet, views: Sequence[HostView], choice: Choice) -> Collected:
    """What `collect` would bring; nothing is changed, here or on a host."""
    return _Round(fleet, views, choice, SAY_EVERY_S).look()


class _Round:
    """All hosts, once."""

    def __init__(self, fleet: Fleet, views: Sequence[HostView], choice: Choice, say_every_s: float) -> None:
        self._fleet = fleet
        self._choice = choice
        owners = {run: item.host for run, item in located(views).items() if choice.wants_run(run)}
        self._reachable = {
            view.host: [run for run, host in owners.items() if host == view.host] for view in views if view.probe
        }
        self._unheard = {view.host: view.error for view in views if view.error}
        self._known = {str(run["id"]): run for run in read_runs(fleet.paths.artifacts / "runs.json")}
        self._room = Room(fleet.paths.runs)
        self._progress = Progress(fleet.say, every_s=say_every_s)
        self._adding = threading.Lock()
        self._total = Collected(free=self._room.free)

    def collect(self) -> Collected:
        states = dict(self._known)

        def bring(host: Host) -> None:
            brought = self._visit(host).collect(self._reachable[host])
            with self._adding:
                self._total.add(host.name, brought)
                states.update({state["id"]: state for state in brought.states})

        self._each(bring)
        write_runs(self._fleet, list(states.values()))
        return self._total

    def look(self) -> Collected:
        def ask(host: Host) -> None:
            found = self._visit(host).look(self._reachable[host])
            with self._adding:
                self._total.add(host.name, found)

        self._each(ask)
        return self._total

    def _visit(self, host: Host) -> Visit:
        return Visit(self._fleet, host, self._choice, self._room, self._progress)

    def _each(self, work: Callable[[Host], None]) -> None:
        """The `work` for all hosts side by side; then what those have that can't be heard, or couldn't be any more."""
        total = self._total
        silent = dict(self._unheard)
        for outcome in gather([host for host, chosen in self._reachable.items() if chosen], work):
            if outcome.error:
                silent[outcome.item] = outcome.error.message
        total.problems += [f"{host.name}: {why}" for host, why in silent.items()]
        total.missing += [missing for host, why in silent.items() for missing in self._left_on(host, str(why))]
        if lack := self._room.lack():
            total.problems.append(lack.message)
            total.full = lack
        total.missing.sort(key=lambda missing: natural(missing.run))

    def _left_on(self, host: Host, why: str) -> Iterator[Missing]:
        """What is not home of the runs that are known to be on a host that doesn't answer."""
        for run, placed in self._fleet.journal.placements().items():
            over = run in self._known and is_over(self._known[run])
            if placed.identity == host.identity and not over and self._choice.wants_run(run):
                yield Missing(run, "what has come since" if run in self._known else "everything", f"{host.name}: {why}")


def write_runs(fleet: Fleet, states: Sequence[dict[str, Any]]) -> None:
    with writing(fleet.paths.artifacts):
        fleet.paths.artifacts.mkdir(parents=True, exist_ok=True)
    ordered = sorted(states, key=lambda state: natural(str(state["id"])))
    write_json(fleet.paths.artifacts / "runs.json", {"schema": SCHEMA, "fleet": fleet.spec.fleet, "runs": ordered})


def summary(collected: Collected) -> str:
    """One line for a person."""
    if not collected.files:
        return f"{counted(collected.runs, 'run')}: nothing new"
    return (
        f"{counted(collected.runs, 'run')}: {counted(collected.files, 'file')} ({size(collected.bytes)}) came home, "
        f"{counted(collected.checkpoints, 'new checkpoint')}"
    )


def foretold(found: Collected) -> list[str]:
    """The lines of a dry run: what would come from each host, of all, and the room for it."""
    lines = [f"{host}: {counted(files, 'file')}, {size(count)}" for host, (files, count) in found.coming.items()]
    would = f"{counted(found.files, 'file')} ({size(found.bytes)}) would come home, "
    lines.append(f"{counted(found.runs, 'run')}: {would}{counted(found.checkpoints, 'checkpoint')}")
    return [*lines, f"room at home: {size(found.free)}"]


def not_home(missing: Iterable[Missing]) -> list[str]:
    """What isn't home and wasn't told in a sentence of its own: a line for each what and why, with its runs."""
    runs: dict[tuple[str, str], list[str]] = {}
    for item in missing:
        if not item.told:
            runs.setdefault((item.what, item.why), []).append(item.run)
    return [f"{listed(names, 3)}: {what} ({why})" for (what, why), names in runs.items()]
