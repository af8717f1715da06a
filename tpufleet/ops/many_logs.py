"""Several runs' logs side by side, until all have ended: a stream each, found again wherever a run goes on."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tpufleet.errors import TpufleetError, Unreachable
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.observe import find_nodes, hosts_of, probe
from tpufleet.ops.runs import Located, located, read_log
from tpufleet.restart import FINAL_STATES, State

TAIL_BYTES = 64 * 1024
MARK_BYTES = 4096
LOOK_S = 1.0
SILENT_LIMIT_S = 120.0
PER_HOST = 8  # sshd allows ten sessions on a connection, and the probes need one

Chunk = tuple[str, bytes]


@dataclass
class _Reading:
    """What is known of a run's log: `seen` are the last bytes of it, `on` says that a stream is open."""

    host: str = ""
    seen: bytes = b""
    on: bool = False
    ended: bool = False


def follow(
    fleet: Fleet, runs: Sequence[str], there: dict[str, Located], *, offset: int, note: Callable[[str, str], None]
) -> Iterator[Chunk]:
    """The runs' logs as (run, bytes), as they come; (run, b"") when one has ended.

    `offset` is where each begins (negative: so many last bytes). A stream that breaks is told by `note(run, why)` and
    begun again where the run is by then. Raises Unreachable when a run can't be found any more.
    """
    arrived: queue.SimpleQueue[tuple[str, bytes, TpufleetError | None, bool]] = queue.SimpleQueue()
    readings = {run: _Reading() for run in runs}
    heard = dict.fromkeys(runs, time.monotonic())

    def read(run: str, item: Located, reading: _Reading, again: bool) -> None:
        try:
            for data in (
                _again(fleet, item, reading.seen) if again else read_log(fleet, item, offset=offset, follow=True)
            ):
                arrived.put((run, data, None, False))
            arrived.put((run, b"", None, True))
        except TpufleetError as error:
            arrived.put((run, b"", error, True))

    while True:
        for run in _to_open(readings, there):
            reading, item = readings[run], there[run]
            again = bool(reading.host)
            if again and reading.host != item.host.name:
                note(run, f"goes on, on {item.host.name}")
            reading.on, reading.host = True, str(item.host.name)
            threading.Thread(target=read, args=(run, item, reading, again), daemon=True).start()
        for run, data, error, is_last in _for_a_while(arrived):
            reading = readings[run]
            reading.seen = (reading.seen + data)[-TAIL_BYTES:]
            if data:
                yield run, data
            if is_last:
                reading.on, reading.ended = False, error is None
                if error is not None:
                    note(run, f"{error.message}; looking where it goes on")
                else:
                    yield run, b""
        if all(reading.ended for reading in readings.values()):
            return
        there = located(probe(fleet, hosts_of(fleet, find_nodes(fleet))))
        _give_up_on_lost(readings, there, heard)


def _to_open(readings: dict[str, _Reading], there: dict[str, Located]) -> list[str]:
    """The runs whose log is to be read now: they have begun, and their host has a session left for it."""
    opened = Counter(reading.host for reading in readings.values() if reading.on)
    chosen: list[str] = []
    for run, reading in readings.items():
        if reading.on or reading.ended or run not in there:
            continue
        state, host = there[run].state, str(there[run].host.name)
        has_begun = state["state"] != State.QUEUED or bool(state.get("attempts"))
        if has_begun and opened[host] < PER_HOST:
            opened[host] += 1
            chosen.append(run)
        elif state["state"] in FINAL_STATES and not has_begun:
            reading.ended = True
    return chosen


def _for_a_while(
    arrived: queue.SimpleQueue[tuple[str, bytes, TpufleetError | None, bool]],
) -> Iterator[tuple[str, bytes, TpufleetError | None, bool]]:
    """What comes until the next look is due; a stream's end is a reason to look at once."""
    until = time.monotonic() + LOOK_S
    while (left := until - time.monotonic()) > 0:
        try:
            item = arrived.get(timeout=left)
        except queue.Empty:
            return
        yield item
        if item[3] and arrived.empty():
            return


def _give_up_on_lost(readings: dict[str, _Reading], there: dict[str, Located], heard: dict[str, float]) -> None:
    now = time.monotonic()
    for run, reading in readings.items():
        if run in there or reading.on or reading.ended:
            heard[run] = now
        elif now - heard[run] > SILENT_LIMIT_S:
            raise Unreachable(
                f"not found on any host for {SILENT_LIMIT_S:.0f} s",
                where=run,
                hint="tpufleet watch brings lost runs back; tpufleet status",
            )


def _again(fleet: Fleet, item: Located, seen: bytes) -> Iterator[bytes]:
    """A log of which `seen` are the last bytes that were shown, from there on. What lies at home of a run that moved
    may be older: then there is nothing new until it grows beyond."""
    tail = b"".join(read_log(fleet, item, offset=-TAIL_BYTES, follow=False))
    yield unseen(seen, tail)
    mark, waiting = tail[-MARK_BYTES:], b""
    found = not mark
    for data in read_log(fleet, item, offset=-TAIL_BYTES, follow=True):
        if found:
            yield data
            continue
        waiting += data
        if mark in waiting:
            found = True
            yield waiting.partition(mark)[2]


def unseen(seen: bytes, tail: bytes) -> bytes:
    """What of `tail`, a log's end, wasn't shown yet when `seen` was the end of what was."""
    mark = seen[-MARK_BYTES:]
    if mark and mark in tail:
        return tail.rpartition(mark)[2]
    return b"" if tail and tail[-MARK_BYTES:] in seen else tail
