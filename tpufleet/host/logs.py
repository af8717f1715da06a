"""The verb `log`: a run's log as raw bytes, and what is added to it until the run has ended."""

from __future__ import annotations

import os
import select
import sys

from tpufleet.host import logfile
from tpufleet.host.errors import NOT_FOUND, HostError, bad
from tpufleet.host.files import JsonObject
from tpufleet.host.places import Places
from tpufleet.host.store import RunStore
from tpufleet.restart import FINAL_STATES

BLOCK = 256 << 10
POLL_S = 0.1


def write_log(places: Places, request: JsonObject) -> None:
    """Writes the log from `offset` on (negative: its last bytes) to stdout.

    With `follow` goes on until the run has ended and all is written, or stdin ends: then the client is gone.
    """
    run, offset, follow = request.get("run"), request.get("offset", 0), request.get("follow", False)
    if not isinstance(run, str) or type(offset) is not int or not isinstance(follow, bool):
        raise bad("log needs a run, an offset and whether to follow")
    store = RunStore(places.run(run))
    if store.state() is None:
        raise HostError(NOT_FOUND, f"there is no run {run} on this host")
    offset = _from_the_end(store, -offset) if offset < 0 else offset
    while True:
        state = store.state()  # before the bytes: what a run wrote before it ended is there when it has
        ended = state is None or state.state in FINAL_STATES
        offset = _copy(store, offset)
        if ended or not follow or _client_is_gone():
            return


def _from_the_end(store: RunStore, size: int) -> int:
    with logfile.steady(store.at):
        return logfile.cut_of(store.at).offset(max(0, logfile.size_of(store.at) - size))


def _copy(store: RunStore, offset: int) -> int:
    """Copies what there is from `offset` on; gives the offset behind it. A log that was not begun is empty."""
    while True:
        with logfile.steady(store.at):  # not while the client takes its time
            cut = logfile.cut_of(store.at)
            position = cut.position(offset)
            block = logfile.read(store.at, position, BLOCK)
        if not block:
            break
        sys.stdout.buffer.write(block)
        offset = cut.offset(position + len(block))
    sys.stdout.buffer.flush()
    return offset


def _client_is_gone() -> bool:
    """Waits a moment for the client to close stdin."""
    readable, _, _ = select.select([0], [], [], POLL_S)
    return bool(readable) and os.read(0, 4096) == b""
