"""`tpufleet people`: who has an account and a seat; the list is a file that one may as well keep by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from tpufleet.cli import completion, people_apply, people_card, people_check
from tpufleet.cli.arguments import DryRun, help_alone, session
from tpufleet.cli.people_apply import Apply
from tpufleet.cli.people_list import answer, opened
from tpufleet.cli.session import Session
from tpufleet.errors import UsageError
from tpufleet.model import Person
from tpufleet.names import Seat

if TYPE_CHECKING:
    from tpufleet.ops.people import People

COLUMNS = ("name", "seat", "expires", "key", "share", "note")
SHORT = len("SHA256:") + 12  # of a fingerprint, in the table
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The person's account on the hosts.", autocompletion=completion.people)
]

app = typer.Typer(
    name="people",
    help="Who has an account on the hosts, by which key, and where they sit.",
    rich_markup_mode=None,
    invoke_without_command=True,
)


app.callback()(help_alone)


@app.command("add")
def add(
    context: typer.Context,
    name: Name,
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY|FILE|-]", help="A public key, its file, or - for standard input.")
    ] = None,
    github: Annotated[str | None, typer.Option("--github", metavar="USER", help="The key of a GitHub user.")] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="WHEN", help="8h, 2026-12-01, or 2026-12-01T18:00Z.")
    ] = None,
    seat: Annotated[
        str | None, typer.Option("--seat", metavar="CHIP", help="A fixed seat: tpu-0-w0:2, or tpu-0-w0 for all of it.")
    ] = None,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="For you alone.")] = "",
    share: Annotated[
        bool, typer.Option("--share", help="They agreed that completions are shown and results are kept.")
    ] = False,
    apply: Apply = False,
    dry_run: DryRun = False,
) -> None:
    """Add a person.

    Into the file that `people:` of the fleet file names, else people.yaml beside it.

    Example: tpufleet people add ada 'ssh-ed25519 AAAA... ada@laptop' --expires 8h

    Example: tpufleet people add ada --github ada-lovelace

    Example: pbpaste | tpufleet people add ada -
    """
    from tpufleet.cli import people_words

    this = session(context)
    person = Person(
        people_words.name(name),
        people_words.key(this.out, key, github),
        people_words.expires(expires),
        people_words.seat(seat) if seat else None,
        people_words.note(note),
        share,
    )
    with opened(this, "people add", dry_run=dry_run) as people:
        twin = people.find(name)
        if twin and twin.key == person.key and not (expires or seat or note or share):
            person = twin  # nothing was said of the rest, so it stays as it is
        changed = people.add(person)
        people.write()
        if changed:
            until = f", until {person.expires:%Y-%m-%d %H:%M} UTC" if person.expires else ""
            this.out.line(f"{'would add' if dry_run else 'added'} {name} to {people.roster.path}{until}")
        else:
            this.out.line(f"{name} is in the list already; nothing to do")
        answer(this, people, [person.name], changed=changed, apply=apply)


@app.command("list")
def list_(context: typer.Context) -> None:
    """Show everybody in the list, and where they sit.

    Example: tpufleet people list --json
    """
    this = session(context)
    with opened(this, "people list", dry_run=True) as people:
        rows = people.fields()
        this.out.table(
            COLUMNS,
            [
                (
                    row["name"],
                    (row["seat"] or f"none: {row['why']}") + (" (fixed)" if row["fixed"] and row["seat"] else ""),
                    "over" if row["expired"] else row["expires"] or "",
                    f"{row['key'].split(' ')[0]} {row['fingerprint'][:SHORT]}",
                    "yes" if row["share"] else "",
                    row["note"],
                )
                for row in rows
            ],
        )
        if not rows:
            this.out.line("nobody yet: tpufleet people add NAME KEY")
        if people.revoked:
            this.out.note(f"revoked, and maybe still on hosts: {', '.join(people.revoked)}")
        this.out.data(file=str(people.roster.path), people=rows, revoked=list(people.revoked))


@app.command("seat")
def seat(
    context: typer.Context,
    name: Name,
    chip: Annotated[
        str | None, typer.Argument(metavar="[CHIP]", help="tpu-0-w0:2, or tpu-0-w0 for all of it; default: as it is.")
    ] = None,
    anywhere: Annotated[bool, typer.Option("--anywhere", help="No fixed seat: wherever there is room.")] = False,
    apply: Apply = False,
    dry_run: DryRun = False,
) -> None:
    """Fix a person's seat.

    Without CHIP: where they sit now. Who sat there without a fixed seat moves.

    Example: tpufleet people seat ada tpu-0-w0:2

    Example: tpufleet people seat ada --anywhere
    """
    from tpufleet.cli import people_words

    if chip and anywhere:
        raise UsageError("a chip and --anywhere exclude each other", hint=f"tpufleet people seat {name} {chip}")
    this = session(context)
    with opened(this, "people seat", dry_run=dry_run) as people:
        people.known(name)
        _sit(
            this,
            people,
            {name: None if anywhere else people_words.seat(chip) if chip else people.seat_of(name)},
            apply=apply,
        )


@app.command("swap")
def swap(
    context: typer.Context,
    one: Annotated[str, typer.Argument(metavar="A", help="A person.", autocompletion=completion.people)],
    other: Annotated[str, typer.Argument(metavar="B", help="Another one.", autocompletion=completion.people)],
    apply: Apply = False,
    dry_run: DryRun = False,
) -> None:
    """Let two people swap their seats, which are fixed from then on.

    Example: tpufleet people swap ada grace
    """
    this = session(context)
    with opened(this, "people swap", dry_run=dry_run) as people:
        people.known(one)
        people.known(other)
        if one == other:
            raise UsageError("a swap needs two people", hint=f"tpufleet people swap {one} SOMEBODY")
        _sit(this, people, {one: people.seat_of(other), other: people.seat_of(one)}, apply=apply)


@app.command("revoke")
def revoke(
    context: typer.Context,
    name: Name,
    later: Annotated[bool, typer.Option("--later", help="Only in the list; tell the hosts another time.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Take a person out of the list, and off all hosts.

    Their sessions end at once. Hosts that can't be reached are told by the next apply, create or watch.

    Example: tpufleet people revoke ada
    """
    this = session(context)
    with opened(this, "people revoke", dry_run=dry_run) as people:
        changed = people.revoke(name)
        people.write()
        there = not (later or dry_run) and people_apply.is_there(people)
        told = people_apply.at_once(this, people, "people revoke") if there else people_apply.Told()
        if not (changed or there):
            this.out.line(f"{name} is revoked already; nothing to do")
        elif dry_run:
            this.out.line(f"would revoke {name}")
        elif name in people.revoked:
            this.out.line(f"revoked {name}, which is remembered until the hosts have been told")
        else:
            this.out.line(f"revoked {name}: no host has the account open")
        this.out.data(file=str(people.roster.path), revoked=name, changed=changed, dry_run=dry_run, **told.fields)
    told.raise_for_missed()


def _sit(this: Session, people: People, wanted: Mapping[str, Seat | None], *, apply: bool) -> None:
    """Give these fixed seats, or none, and say who else has to move for it."""
    before = people.seating
    changed = any(person.seat != wanted[person.name] for person in people.persons if person.name in wanted)
    if changed:
        people.reseat(wanted)
    for name in wanted:
        if why := people.seating.standing.get(name):
            raise UsageError(f"{name} can't sit there: {why}", hint="tpufleet people list")
    people.write()
    for name, seat in people.seating.seats.items():
        if seat != before.seats.get(name) and name not in people.moved:  # those are told in any case
            this.out.line(f"{name}: {before.seats.get(name, 'no seat')} -> {seat}")
    for name, why in people.seating.standing.items():
        this.out.note(f"{name} has no seat: {why}")
    if not changed:
        this.out.line("nothing to do")
    answer(this, people, list(wanted), changed=changed, apply=apply)


app.command("card")(people_card.card)
app.command("apply")(people_apply.apply)
app.command("check")(people_check.check)
