"""Accounts on the hosts: made equal the list of people, one request per host, side by side.

What a host is asked for is a pure function of the list, the seats and the fleet; a digest of what it did is remembered.
A host whose digest isn't that of what it is to be asked now has missed something: it was made anew, was silent, or the
list has changed since. That is all that `create` and `watch` have to look at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from tpufleet.errors import HostFault, TpufleetError, Unreachable
from tpufleet.model import GONE_STATES, Host, HostView, Node, NodeState
from tpufleet.names import HostName, Seat
from tpufleet.ops.accounts_wanted import (
    Request,
    Wanted,
    anybody_on,
    clone_of,
    digest,
    foreseen,
    gone_hosts,
    learned,
    learned_seats,
    numbered,
    wiped,
)
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.observe import find_nodes, hosts_of, probe
from tpufleet.ops.people import People, opened
from tpufleet.ssh.fanout import Outcome, gather
from tpufleet.text import clean, counted

LIMIT_S = 600.0  # for one host's accounts, with a clone for each
STATES = ("made", "kept", "changed", "revoked", "expired", "refused")


@dataclass(frozen=True)
class Account:
    """What became of one person's account on one host; `state` is one of STATES."""

    name: str
    state: str
    why: str | None = None


@dataclass(frozen=True)
class Applied:
    """Every host's accounts, or the error why it couldn't be told; who sits elsewhere than before the command; who
    waits for a host that is gone, since there is no room elsewhere or the seat is fixed; and who sits at a host whose
    machine was told for the first time (`anew`)."""

    outcomes: tuple[Outcome[Host, tuple[Account, ...]], ...] = ()
    moved: Mapping[str, Seat] = field(default_factory=dict[str, Seat])
    waiting: Mapping[str, HostName] = field(default_factory=dict[str, HostName])
    anew: Mapping[str, HostName] = field(default_factory=dict[str, HostName])

    @property
    def missed(self) -> dict[str, TpufleetError]:
        """The hosts that were not told, and why; they are told later."""
        return {str(outcome.item.name): outcome.error for outcome in self.outcomes if outcome.error}

    @property
    def refused(self) -> list[tuple[str, Account]]:
        """Host and account, for each that a host refused to make."""
        return [(host, account) for host, account in self.accounts if account.state == "refused"]

    @property
    def accounts(self) -> list[tuple[str, Account]]:
        return [(str(outcome.item.name), account) for outcome in self.outcomes for account in outcome.value or ()]

    @property
    def changed(self) -> bool:
        return bool(self.moved) or any(account.state in ("made", "changed", "revoked") for _, account in self.accounts)


def apply(
    fleet: Fleet,
    people: People,
    *,
    nodes: Sequence[Node] | None = None,
    views: Sequence[HostView] | None = None,
    visitor: Mapping[str, Any] | None = None,
    only_news: bool = False,
) -> Applied:
    """Make the accounts on all READY hosts equal the list; seats leave hosts that are gone.

    `nodes` and `views` are what is known of the fleet already; it is asked otherwise, the hosts only when a uid has to
    be learned from them. `visitor` is a key that may enter every account for a while. `only_news` tells the hosts that
    have missed something and were heard, no others. Who was revoked is forgotten once nobody has to be told of it.
    """
    nodes = find_nodes(fleet) if nodes is None else nodes
    hosts = hosts_of(fleet, nodes)
    views = views or ()
    learn(fleet, people, hosts, views)
    sit(people, nodes, hosts)
    people.write()
    if only_news:
        heard = {view.host.identity for view in views if view.probe}
        to = [host for host in behind(fleet, people, hosts) if host.identity in heard]
    else:
        to = list(hosts)
    first = {host.name for host in to if host.identity not in people.memory.told}
    outcomes = make_equal(fleet, people, hosts, to, visitor)
    if people.revoked and all(node.state in (NodeState.READY, *GONE_STATES) for node in nodes):
        requests = _requests(fleet, people, hosts, visitor)
        if all(people.memory.told.get(host.identity) == digest(requests[host.name]) for host in hosts):
            people.memory = replace(people.memory, revoked=())
            people.write()
    anew = {name: seat.host for name, seat in people.seating.seats.items() if seat.host in first}
    return Applied(outcomes, people.moved, _waiting(people, nodes), anew)


