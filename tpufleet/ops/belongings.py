"""Bring home what people who agreed have trained and changed: `artifacts/FLEET/people/NAME/HOST/`, verified.

All hosts side by side, a host's people one after the other. What is home already isn't sent again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tpufleet.errors import HostFault, TpufleetError
from tpufleet.model import Host
from tpufleet.names import PersonName, shown
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.home import make_way, safe, write_json
from tpufleet.paths import writing
from tpufleet.ssh.agent import Agent
from tpufleet.ssh.fanout import gather
from tpufleet.ssh.port import Stream
from tpufleet.state.lock import locked
from tpufleet.text import clean

CHUNK = 1 << 20
LONGEST_LINE = 1 << 16
INDEX = ".collected.json"
PART = ".part"  # no file of a person's: those have no hidden names
LOCK_WAIT_S = 600.0
MOST_NOTES = 200  # of one person on one host; what a host says is nobody's to believe
LARGEST = 1 << 53


@dataclass
class Brought:
    """What came: `people` by name with the files that are home of each; `notes` are what a person's own files are to
    blame for, `problems` what the same command may still bring."""

    people: dict[str, int] = field(default_factory=dict[str, int])
    files: int = 0
    bytes: int = 0
    notes: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])


def bring_belongings(fleet: Fleet, hosts: Sequence[Host]) -> Brought:
    """What everybody who agreed has on `hosts`."""
    total = Brought()

    def waiting(holder: str) -> None:
        fleet.say("home", f"waiting for {holder}")

    with locked(fleet.paths.home_lock, fleet.command, wait_s=LOCK_WAIT_S, waiting=waiting):
        for outcome in gather(list(hosts), lambda host: _of_host(fleet, host)):
            if outcome.value is None:
                said = outcome.error.message if outcome.error else "gave no answer"
                total.problems.append(f"{outcome.item.name}: {said}")
            else:
                _add(total, outcome.value)
    return total


def _add(total: Brought, more: Brought) -> None:
    for name, count in more.people.items():
        total.people[name] = total.people.get(name, 0) + count
    total.files += more.files
    total.bytes += more.bytes
    total.notes += more.notes
    total.problems += more.problems


def _of_host(fleet: Fleet, host: Host) -> Brought:
    agent = fleet.agent(host)
    done = Brought()
    people: object = agent.ask("belongings", {"fleet": fleet.spec.fleet}).get("people")
    if not isinstance(people, list):
        raise _not_as_asked()
    for name in cast("list[object]", people):
        try:
            person = PersonName(str(name))
        except ValueError as error:
            raise HostFault(f"tells of an impossible person: {error}", kind="bad-name", where=host.name) from error
        fleet.say(host.name, f"fetching what {person} has")
        try:
            home = _Home.open(fleet.paths.belongings / person / host.name)
            home.receive(agent, {"fleet": fleet.spec.fleet, "person": person}, done)
            done.people[person] = len(home.index)
            done.notes += [f"{person} on {host.name}: {note}" for note in home.notes]
        except TpufleetError as error:
            done.problems.append(f"{person} on {host.name}: {error.message}")
    return done


@dataclass
class _Home:
    """One person's directory for one host; `index` says of which size and time on the host each file here is."""

    directory: Path
    index: dict[str, list[int]]
    notes: list[str] = field(default_factory=list[str])

    @classmethod
    def open(cls, directory: Path) -> _Home:
        try:
            known = cast("dict[str, list[int]]", json.loads((directory / INDEX).read_bytes())["files"])
        except (OSError, ValueError, KeyError, TypeError):
            known = {}
        return cls(directory, {path: known[path] for path in known if (directory / path).is_file()})

    def receive(self, agent: Agent, request: Mapping[str, Any], done: Brought) -> None:
        """Raises HostFault when the stream is cut, or is none; what came before that is kept."""
        with writing(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
        with agent.open("belongings", {**request, "have": self.index}) as stream:
            try:
                while not (line := _line(stream)).get("end"):
                    if "note" in line:
                        if len(self.notes) == MOST_NOTES:
                            raise _not_as_asked()
                        self.notes.append(clean(str(line["note"]))[:300])
                    elif not line.get("kept"):
                        self._receive(stream, line, done)
            finally:
                write_json(self.directory / INDEX, {"files": self.index})

    def _receive(self, stream: Stream, head: Mapping[str, Any], done: Brought) -> None:
        try:
            path, left, mtime_ns = safe(str(head["path"])), head["size"], head["mtime_ns"]
        except KeyError as error:
            raise _not_as_asked() from error
        if type(left) is not int or not 0 <= left <= LARGEST or type(mtime_ns) is not int or abs(mtime_ns) >= 1 << 63:
            raise _not_as_asked()
        target = self.directory / path
        part = self.directory / PART
        digest = hashlib.sha256()
        size = left
        with writing(part), part.open("wb") as file:
            while left > 0:
                block = stream.read(min(CHUNK, left))
                if not block:
                    raise HostFault(f"the transfer of {path} was cut", kind="cut", hint="run the same command again")
                file.write(block)
                digest.update(block)
                left -= len(block)
        if _line(stream).get("sha256") != digest.hexdigest():
            part.unlink()
            raise HostFault(f"{path} arrived damaged", kind="damaged", hint="run the same command again")
        try:
            with writing(target):
                make_way(self.directory, target)
                part.replace(target)
        except OSError as error:  # a name that is too long for here, for one
            part.unlink(missing_ok=True)
            why = f"{shown(path)} can't be kept here: {error.strerror}"
            raise HostFault(why, kind="bad-name") from error
        self.index[path] = [size, mtime_ns]
        done.files += 1
        done.bytes += size


def _line(stream: Stream) -> dict[str, Any]:
    line = stream.readline(LONGEST_LINE)
    if not line:
        raise HostFault("the transfer was cut", kind="cut", hint="run the same command again")
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        raise _not_as_asked() from None
    if not isinstance(value, dict):
        raise _not_as_asked()
    return cast("dict[str, Any]", value)


def _not_as_asked() -> HostFault:
    return HostFault("the host did not send what was asked for", kind="cut", hint="tpufleet doctor")
