"""`tpufleet people card`: what a person needs to get from their key to a training, on paper or in a message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpufleet.cli.arguments import session
from tpufleet.cli.people_list import List, opened
from tpufleet.errors import HostFault, PartialFailure, TpufleetError, UsageError

if TYPE_CHECKING:
    from tpufleet.cards import Card
    from tpufleet.model import Host, Spec
    from tpufleet.ops.fleet import Fleet


def card(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", help="Default: everybody.")] = None,
    html: Annotated[bool, typer.Option("--html", help="A page to print, one sheet per person.")] = False,
    file: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="Write it there.")] = None,
) -> None:
    """Write the cards: how to log in, train, and leave.

    The fleet must be there, since a card has the host's address and key.

    Example: tpufleet people card ada

    Example: tpufleet people card --html --file cards.html
    """
    from tpufleet.cards import text
    from tpufleet.paths import write_atomically
    from tpufleet.report.cards import cards_page

    this = session(context)
    with opened(this, "people card", dry_run=False) as people:
        chosen = [people.known(name).name for name in dict.fromkeys(names or [])] or [p.name for p in people.persons]
        if not chosen:
            raise UsageError("there is nobody in the list", hint="tpufleet people add NAME KEY")
        with this.fleet("people card") as fleet:
            cards, problems = _cards(people, fleet, chosen)
        people.write()
        written = file or (people.paths.artifacts / "cards.html" if html else None)
        if cards and written:
            try:
                written.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(written, (cards_page(cards) if html else text(cards)).encode())
            except OSError as error:
                raise UsageError(f"{written} can't be written: {error.strerror}") from error
            this.out.line(f"wrote {written}")
        elif cards:
            this.out.text(text(cards))
    this.out.data(
        fleet=people.spec.fleet,
        file=str(written) if cards and written else None,
        cards=[_fields(card) for card in cards],
        without={name: error.message for name, error in problems.items()},
    )
    _raise(problems, len(chosen))


def _raise(problems: Mapping[str, TpufleetError], wanted: int) -> None:
    for name, error in problems.items():
        if len(problems) == wanted:
            raise error
        raise PartialFailure(f"no card for {len(problems)} of {wanted}; for {name}: {error.message}", hint=error.hint)


def _cards(people: List, fleet: Fleet, names: Sequence[str]) -> tuple[list[Card], dict[str, TpufleetError]]:
    """The cards that can be made, and for whom there is none, and why."""
    from tpufleet.ops.observe import find_nodes, hosts_of

    hosts = {str(host.name): host for host in hosts_of(fleet, find_nodes(fleet))}
    people.seating = people.seated({host.name: host.chips for host in hosts.values()})
    needed = {seat.host for name, seat in people.seating.seats.items() if name in names}
    refused = _pinned(fleet, [host for name, host in hosts.items() if name in needed])
    cards: list[Card] = []
    problems: dict[str, TpufleetError] = {}
    for name in names:
        try:
            seat = people.seat_of(name)
            if seat.host not in hosts:
                raise UsageError(f"{seat.host}, where {name} sits, is not ready", hint="tpufleet create")
            if seat.host in refused:
                raise refused[seat.host]
            cards.append(_card(people, fleet, name, hosts[seat.host]))
        except TpufleetError as error:
            problems[name] = error
    return cards, problems


def _pinned(fleet: Fleet, hosts: Iterable[Host]) -> dict[str, TpufleetError]:
    """Pin the hosts' keys; why not, for those where it can't be done."""
    from tpufleet.ssh.fanout import gather

    outcomes = gather(list(hosts), fleet.pin)
    return {outcome.item.name: outcome.error for outcome in outcomes if outcome.error}


def _card(people: List, fleet: Fleet, name: str, host: Host) -> Card:
    from tpufleet.cards import Card
    from tpufleet.names import Address
    from tpufleet.publickey import fingerprint
    from tpufleet.ssh.trust import alias

    key = fleet.trust.get(host.identity)
    try:
        address = Address(host.address)
    except ValueError as error:
        raise HostFault(f"has an impossible address: {error}", kind="bad-address", where=host.name) from error
    if key is None:
        raise HostFault("no key of it is known", kind="no-host-key", where=host.name, hint="tpufleet create")
    jump = people.spec.ssh.jump
    return Card(
        fleet=people.spec.fleet,
        name=people.known(name).name,
        seat=people.seat_of(name),
        address=address,
        port=host.port,
        alias=alias(host.identity),
        fingerprint=fingerprint(key),
        host_key_kind=key.kind,
        jump=jump.rpartition("@")[2] if jump else None,
        expires=people.known(name).expires,
        **_training(people.spec),
    )


def _training(spec: Spec) -> dict[str, Any]:
    """What to clone and how to train, by the file: its first job, with the first values of its grid."""
    from tpufleet.names import RepoUrl
    from tpufleet.sweep import expand

    found: dict[str, Any] = {}
    for name, job in spec.jobs.items():
        try:
            found = {"train": expand(name, job)[0].command, "workdir": job.workdir}
        except UsageError:
            continue  # it has a `{name}` that only the command line fills
        break
    if spec.code and RepoUrl.pattern.fullmatch(spec.code.repo):
        found |= {"repo": spec.code.repo, "setup": spec.code.setup}
    return found


def _fields(card: Card) -> dict[str, Any]:
    from tpufleet.cards import text

    return {
        **{field: getattr(card, field) for field in ("name", "seat", "address", "port", "fingerprint")},
        "host": card.seat.host,
        "text": text([card]),
    }
