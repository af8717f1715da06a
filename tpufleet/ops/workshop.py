"""The end of an evening: everybody out, what they agreed to leave comes home, the fleet goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tpufleet.errors import ConfigError, PartialFailure
from tpufleet.model import HostView, Node, Person
from tpufleet.ops.accounts import Applied, apply
from tpufleet.ops.belongings import Brought, bring_belongings
from tpufleet.ops.collect import Collected, collect
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.people import People
from tpufleet.paths import LocalPaths, write_atomically, writing


@dataclass(frozen=True)
class Closed:
    """What became of the accounts, and what came home of people and of runs."""

    applied: Applied
    brought: Brought
    collected: Collected
    home: Path

    @property
    def problems(self) -> list[str]:
        """What isn't home, and the same command may still bring."""
        return [*self.brought.problems, *self.collected.problems]


def who_is_there(people: People, views: Sequence[HostView]) -> dict[str, bool]:
    """Everybody of the list, and whose account is open on a host all the same (a command was cut off); and whether
    they agreed, as far as is known here."""
    told = [person for view in views for person in (view.probe or {}).get("people") or () if person["state"] == "here"]
    return {str(person["name"]): False for person in told} | {str(one.name): one.share for one in people.persons}


def empty(people: People) -> Path | None:
    """Take everybody out of the list, a copy of which is kept with what they leave; where it is, if anybody was there.

    Raises ConfigError, before anything is changed, for a list that only a person may change.
    """
    persons: tuple[Person, ...] = people.persons
    if not persons:
        return None
    if people.roster.inside:
        raise ConfigError(
            "the people are in the fleet file, which only you change",
            where=str(people.roster.path),
            hint="write `people: []` there, then the same command again",
        )
    copy = people.paths.belongings / people.roster.path.name
    with writing(copy):
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(copy, people.roster.text.encode())
    for person in persons:
        people.revoke(str(person.name))
    people.write()
    return copy


def close(fleet: Fleet, people: People, nodes: Sequence[Node], views: Sequence[HostView]) -> Closed:
    """Close all accounts, so that nothing changes any more, then bring home what was agreed to, and all runs. A host
    that isn't heard is named once."""
    applied = apply(fleet, people, nodes=nodes, views=views)
    brought = bring_belongings(fleet, [view.host for view in views if view.probe])
    return Closed(applied, brought, collect(fleet, views), fleet.paths.belongings)


def forget(paths: LocalPaths, *, hosts_stay: bool) -> None:
    """The next evening here begins anew: with another code and nobody's sign-up, and where the hosts are gone with
    nothing that is remembered of their accounts."""
    with writing(paths.state):
        paths.sign_ups.unlink(missing_ok=True)
        if not hosts_stay:
            paths.people.unlink(missing_ok=True)


def raise_unless_home(closed: Closed) -> None:
    """Before the hosts go: raises DiskFull, or PartialFailure with what is missing."""
    if closed.collected.full:
        raise closed.collected.full
    if closed.problems:
        more = f" (and {len(closed.problems) - 1} more)" if len(closed.problems) > 1 else ""
        raise PartialFailure(
            f"not everything is home, so the fleet stays: {closed.problems[0]}{more}",
            hint="the same command again; with --anyway the fleet is deleted all the same",
        )
