"""Bring home what runs leave behind: logs, metrics, completions, checkpoints. Verified, whole or absent, once.

All hosts side by side, one connection and one stream per host. What was cut is taken up at the byte where it
ended; what is home already isn't sent again.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpufleet.errors import DiskFull, HostFault
from tpufleet.model import Host, HostView
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.home import RunHome, Wanted, before_all_is_home, read_runs, write_json
from tpufleet.ops.runs import located
from tpufleet.paths import writing
from tpufleet.restart import FINAL_STATES
from tpufleet.ssh.fanout import gather
from tpufleet.ssh.port import Stream
from tpufleet.state.lock import locked
from tpufleet.text import counted, natural, size

CHUNK = 1 << 20
SAY_EVERY_S = 1.0
SCHEMA = 1
LOCK_WAIT_S = 600.0


@dataclass
class Collected:
    """What one `collect` brought: bytes and files that travelled, what is not home (`problems`), and what will never
    come and is known (`notes`)."""

    runs: int = 0
    files: int = 0
    bytes: int = 0
    checkpoints: int = 0
    problems: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    full: DiskFull | None = None  # there was no room for it at home

    def add(self, other: Collected) -> None:
        self.runs += other.runs
        self.files += other.files
        self.bytes += other.bytes
        self.checkpoints += other.checkpoints
        self.problems += other.problems
        self.notes += other.notes
        self.full = self.full or other.full


def collect(
    fleet: Fleet,
    views: Sequence[HostView],
    *,
    only: frozenset[str] = frozenset(),
    wait_s: float = LOCK_WAIT_S,
) -> Collected:
    """Bring the runs (or `only` those) home from all hosts, and write `runs.json`.

    One command at a time does so; raises StateError when another one still does after `wait_s`.
    """

    def waiting(holder: str) -> None:
        fleet.say("home", f"waiting for {holder}")

    with locked(fleet.paths.home_lock, fleet.command, wait_s=wait_s, waiting=waiting):
        return _collect(fleet, views, only)


def _collect(fleet: Fleet, views: Sequence[HostView], only: frozenset[str]) -> Collected:
    total = Collected()
    states: dict[str, dict[str, Any]] = {run["id"]: run for run in read_runs(fleet.paths.artifacts / "runs.json")}
    writing = threading.Lock()
    owners = {run: item.host for run, item in located(views).items() if not only or run in only}
    reachable = {view.host: [run for run, host in owners.items() if host == view.host] for view in views if view.probe}
    total.problems += [f"{view.host.name}: {view.error}" for view in views if view.error]

    def bring(host: Host) -> None:
        brought = _Host(fleet, host).collect(reachable[host])
        with writing:
            total.add(brought.done)
            states.update({state["id"]: state for state in brought.states})

    for outcome in gather([host for host, chosen in reachable.items() if chosen], bring):
        if outcome.error:
            total.problems.append(f"{outcome.item.name}: {outcome.error.message}")
    write_runs(fleet, list(states.values()))
    return total


def write_runs(fleet: Fleet, states: Sequence[dict[str, Any]]) -> None:
    with writing(fleet.paths.artifacts):
        fleet.paths.artifacts.mkdir(parents=True, exist_ok=True)
    ordered = sorted(states, key=lambda state: natural(str(state["id"])))
    write_json(fleet.paths.artifacts / "runs.json", {"schema": SCHEMA, "fleet": fleet.spec.fleet, "runs": ordered})


@dataclass(frozen=True)
class _Share:
    """What is missing at home of one run; of its checkpoints the newest first."""

    home: RunHome
    offered: dict[str, Any]
    plain: list[Wanted]
    checkpoints: list[tuple[dict[str, Any], list[Wanted]]]
    newest: dict[str, Any] | None

    @classmethod
    def of(cls, home: RunHome, offered: dict[str, Any]) -> _Share:
        home.log_cut_there = int(offered.get("log_cut") or 0)
        verified = [checkpoint for checkpoint in reversed(offered["checkpoints"]) if checkpoint["verified"]]
        home.forget_parts(verified)
        plain = [wanted for entry in offered["files"] if (wanted := home.wanted(entry))]
        checkpoints = [(point, items) for point in verified if (items := home.wanted_of_checkpoint(point))]
        return cls(home, offered, plain, checkpoints, next(iter(verified), None))

    def missing(self) -> list[Wanted]:
        """What must be sent; of a checkpoint that was cut only what had not come."""
        return [*self.plain, *(item for _, items in self.checkpoints for item in items if item.offset < item.size)]

    def is_known_flaw(self, checkpoint: Mapping[str, Any]) -> bool:
        """Whether a checkpoint that isn't as its manifest says is no news, and no loss that a person could still avert:
        its run has ended, and a newer one is whole or people were told before."""
        if self.offered["state"]["state"] not in FINAL_STATES:
            return False
        newer = (other for other in self.offered["checkpoints"] if other["step"] > checkpoint["step"])
        if any(other["verified"] for other in newer) or checkpoint["name"] in self.home.told:
            return True
        self.home.told.append(str(checkpoint["name"]))
        return False


class _Host:
    """One host's share of a collect: one question, one stream, and what one run can't have is only its own loss."""

    def __init__(self, fleet: Fleet, host: Host) -> None:
        self._fleet = fleet
        self._host = host
        self._said = time.monotonic()
        self._answered: set[Wanted] = set()  # arrived, or the host has it no more
        self._arrived: set[Wanted] = set()
        self.done = Collected()
        self.states: list[dict[str, Any]] = []

    def collect(self, runs: Sequence[str]) -> _Host:
        asked = time.time()
        manifest = self._fleet.agent(self._host).ask("manifest", {"runs": list(runs)}, timeout_s=600)
        shares: list[_Share] = []
        states: dict[str, dict[str, Any]] = {}
        for offered in manifest["runs"]:
            state = offered["state"]
            states[state["id"]] = before_all_is_home(state)
            with self._guarded(state["id"]):
                if state["attempts"]:
                    home = RunHome.open(self._fleet.paths.runs, state)
                    home.write_state(states[state["id"]])
                    shares.append(_Share.of(home, offered))
            self.done.runs += 1
        try:
            with self._guarded("the transfer"):
                self._fetch([item for share in shares for item in share.missing()])
        finally:  # also after a cut line: what has come is kept
            for share in shares:
                state = share.offered["state"]
                with self._guarded(state["id"]):
                    if self._finish(share, asked):
                        states[state["id"]] = state
            self.states += states.values()
        if self.done.files:
            self._fleet.say(self._host.name, f"{self.done.files} files, {size(self.done.bytes)} home", "done")
        return self

    def _finish(self, share: _Share, asked: float) -> bool:
        """Put what has come in its place; whether that is all there was when the host was `asked`.

        A checkpoint is shown after the records that were there before it: whoever goes on from it needs them.
        """
        for item in share.plain:
            if item in self._arrived:
                share.home.finish(item)
        whole = all(item in self._answered for item in share.plain)
        for checkpoint, items in share.checkpoints if whole else ():
            if all(item in self._arrived or item.offset == item.size for item in items):
                share.home.finish_checkpoint(checkpoint, items)
                self.done.checkpoints += 1
            elif checkpoint is share.newest or not all(item in self._answered for item in items):
                whole = False  # an older one may have been removed since: the job keeps its newest
        run = share.offered["state"]["id"]
        for checkpoint in share.offered["checkpoints"]:
            if not checkpoint["verified"]:
                told = self.done.notes if share.is_known_flaw(checkpoint) else self.done.problems
                told.append(f"{run} on {self._host.name}: {checkpoint['name']} is not as its manifest says")
        if whole:
            share.home.mirrored = asked
            share.home.write_state(share.offered["state"])
        share.home.write_index()
        return whole

    @contextlib.contextmanager
    def _guarded(self, what: object) -> Generator[None]:
        try:
            with writing(self._fleet.paths.runs):
                yield
        except DiskFull as error:
            self.done.full = error
            self._problem(what, error.message)
        except HostFault as error:
            self._problem(what, error.message)
        except OSError as error:
            self._problem(what, f"{error.strerror or error} ({error.filename or 'at home'})")

    def _problem(self, run: object, text: str) -> None:
        self.done.problems.append(f"{run} on {self._host.name}: {text}")

    def _fetch(self, wanted: Sequence[Wanted]) -> None:
        if not wanted:
            return
        ask = [
            {"run": item.run, "path": item.path, "offset": item.offset, "length": item.size - item.offset}
            for item in wanted
        ]
        all_bytes = sum(item.size - item.offset for item in wanted)
        with self._fleet.agent(self._host).open("fetch", {"files": ask}) as stream:
            for item in wanted:
                self._receive(stream, item, all_bytes)

    def _receive(self, stream: Stream, item: Wanted, all_bytes: int) -> None:
        header = _header(stream, item)
        left = int(header["length"])
        if left < 0:  # gone since the manifest was made: the next collect sees why
            self._answered.add(item)
            return
        with item.part.open("r+b" if item.part.exists() else "w+b") as file:
            file.seek(item.offset)
            file.truncate()
            while left:
                chunk = stream.read(min(CHUNK, left))
                if not chunk:
                    raise HostFault(
                        f"the transfer of {item.path} was cut", kind="cut", hint="run the same command again"
                    )
                file.write(chunk)
                left -= len(chunk)
                self.done.bytes += len(chunk)
                self._tell(all_bytes)
        self._answered.add(item)
        self._arrived.add(item)
        self.done.files += 1

    def _tell(self, all_bytes: int) -> None:
        """How far it is, now and then."""
        if time.monotonic() - self._said > SAY_EVERY_S:
            self._said = time.monotonic()
            self._fleet.say(self._host.name, f"{size(self.done.bytes)} of {size(all_bytes)}")


def _header(stream: Stream, item: Wanted) -> dict[str, Any]:
    try:
        header = json.loads(stream.readline(65536))
        if (header["run"], header["path"], header["offset"]) != (item.run, item.path, item.offset):
            raise ValueError
        if not -1 <= int(header["length"]) <= item.size - item.offset:
            raise ValueError
    except (ValueError, KeyError, TypeError) as error:
        raise HostFault(f"the host did not send {item.path} as asked", kind="cut", hint="tpufleet doctor") from error
    return header


def summary(collected: Collected) -> str:
    """One line for a person."""
    if not collected.files:
        return f"{counted(collected.runs, 'run')}: nothing new"
    return (
        f"{counted(collected.runs, 'run')}: {counted(collected.files, 'file')} ({size(collected.bytes)}) came home, "
        f"{counted(collected.checkpoints, 'new checkpoint')}"
    )
