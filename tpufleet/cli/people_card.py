"""`tpufleet people card`: what a person needs to get from their key to a training, on paper or in a message."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpufleet.cli import completion
from tpufleet.cli.arguments import session
from tpufleet.cli.people_list import opened
from tpufleet.errors import PartialFailure, TpufleetError, UsageError

if TYPE_CHECKING:
    from tpufleet.cards import Card


def card(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Default: everybody.", autocompletion=completion.people),
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="A page to print, one sheet per person.")] = False,
    file: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="Write it there.")] = None,
) -> None:
    """Write the cards: how to log in, train, and leave.

    The fleet must be there, since a card has the host's address and key.

    Example: tpufleet people card ada

    Example: tpufleet people card --html --file cards.html
    """
    from tpufleet.cards import text
    from tpufleet.ops.cards import cards_of
    from tpufleet.paths import write_atomically
    from tpufleet.report.cards import cards_page

    this = session(context)
    with opened(this, "people card", dry_run=False) as people:
        chosen = [people.known(name).name for name in dict.fromkeys(names or [])] or [p.name for p in people.persons]
        if not chosen:
            raise UsageError("there is nobody in the list", hint="tpufleet people add NAME KEY")
        with this.fleet("people card") as fleet:
            cards, problems = cards_of(people, fleet, chosen)
        people.write()
        for name, seat in people.moved.items():
            if name not in chosen:
                this.out.note(f"{name} sits at {seat} now; new card: tpufleet people card {name}")
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


def _fields(card: Card) -> dict[str, Any]:
    from tpufleet.cards import text

    return {
        **{field: getattr(card, field) for field in ("name", "seat", "address", "port", "fingerprint")},
        "host": card.seat.host,
        "text": text([card]),
    }