def bring(fleet: Fleet, views: Sequence[HostView]) -> Applied:
    """What `create` does for the hosts that it has made ready: those that have missed something are told.

    A fleet without people, in the list and on the hosts, is not asked for anything.
    """
    if not fleet.spec.people and not anybody_on(views):
        return Applied()

    def waiting(who: str) -> None:
        fleet.say("people", f"waiting for {who}")

    with opened(fleet.paths.config, fleet.command, waiting=waiting) as people:
        if why := wiped(people.persons, people.revoked, views):
            fleet.say("people", why, "failed")
            return Applied()
        applied = apply(fleet, people, views=views, only_news=True)
    say_moved(fleet, applied)
    return applied


def has_news(fleet: Fleet, people: People, nodes: Sequence[Node], views: Sequence[HostView]) -> bool:
    """Whether `apply` with `only_news` would do anything; nothing is changed."""
    hosts = hosts_of(fleet, nodes)
    sit(people, nodes, hosts)
    if people.seating.seats != people.memory.seats:
        return True
    if not {person.name for person in people.persons} <= people.memory.uids.keys():
        return True
    heard = {view.host.identity for view in views if view.probe}
    return any(host.identity in heard for host in behind(fleet, people, hosts))


def say_moved(fleet: Fleet, applied: Applied) -> None:
    """Whose cards are new: they sit elsewhere now, or their machine is another one, with a key and perhaps an address
    of its own."""
    for host in sorted(set(applied.anew.values())):
        names = [name for name, where in applied.anew.items() if where == host and name not in applied.moved]
        if names:
            fleet.say(host, f"a new machine; new cards: tpufleet people card {' '.join(sorted(names))}")
    for name, seat in applied.moved.items():
        fleet.say(name, f"sits at {seat} now; new card: tpufleet people card {name}")


def would_be(fleet: Fleet, people: People) -> Applied:
    """What `apply` would do, by what the hosts tell of their accounts; nothing is changed anywhere."""
    nodes = find_nodes(fleet)
    hosts = hosts_of(fleet, nodes)
    views = probe(fleet, hosts)
    learn(fleet, people, hosts, views)
    sit(people, nodes, hosts)
    requests = _requests(fleet, people, hosts, None)
    outcomes = [
        Outcome(view.host, tuple(Account(*found) for found in foreseen(requests[view.host.name], view)))
        if view.probe or view.bare
        else Outcome[Host, tuple[Account, ...]](view.host, error=Unreachable(str(view.error), where=view.host.name))
        for view in views
    ]
    return Applied(tuple(outcomes), people.moved, _waiting(people, nodes))


def learn(fleet: Fleet, people: People, hosts: Sequence[Host], views: Sequence[HostView] = ()) -> None:
    """See to it that everybody has a uid: the one that hosts know them by where home has forgotten it, else a new one.

    Where people sat is learned with it. Hosts of which no view is given are asked, if it has to be.
    """
    names = [str(person.name) for person in people.persons]
    memory = people.memory
    if not set(names) <= memory.uids.keys():
        seen = {view.host.identity for view in views}
        views = [*views, *probe(fleet, [host for host in hosts if host.identity not in seen])]
        # a seat that home gave to somebody whom only the hosts know was given after it had forgotten them
        sat = {name: seat for name, seat in learned_seats(views).items() if name not in memory.uids}
        memory = replace(memory, uids={**learned(views), **memory.uids}, seats={**memory.seats, **sat})
        people.sat = {**sat, **people.sat}
    people.memory = replace(memory, uids=numbered(names, memory.uids))


def sit(people: People, nodes: Sequence[Node], hosts: Sequence[Host]) -> None:
    """Seat everybody at the hosts that are there now, or will be."""
    gone = gone_hosts(people.spec, nodes)
    people.seating = people.seated({host.name: host.chips for host in hosts}, gone=gone)


def _waiting(people: People, nodes: Sequence[Node]) -> dict[str, HostName]:
    gone = gone_hosts(people.spec, nodes)
    return {name: seat.host for name, seat in people.seating.seats.items() if seat.host in gone}


