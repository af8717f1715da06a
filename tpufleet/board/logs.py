"""`/log/RUN`: the end of a run's log, read once for all who look at it at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool

from tpufleet.report.text import clean

FRESH_S = 2.0
TAIL = 64_000  # bytes
MOST = 64  # logs that are kept
AT_ONCE = 4  # that are read; each takes a thread, which others need too


@dataclass
class _Tail:
    """The end of one log, as it was at `read` (seconds of a steady clock)."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    read: float | None = None
    text: str | None = None


class Logs:
    """`read` gives the last bytes of a run's log, None for a run that there isn't. For one event loop."""

    def __init__(self, read: Callable[[str, int], bytes | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._tails: dict[str, _Tail] = {}
        self._reading = asyncio.Semaphore(AT_ONCE)

    async def tail(self, run: str) -> str | None:
        """The end of the run's log as text; raises what reading it raises."""
        tail = self._tails.setdefault(run, _Tail())
        async with tail.turn:
            if tail.read is None or self._clock() - tail.read >= FRESH_S:
                async with self._reading:
                    data = await run_in_threadpool(self._read, run, TAIL)
                tail.text = None if data is None else shown(data)
                tail.read = self._clock()
        self._forget(run)
        return tail.text

    def _forget(self, run: str) -> None:
        """Keep the logs that were asked for last."""
        if tail := self._tails.pop(run, None):
            self._tails[run] = tail
        for older in list(self._tails)[:-MOST]:
            del self._tails[older]


def shown(data: bytes) -> str:
    """The last bytes of a log as text that acts on nothing; a first line that may be cut is left out."""
    data = data[-TAIL:]
    if len(data) == TAIL and 0 <= (end := data.find(b"\n")) < TAIL // 2:
        data = data[end + 1 :]
    return clean(data.decode("utf-8", errors="replace"))
