"""One look at the fleet for all who look: made again and again while somebody does, and not otherwise."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tpufleet.board.desk import Desk
from tpufleet.board.feed import Feed
from tpufleet.board.scene import Scene
from tpufleet.errors import TpufleetError

EVERY_S = 5.0
CLOSE_S = 5.0
INTEREST_S = 30.0  # for which somebody who has looked is taken to look on


class Poll:
    """Looks in a thread, and tells the `feed` of it; `ended` is called when that ends, as it should or by a bug."""

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
        self.feed = Feed()
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

    def latest(self) -> Scene:
        """The newest scene there is; asking for it is what keeps looks coming."""
        self.touch()
        return self.feed.scene

    def touch(self) -> None:
        """Somebody looks."""
        with self._state:
            self._asked = self._clock()
            self._state.notify_all()

    def log(self, run: str, size: int) -> bytes | None:
        """The last bytes of a run's log, as the desk has it."""
        self.touch()
        return self._desk.log(run, size)

    def _work(self) -> None:
        try:
            while self._await_interest():
                self._round()
        finally:
            self._desk.rest()
            self._ended()

    def _round(self) -> None:
        try:
            self.feed.take(self._desk.look())
        except TpufleetError as error:
            self.feed.trouble(str(error))
        with self._state:
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
