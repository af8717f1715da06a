"""The page of the one who invites: who has come, who waits for a word, and what didn't work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpufleet.board.markup import form, page, to
from tpufleet.board.signup import Invitation, SignUp, State
from tpufleet.cards import Card
from tpufleet.publickey import fingerprint
from tpufleet.report.html import Child, Element, el

REFRESH_S = 5


@dataclass(frozen=True)
class Guests:
    """Who has come, which cards were made, and why some could not be."""

    sign_ups: Sequence[SignUp]
    cards: Mapping[str, Card]
    problems: Mapping[str, str]


def host_page(fleet: str, invitation: Invitation | None, link: str, guests: Guests) -> str:
    """`link` is the sign-up's address; the page changes by itself, without losing what is being read."""
    waiting = [sign_up for sign_up in guests.sign_ups if sign_up.state is State.WAITING]
    others = [sign_up for sign_up in guests.sign_ups if sign_up.state is not State.WAITING]
    return page(
        f"{fleet}: your page",
        el(
            "main",
            el("p", fleet, class_="kind"),
            el("h1", "Who comes"),
            _invitation(invitation, link),
            _waiting(waiting) if waiting else None,
            _people(others, guests.cards, guests.problems),
            el("p", to("/", "To the board")),
            class_="narrow",
        ),
        refresh_s=REFRESH_S,
        live=True,
    )


def _invitation(invitation: Invitation | None, link: str) -> Element:
    if invitation is None:
        return el("p", "Nobody can sign up now: tpufleet board --sign-up opens it.", class_="lead")
    return el(
        "div",
        el("p", invitation.code, class_="code"),
        el("p", f"The invitation code, until {invitation.until:%H:%M} UTC on {invitation.until:%Y-%m-%d}."),
        el("pre", el("code", link)),
        class_="panel",
    )


def _waiting(sign_ups: Sequence[SignUp]) -> Element:
    everybody = form("/host", [_hidden(sign_up) for sign_up in sign_ups], _button("welcome", "Let all of them in"))
    rows = [
        el(
            "li",
            _who(sign_up),
            form("/host", _hidden(sign_up), _button("welcome", "Let in"), _button("refuse", "Refuse")),
        )
        for sign_up in sign_ups
    ]
    return el(
        "section",
        el("h2", f"{len(sign_ups)} waiting for your word"),
        el("ul", rows, class_="people"),
        everybody if len(sign_ups) > 1 else None,
    )


def _people(sign_ups: Sequence[SignUp], cards: Mapping[str, Card], problems: Mapping[str, str]) -> Element:
    rows = [
        el("li", _who(sign_up), _became(sign_up, cards.get(sign_up.name), problems.get(sign_up.name)))
        for sign_up in sign_ups
    ]
    nobody = el("p", "Nobody yet.")
    return el("section", el("h2", "Signed up"), el("ul", rows, class_="people") if rows else nobody)


def _who(sign_up: SignUp) -> Element:
    share = "completions may be shown" if sign_up.share else "completions stay theirs"
    words = f"{sign_up.since:%H:%M} UTC · {share} · {sign_up.key.kind} {fingerprint(sign_up.key)}"
    return el("div", el("strong", str(sign_up.name)), el("p", words, class_="help"))


def _became(sign_up: SignUp, card: Card | None, problem: str | None) -> Child:
    if sign_up.state is State.REFUSED:
        again = form("/host", _hidden(sign_up), _button("welcome", "Let in after all", class_="again"))
        return [el("p", "refused", class_="state"), again]
    if problem:
        return el("p", f"no card yet, which is tried again: {problem}", class_="error")
    if card:
        return el("p", f"seat {card.seat}", class_="state good")
    return el("p", "in the list" if sign_up.state is State.LISTED else "is being let in", class_="state")


def _hidden(sign_up: SignUp) -> Element:
    return el("input", type="hidden", name="name", value=str(sign_up.name))


def _button(value: str, text: str, *, class_: str = "") -> Element:
    return el("button", text, type="submit", name="word", value=value, class_=class_ or value)
