"""`tpufleet people apply`, and what other commands say when they have told the hosts of a change at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpufleet.cli.arguments import DryRun, session
from tpufleet.cli.people_list import opened
from tpufleet.cli.session import Session
from tpufleet.errors import PartialFailure, TpufleetError, UsageError
from tpufleet.model import Provider
from tpufleet.text import counted, listed

if TYPE_CHECKING:
    from tpufleet.names import Seat
    from tpufleet.ops.accounts import Account, Applied
    from tpufleet.ops.people import People

AGAIN = "tpufleet people apply; create and watch do it, too"

Apply = Annotated[bool, typer.Option("--apply", help="Tell the hosts at once, as `people apply` does.")]


def apply(context: typer.Context, dry_run: DryRun = False) -> None:
    """Make the accounts on all hosts equal the list.

    Who is in the list gets an account on every host, who isn't any more is revoked; a seat on a host that is gone
    moves to a free chip. Hosts that can't be reached are told by the next apply, create or watch.

    Example: tpufleet people apply --dry-run
    """
    from tpufleet.ops.accounts import apply as told, would_be

    this = session(context)
    with opened(this, "people apply", dry_run=dry_run) as people:
        with this.fleet("people apply", dry_run=dry_run) as fleet:
            applied = would_be(fleet, people) if dry_run else told(fleet, people)
        if not applied.outcomes:
            raise UsageError("the fleet has no hosts that are ready", hint="tpufleet create")
        show(this, people, applied, "would be" if dry_run else "accounts")
        this.out.data(
            fleet=people.spec.fleet,
            dry_run=dry_run,
            changed=applied.changed,
            people=[
                {
                    "name": name,
                    "uid": people.memory.uids.get(name),
                    "seat": people.seating.seats.get(name),
                    "hosts": {host: {"state": account.state, "why": account.why} for host, account in accounts},
                }
                for name, accounts in _by_person(people, applied).items()
            ],
            **fields(applied),
        )
    if error := failure(applied):
        raise error


@dataclass(frozen=True)
class Told:
    """What came of telling the hosts of a change that is in the list already: JSON fields, and what to raise."""

    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    failure: TpufleetError | None = None

    def raise_for_missed(self) -> None:
        if self.failure:
            raise self.failure


def at_once(this: Session, people: People, command: str, about: Collection[str] = ()) -> Told:
    """Tell the hosts of the change that was just written, which was `about` these people.

    That not all could be told, or that a host refuses one of them, is a partial failure.
    """
    from tpufleet.ops.accounts import apply as told

    try:
        with this.fleet(command) as fleet:
            applied = told(fleet, people)
    except TpufleetError as error:
        say_moved(this, people, people.moved)
        return Told({}, PartialFailure(f"the list is changed, but no host was told: {error}", hint=AGAIN))
    say_moved(this, people, applied.moved)
    return Told(fields(applied), failure(applied, about))


def is_there(people: People) -> bool:
    """Whether there may be hosts to tell: a rehearsal cloud that never was has none."""
    return people.spec.cloud.provider is not Provider.EMULATOR or people.paths.emulator.exists()


def show(this: Session, people: People, applied: Applied, heading: str) -> None:
    """Everybody's accounts in few words, and whose card isn't right any more."""
    seats = people.seating.seats
    found = _by_person(people, applied)
    rows = [(name, seats.get(name, ""), _words([account for _, account in found[name]])) for name in found]
    if rows:
        this.out.table(("name", "seat", heading), rows)
    elif not applied.missed:
        this.out.line(f"{counted(len(applied.outcomes), 'host')}, and nobody in the list")
    for name, why in people.seating.standing.items():
        this.out.note(f"{name} has no seat: {why}")
    for name, host in applied.waiting.items():
        this.out.note(f"{name} waits: {host} is gone")
    say_moved(this, people, applied.moved)


def say_moved(this: Session, people: People, moved: Mapping[str, Seat]) -> None:
    """Whose card isn't right any more, whatever the command was about."""
    for name, seat in moved.items():
        this.out.line(f"{name} would sit at {seat}" if people.dry_run else f"{name} sits at {seat} now")
    if moved and not people.dry_run:
        this.out.line(f"new card: tpufleet people card {' '.join(moved)}")


def fields(applied: Applied) -> dict[str, Any]:
    """Who moved where, who waits for a host that is gone, and the hosts that were not told, as JSON fields."""
    return {
        "moved": dict(applied.moved),
        "waiting": dict(applied.waiting),
        "missed": {host: error.message for host, error in applied.missed.items()},
    }


def failure(applied: Applied, about: Collection[str] | None = None) -> TpufleetError | None:
    """The error for hosts that couldn't be told, or that refused somebody.

    With `about` something else was done, so it is no whole failure, and refusals of other people are no news.
    """
    missed, total = applied.missed, len(applied.outcomes)
    if missed:
        names = listed([f"{host} ({error.message})" for host, error in missed.items()], 5)
        if len(missed) == total and about is None:
            return next(iter(missed.values()))
        return PartialFailure(f"{len(missed)} of {counted(total, 'host')} not told: {names}", hint=AGAIN)
    refused = [(host, account) for host, account in applied.refused if about is None or account.name in about]
    if refused:
        host, account = refused[0]
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        return PartialFailure(
            f"{account.name} was refused on {host}: {account.why or 'no reason given'}{more}",
            hint="mend that on the host or in the list, then tpufleet people apply",
        )
    return None


def _by_person(people: People, applied: Applied) -> Mapping[str, Sequence[tuple[str, Account]]]:
    """Everybody's accounts by host: those of the list in its order, then who is revoked."""
    found: dict[str, list[tuple[str, Account]]] = {str(person.name): [] for person in people.persons}
    for host, account in applied.accounts:
        found.setdefault(account.name, []).append((host, account))
    return found


def _words(accounts: Sequence[Account]) -> str:
    """`made on 4 hosts, kept on 1 host`."""
    counts = Counter(account.state for account in accounts)
    return ", ".join(f"{state} on {counted(number, 'host')}" for state, number in counts.items())