def behind(fleet: Fleet, people: People, hosts: Sequence[Host]) -> list[Host]:
    """Those of `hosts` (all that are READY) that were not told yet how things are now; everybody has a uid."""
    requests = _requests(fleet, people, hosts, None)
    return [host for host in hosts if people.memory.told.get(host.identity) != digest(requests[host.name])]


def make_equal(
    fleet: Fleet,
    people: People,
    hosts: Sequence[Host],
    to: Sequence[Host] | None = None,
    visitor: Mapping[str, Any] | None = None,
) -> tuple[Outcome[Host, tuple[Account, ...]], ...]:
    """Tell the hosts `to` (all of `hosts`, the READY ones, if not said) what their accounts are; side by side.

    Everybody has a uid. What was told is remembered.
    """
    requests = _requests(fleet, people, hosts, visitor)

    def tell(host: Host) -> tuple[Account, ...]:
        try:
            answer = fleet.agent(host).ask("accounts", requests[host.name], timeout_s=LIMIT_S)
            accounts = _accounts(host, answer)
        except TpufleetError as error:
            fleet.say(host.name, f"accounts: {error.message}", "failed")
            raise
        fleet.say(host.name, said(accounts, answer.get("sessions_ended")), "done")
        for account in accounts:
            if account.why:
                fleet.say(host.name, f"{account.name} {account.state}: {account.why}", "failed")
        return accounts

    outcomes = tuple(gather(hosts if to is None else to, tell))
    done = {outcome.item.identity: digest(requests[outcome.item.name]) for outcome in outcomes if not outcome.error}
    known = {host.identity: people.memory.told[host.identity] for host in hosts if host.identity in people.memory.told}
    told = {**known, **done}
    people.memory = replace(people.memory, told=told)
    people.write()
    return outcomes


def said(accounts: Collection[Account], sessions: object = 0) -> str:
    """`accounts: 19 kept, 1 revoked; 2 sessions ended`."""
    counts = [(state, sum(account.state == state for account in accounts)) for state in STATES]
    words = ", ".join(f"{number} {state}" for state, number in counts if number)
    ended = f"; {counted(sessions, 'session')} ended" if isinstance(sessions, int) and sessions else ""
    return f"accounts: {words or 'nobody'}{ended}"


def _requests(
    fleet: Fleet, people: People, hosts: Sequence[Host], visitor: Mapping[str, Any] | None
) -> dict[HostName, Request]:
    wanted = Wanted(
        people.spec.fleet,
        people.persons,
        people.seating.seats,
        people.memory.uids,
        _ways(fleet, hosts),
        clone_of(people.spec, people.paths.directory),
        visitor,
    )
    return {host.name: wanted.of(host) for host in hosts}


def _ways(fleet: Fleet, hosts: Sequence[Host]) -> list[dict[str, Any]]:
    """How hosts reach each other: those whose key is known."""
    keys = {outcome.item.name: outcome.value for outcome in gather(hosts, lambda host: _key(fleet, host))}
    return [
        {"name": str(host.name), "address": host.address, "port": host.port, "key": key}
        for host in hosts
        if (key := keys[host.name])
    ]


def _key(fleet: Fleet, host: Host) -> str | None:
    fleet.pin(host)
    key = fleet.trust.get(host.identity)
    return str(key) if key else None


def _accounts(host: Host, answer: Mapping[str, Any]) -> tuple[Account, ...]:
    """A host's answer, checked: it is nobody to be believed."""
    told: object = answer.get("accounts")
    found: list[Account] = []
    for item in cast("list[object]", told) if isinstance(told, list) else ():
        entry = cast("dict[str, object]", item) if isinstance(item, dict) else {}
        name, state, why = entry.get("name"), entry.get("state"), entry.get("why")
        if not isinstance(name, str) or state not in STATES or not isinstance(why, str | None):
            raise HostFault("its answer about accounts can't be read", kind="bad-answer", where=host.name)
        found.append(Account(clean(name)[:64], str(state), clean(why)[:300] if why else None))
    return tuple(found)
