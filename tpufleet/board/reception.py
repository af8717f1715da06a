"""What becomes of a form: who may try, who comes in, and which link leads to whose card."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum, auto

from tpufleet.board.admission import Admission
from tpufleet.board.book import Book
from tpufleet.board.desk import Desk, Listed
from tpufleet.board.signup import Form, Invitation, Room, SignUp, State, Throttle, new_token
from tpufleet.cards import Card
from tpufleet.model import Person
from tpufleet.people import is_over

WINDOW_S = 600.0


@dataclass(frozen=True)
class Answer:
    """What a form brings: the token of the link to the card, what is `wrong` by field, or how long to `wait_s`."""

    token: str | None = None
    wrong: dict[str, str] = field(default_factory=dict[str, str])
    wait_s: float = 0.0


class Stage(Enum):
    """How far somebody with a link to a card has come."""

    WAITING = auto()  # for the host's word
    COMING = auto()  # the hosts are being told
    READY = auto()
    REFUSED = auto()
    GONE = auto()  # was taken out of the list
    OVER = auto()  # is in the list, and their time is over


@dataclass(frozen=True)
class Visit:
    """Somebody's own page."""

    sign_up: SignUp
    stage: Stage
    card: Card | None = None


class Reception:
    """The decisions of `signup`, with the book, the desk and the worker behind them. Safe from any thread.

    Nobody new comes in unless it is to `accept` sign-ups; with `approve`, each then waits for the host's word.
    """

    def __init__(
        self,
        book: Book,
        desk: Desk,
        admission: Admission,
        say: Callable[[str], None],
        *,
        accept: bool,
        approve: bool,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._book = book
        self._desk = desk
        self._admission = admission
        self._say = say
        self._accept = accept
        self._approve = approve
        self._clock = clock
        self._now = now
        # a room behind one address sends some forms at once; who guesses codes must not get far
        self._turn = threading.Lock()
        self._forms = Throttle(each=120, everybody=600, window_s=WINDOW_S)
        self._guesses = Throttle(each=20, everybody=100, window_s=WINDOW_S)

    @property
    def admission(self) -> Admission:
        return self._admission

    @property
    def invitation(self) -> Invitation | None:
        """The invitation by which people can sign up now."""
        invitation = self._book.invitation
        return invitation if self._accept and invitation and self._now() < invitation.until else None

    def join(self, form: Form, address: str) -> Answer:
        """Take a form from `address`. Raises TpufleetError when the list or the book can't be read or written."""
        with self._turn:  # of two who want one name, one is first
            return self._join(form, address)

    def _join(self, form: Form, address: str) -> Answer:
        tick = self._clock()
        if wait := max(self._forms.wait(address, tick), self._guesses.wait(address, tick)):
            return Answer(wait_s=wait)
        self._forms.count(address, tick)
        name, key, wrong = form.read()
        if why := self._uninvited(form.code):
            self._guesses.count(address, tick)
            return Answer(wrong={"code": why, **wrong})
        if wrong or name is None or key is None:
            return Answer(wrong=wrong)
        listed = self._desk.listed()
        room = Room(listed.persons, listed.operator, listed.former, self._book.sign_ups())
        if not room.knows(name, key) and (wrong := room.refusal(name, key)):
            return Answer(wrong=wrong)
        return Answer(token=self._welcome(SignUp(name, key, form.share, self._now(), State.WAITING), listed))

    def _uninvited(self, code: str) -> str | None:
        """Why `code` lets nobody in, if so."""
        invitation = self._book.invitation if self._accept else None
        return invitation.refusal(code, self._now()) if invitation else "nobody can sign up here now"

    def _welcome(self, new: SignUp, listed: Listed) -> str:
        """Write somebody down, who may be there already, and give the token of a new link to their card."""
        there = self._book.find(new.name)
        if there and there.key != new.key:
            there = None
        token = new_token()
        if person := _in_list(listed, new):
            links = there.links if there else ()
            self._book.put(replace(new, state=State.LISTED, share=person.share, links=links).with_link(token))
        elif there and not self._may_return(there, listed):
            self._book.change(new.name, lambda kept: _again(kept, new).with_link(token))
        else:
            self._expect(replace(new, links=there.links if there else (), returns=there is not None), token)
        self._admission.wake()
        return token

    def _may_return(self, there: SignUp, listed: Listed) -> bool:
        """Whether who was taken out of the list signs up anew: by the host's word, or where nobody remembers them but
        the book."""
        return there.state is State.LISTED and (self._approve or there.name not in listed.former)

    def _expect(self, new: SignUp, token: str) -> None:
        state = State.WAITING if self._approve else State.WELCOME
        self._book.put(replace(new, state=state).with_link(token))
        again = " again" if new.returns else ""
        self._say(f"{new.name} has signed up{again}" + (": waits for your word" if self._approve else ""))

    def decide(self, names: list[str], *, welcome: bool) -> list[str]:
        """The host's word about some who wait, or who were refused; gives those whom it was new for."""
        if welcome:
            told = self._book.mark(names, State.WELCOME, only=(State.WAITING, State.REFUSED))
        else:
            told = self._book.mark(names, State.REFUSED, only=(State.WAITING,))
        for name in told:
            self._say(f"{name} was {'let in' if welcome else 'refused'}")
        self._admission.wake()
        return told

    def visit(self, token: str) -> Visit | None:
        """The page that a link leads to; None for one that leads nowhere."""
        sign_up = self._book.opened_by(token)
        if sign_up is None:
            return None
        visit = self._visit(sign_up, self._desk.listed())
        if visit.stage is Stage.COMING and visit.sign_up.state is State.LISTED:
            by_hand = (State.WAITING, State.WELCOME, State.REFUSED)
            self._book.mark([sign_up.name], State.LISTED, only=by_hand)
            self._admission.wake(sign_up.name)  # none was made since the board began, or the seat is another one now
        return visit

    def visits(self) -> tuple[list[Visit], list[str]]:
        """How far everybody has come who signed up, and who else is in the list."""
        listed = self._desk.listed()
        sign_ups = self._book.sign_ups()
        names = {sign_up.name for sign_up in sign_ups}
        others = [str(person.name) for person in listed.persons if person.name not in names]
        return [self._visit(sign_up, listed) for sign_up in sign_ups], others

    def _visit(self, sign_up: SignUp, listed: Listed) -> Visit:
        """The list is what counts, whatever the book says."""
        person = _in_list(listed, sign_up)
        if person is None:
            return Visit(sign_up, STAGES[sign_up.state])
        sign_up = replace(sign_up, share=person.share, state=State.LISTED)
        if is_over(person, self._now()):
            return Visit(sign_up, Stage.OVER)
        card = self._admission.card(sign_up.name)
        if card is None or card.seat != listed.seats.get(sign_up.name):
            return Visit(sign_up, Stage.COMING)
        return Visit(sign_up, Stage.READY, card)


STAGES = {
    State.WAITING: Stage.WAITING,
    State.WELCOME: Stage.COMING,
    State.LISTED: Stage.GONE,
    State.REFUSED: Stage.REFUSED,
}


def _again(kept: SignUp, new: SignUp) -> SignUp:
    """Somebody's sign-up when it is sent once more: until the host has spoken, they may take back that they share.

    They may not agree to it later: whoever has the code can send it, and names and public keys are no secrets.
    """
    return replace(kept, share=kept.share and new.share) if kept.state is State.WAITING else kept


def _in_list(listed: Listed, sign_up: SignUp) -> Person | None:
    """Who is in the list by that name and that key."""
    people = (person for person in listed.persons if person.name == sign_up.name and person.key == sign_up.key)
    return next(people, None)
