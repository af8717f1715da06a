"""The same work for many items at once: nobody waits for a slow one, and one failure is only one failure."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from tpufleet.errors import TpufleetError

T = TypeVar("T")
V = TypeVar("V")

# More than about 16 handshakes at once only queue up in sshd and on the processor (measured with paramiko 5.1).
LIMIT = 16


@dataclass(frozen=True)
class Outcome(Generic[T, V]):
    """What became of one item: its value, or the error that a host or a cloud caused."""

    item: T
    value: V | None = None
    error: TpufleetError | None = None

    def unwrap(self) -> V:
        """The value; raises the error where there is one."""
        if self.error is not None:
            raise self.error
        return cast("V", self.value)  # V may itself be None; without an error it is what the work gave


def fan_out(items: Sequence[T], work: Callable[[T], V], *, limit: int = LIMIT) -> Iterator[Outcome[T, V]]:
    """Do `work` for each item, at most `limit` at a time, and yield the outcomes as they come.

    A TpufleetError becomes its item's outcome. Any other exception is a bug: it is raised when the rest is done.
    Interrupted or abandoned, nothing new begins; what runs is left to end with its connection.
    """
    for _, outcome in _as_done(items, work, limit):
        yield outcome


def gather(items: Sequence[T], work: Callable[[T], V], *, limit: int = LIMIT) -> list[Outcome[T, V]]:
    """As `fan_out`, but all of them, in the items' order."""
    return [outcome for _, outcome in sorted(_as_done(items, work, limit), key=lambda pair: pair[0])]


class Crew(Generic[T, V]):
    """A fan-out that items may join while it runs: `add` any time, `finish` once, for all outcomes in their order."""

    def __init__(self, work: Callable[[T], V], *, limit: int) -> None:
        self._work = work
        self._limit = limit
        self._waiting: queue.SimpleQueue[tuple[int, T]] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[int, Outcome[T, V] | BaseException]] = queue.SimpleQueue()
        self._added = 0

    def add(self, item: T) -> None:
        self._waiting.put((self._added, item))
        self._added += 1
        if self._added <= self._limit:  # daemon threads, as below; each stays until the command ends
            threading.Thread(target=self._run, name="crew", daemon=True).start()

    def finish(self) -> list[Outcome[T, V]]:
        """Wait for all that was added; an exception that is no TpufleetError is a bug and raised."""
        found: dict[int, Outcome[T, V]] = {}
        bug: BaseException | None = None
        for _ in range(self._added):
            index, result = self._done.get()
            if isinstance(result, BaseException):
                bug = bug or result
            else:
                found[index] = result
        if bug is not None:
            raise bug
        return [found[index] for index in range(self._added)]

    def _run(self) -> None:
        while True:
            index, item = self._waiting.get()
            self._done.put((index, _outcome(item, self._work)))


def _as_done(items: Sequence[T], work: Callable[[T], V], limit: int) -> Iterator[tuple[int, Outcome[T, V]]]:
    waiting: queue.SimpleQueue[tuple[int, T]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Outcome[T, V] | BaseException]] = queue.SimpleQueue()
    abandoned = threading.Event()
    for pair in enumerate(items):
        waiting.put(pair)

    def worker() -> None:
        while not abandoned.is_set():
            try:
                index, item = waiting.get_nowait()
            except queue.Empty:
                return
            done.put((index, _outcome(item, work)))

    # Daemon threads, not a pool: a pool's end waits for its threads, and Ctrl-C must not.
    for _ in range(min(limit, len(items))):
        threading.Thread(target=worker, name="fan-out", daemon=True).start()
    bug: BaseException | None = None
    try:
        for _ in items:
            index, result = done.get()
            if isinstance(result, BaseException):
                bug = bug or result
            else:
                yield index, result
    finally:
        abandoned.set()
    if bug is not None:
        raise bug


def _outcome(item: T, work: Callable[[T], V]) -> Outcome[T, V] | BaseException:
    try:
        return Outcome(item, value=work(item))
    except TpufleetError as error:
        return Outcome(item, error=error)
    except BaseException as error:  # noqa: BLE001 - raised again in the thread that asked
        return error
