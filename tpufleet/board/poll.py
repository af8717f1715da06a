"""One look at the fleet for all who look: made again and again while somebody does, and not otherwise."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from tpufleet.board.desk import Desk
from tpufleet.board.look import Look
from tpufleet.errors import TpufleetError

EVERY_S = 5.0
CLOSE_S = 5.0
INTEREST_S = 30.0  # for which somebody who has looked is taken to look on


class Poll:
    """The newest look, kept by a thread; `ended` is called when that ends, as it should or by a bug."""

    def __init__(
        self,
        desk: Desk,
        ended: Callable[[], None],
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._desk = desk
        self._ended = ended
        self._every_s = every_s
        self._clock = clock
        self._state = threading.Condition()
        self._look = Look()
        self._asked: float | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="poll", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._state:
            self._closed = True
            self._state.notify_all()
        self._thread.join(CLOSE_S)

    def latest(self) -> Look:
        """The newest look there is; asking for it is what keeps looks coming."""
        with self._state:
            self._asked = self._clock()
            self._state.notify_all()
            return self._look

    def _work(self) -> None:
        try:
            while self._await_interest():
                self._round()
        finally:
            self._desk.rest()
            self._ended()

    def _round(self) -> None:
        try:
            look = self._desk.look()
        except TpufleetError as error:
            look = replace(self._look, problem=str(error))
        with self._state:
            self._look = look
            self._state.wait_for(lambda: self._closed, self._every_s)

    def _await_interest(self) -> bool:
        """Waits for somebody who looks; False when all is over."""
        with self._state:
            idle = not self._is_wanted()
        if idle:
            self._desk.rest()
        with self._state:
            self._state.wait_for(lambda: self._closed or self._is_wanted())
            return not self._closed

    def _is_wanted(self) -> bool:
        return self._asked is not None and self._clock() - self._asked < INTEREST_S
