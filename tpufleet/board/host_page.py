"""The page of the one who invites: who has come, who waits for a word, and what didn't work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpufleet.board.markup import AGAIN, form, page, to
from tpufleet.board.reception import Stage, Visit
from tpufleet.board.signup import Invitation, SignUp, State
from tpufleet.publickey import fingerprint
from tpufleet.report.html import Child, Element, el

REFRESH_S = 5


@dataclass(frozen=True)
class Guests:
    """Who has come and how far, who else is in the list, and why some cards could not be made."""

    visits: Sequence[Visit]
    others: Sequence[str]
    problems: Mapping[str, str]


def host_page(fleet: str, invitation: Invitation | None, link: str, guests: Guests) -> str:
    """`link` is the sign-up's address; the page changes by itself, without losing what is being read."""
    waiting = [visit.sign_up for visit in guests.visits if visit.stage is Stage.WAITING]
    others = [visit for visit in guests.visits if visit.stage is not Stage.WAITING]
    return page(
        f"{fleet}: your page",
        el(
            "main",
            el("p", fleet, class_="kind"),
            el("h1", "Who comes"),
            _invitation(invitation, link),
            _waiting(waiting) if waiting else None,
            _people(others, guests.problems),
            el("p", f"In the list without signing up here: {', '.join(guests.others)}") if guests.others else None,
            el("p", to("/", "To the board")),
            class_="narrow",
        ),
        refresh_s=REFRESH_S,
        scripts=AGAIN,
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


def _people(visits: Sequence[Visit], problems: Mapping[str, str]) -> Element:
    rows = [el("li", _who(visit.sign_up), _became(visit, problems.get(visit.sign_up.name))) for visit in visits]
    nobody = el("p", "Nobody yet.")
    return el("section", el("h2", "Signed up"), el("ul", rows, class_="people") if rows else nobody)


def _who(sign_up: SignUp) -> Element:
    share = "completions may be shown" if sign_up.share else "completions stay theirs"
    again = "was taken out of the list before · " if sign_up.returns and sign_up.state is State.WAITING else ""
    words = f"{again}{sign_up.since:%H:%M} UTC · {share} · {sign_up.key.kind} {fingerprint(sign_up.key)}"
    return el("div", el("strong", str(sign_up.name)), el("p", words, class_="help"))


def _became(visit: Visit, problem: str | None) -> Child:
    if visit.stage is Stage.REFUSED:
        again = form("/host", _hidden(visit.sign_up), _button("welcome", "Let in after all", class_="again"))
        return [el("p", "refused", class_="state"), again]
    if visit.stage in _ENDED:
        return el("p", _ENDED[visit.stage], class_="state")
    if problem:
        return el("p", f"no card yet, which is tried again: {problem}", class_="error")
    if visit.card:
        return el("p", f"seat {visit.card.seat}", class_="state good")
    return el("p", "in the list" if visit.sign_up.state is State.LISTED else "is being let in", class_="state")


_ENDED = {Stage.GONE: "not in the list any more", Stage.OVER: "their time is over"}


def _hidden(sign_up: SignUp) -> Element:
    return el("input", type="hidden", name="name", value=str(sign_up.name))


def _button(value: str, text: str, *, class_: str = "") -> Element:
    return el("button", text, type="submit", name="word", value=value, class_=class_ or value)
