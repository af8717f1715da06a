"""The one worker that takes people in: all that wait, together, so that twenty at once cost one round of the hosts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tpufleet.board.book import Book
from tpufleet.board.desk import Admitted, Desk
from tpufleet.board.signup import SignUp, State
from tpufleet.cards import Card
from tpufleet.errors import TpufleetError

FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0
CLOSE_S = 5.0


class Admission:
    """Works while it is open, in a thread of its own. What fails is kept for the host's page, and tried again.

    `ended` is called when the thread ends, as it should or by a bug.
    """

    def __init__(self, book: Book, desk: Desk, say: Callable[[str], None], ended: Callable[[], None]) -> None:
        self._book = book
        self._desk = desk
        self._say = say
        self._ended = ended
        self._state = threading.Condition()
        self._cards: dict[str, Card] = {}
        self._problems: dict[str, str] = {}
        self._wanted: set[str] = set()
        self._again_s: float | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="admission", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Begin nothing new. A round that takes longer ends with the process, and is done again by the next one."""
        with self._state:
            self._closed = True
            self._state.notify_all()
        self._thread.join(CLOSE_S)

    def wake(self, name: str | None = None) -> None:
        """Somebody was let in; with a `name`, their card is wanted anew."""
        with self._state:
            if name:
                self._wanted.add(name)
                self._cards.pop(name, None)
            self._state.notify_all()

    def card(self, name: str) -> Card | None:
        with self._state:
            return self._cards.get(name)

    def problems(self) -> dict[str, str]:
        """Why people have no card yet, of those for whom it was tried."""
        with self._state:
            return dict(self._problems)

    # ------------------------------------------------------------------------------------------------- in the thread

    def _work(self) -> None:
        try:
            while self._await_work():
                self._round()
        finally:
            self._ended()

    def _await_work(self) -> bool:
        """Waits until there is something to do, or until it is to be tried again; False when all is over."""
        with self._state:
            until = None if self._again_s is None else time.monotonic() + self._again_s
            while not self._closed:
                left = None if until is None else until - time.monotonic()
                fresh = [sign_up for sign_up in self._due() if sign_up.name not in self._problems]
                if fresh or (left is not None and left <= 0):
                    return True
                self._state.wait(left)
            return False

    def _due(self) -> list[SignUp]:
        """Who is to be taken in, or has asked for a card that there isn't."""
        listed = self._book.sign_ups(State.LISTED)
        missing = [sign_up for sign_up in listed if sign_up.name in self._wanted and sign_up.name not in self._cards]
        return [*self._book.sign_ups(State.WELCOME), *missing]

    def _round(self) -> None:
        due = self._due()
        names = [str(sign_up.name) for sign_up in due]
        try:
            enlisted = self._enlist([sign_up for sign_up in due if sign_up.state is State.WELCOME])
            names = [name for name in names if name not in enlisted]
            admitted = self._desk.admit(names) if names else Admitted()
        except TpufleetError as error:
            admitted = Admitted(problems=dict.fromkeys(names, str(error)))
        self._keep(names, admitted)

    def _enlist(self, new: list[SignUp]) -> set[str]:
        """Put them into the list; gives those who can't be in it, who are refused."""
        if not new:
            return set()
        returning = {str(sign_up.name) for sign_up in new if sign_up.returns}
        refused = self._desk.enlist([sign_up.person for sign_up in new], returning)
        welcome = (State.WELCOME,)
        self._book.mark(refused, State.REFUSED, only=welcome)
        taken = self._book.mark([s.name for s in new if s.name not in refused], State.LISTED, only=welcome)
        with self._state:
            self._wanted |= set(taken)
        for name, why in refused.items():
            self._say(f"{name} can't be in the list: {why}")
        return set(refused)

    def _keep(self, names: list[str], admitted: Admitted) -> None:
        with self._state:
            known = dict(self._problems)
            for name in names:
                self._problems.pop(name, None)
            self._problems |= admitted.problems
            self._cards |= admitted.cards
            self._wanted -= set(names) - admitted.problems.keys()  # also who was taken out of the list meanwhile
            failed = [name for name in names if name in self._problems]
            longer = min(2 * (self._again_s or FIRST_PAUSE_S / 2), LONGEST_PAUSE_S)
            self._again_s = longer if failed else None
        for name in names:
            if name in admitted.cards:
                self._say(f"{name} has a seat and a card")
            elif (why := admitted.problems.get(name)) and known.get(name) != why:
                self._say(f"{name} has no card yet, which is tried again: {why}")
