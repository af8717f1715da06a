"""The verb `stop`: ends runs for a person, whatever state they are in and whoever is left to do it."""

from __future__ import annotations

import os
import signal
import time

from tpufleet.host import files, processes, queue, settle
from tpufleet.host.errors import INTERNAL, NOT_FOUND, HostError, bad
from tpufleet.host.files import JsonObject
from tpufleet.host.places import Places
from tpufleet.host.records import RunState
from tpufleet.host.store import RunStore
from tpufleet.restart import FINAL_STATES, State

POLL_S = 0.02
SUPERVISOR_IS_LATE_S = 5.0  # past the grace period: then its supervisor hangs, and we end it and the training
GIVE_UP_S = 20.0
LONGEST_GRACE_S = 3600.0


def stop(places: Places, request: JsonObject) -> JsonObject:
    """Stops the request's `runs`, all of them at once; gives their states when they have ended."""
    runs = files.as_texts(request.get("runs"))
    grace_s: object = request.get("grace_s", 10)
    if runs is None:
        raise bad("stop needs a list of runs")
    if isinstance(grace_s, bool) or not isinstance(grace_s, (int, float)) or not 0 <= grace_s <= LONGEST_GRACE_S:
        raise bad(f"grace_s must be from 0 to {LONGEST_GRACE_S:.0f}")
    stores = [RunStore(places.run(run)) for run in runs]
    for store in stores:
        if store.state() is None:
            raise HostError(NOT_FOUND, f"there is no run {store.at.id} on this host")
    for store in stores:
        _ask(places, store, float(grace_s))
    begun = time.monotonic()
    states = [_ended(places, store, begun, float(grace_s)) for store in stores]
    if places.queue_fifo.exists():
        queue.wake(places)
    return {"runs": [state.public for state in states]}


def _ask(places: Places, store: RunStore, grace_s: float) -> None:
    """Leaves the wish where a supervisor and the worker look for it, and wakes the supervisor."""
    state = settle.settle_if_gone(places, store)
    if state is None or state.state in FINAL_STATES:
        return
    store.ask_to_stop(grace_s)
    _nudge(places, store)


def _nudge(places: Places, store: RunStore) -> None:
    handle = store.handle()
    if handle is not None and settle.is_watched(handle, settle.boot_id(places)):
        processes.send(handle.supervisor, signal.SIGTERM)


def _ended(places: Places, store: RunStore, begun: float, grace_s: float) -> RunState:
    """The run's state once it has ended; does what its supervisor should do if there is none, or if it hangs."""
    nudged = False
    while True:
        state = _stopped_if_waiting(store)
        if state.state in FINAL_STATES:
            return state
        elapsed = time.monotonic() - begun
        if state.state is State.RUNNING:
            if not nudged:
                _nudge(places, store)  # it may have begun after `_ask` looked for it
                nudged = True
            _end_unwatched(places, store, state, grace_s, late=elapsed > grace_s + SUPERVISOR_IS_LATE_S)
        if elapsed > grace_s + GIVE_UP_S:
            raise HostError(INTERNAL, f"run {store.at.id} could not be ended")
        time.sleep(POLL_S)


def _stopped_if_waiting(store: RunStore) -> RunState:
    """The run's state, made "stopped" if it waits for its turn and nobody is about to start it."""
    lock = store.take(patience_s=0.0)
    state = store.state()
    if state is None:
        raise HostError(NOT_FOUND, f"there is no run {store.at.id} on this host")
    if lock is None:
        return state
    try:
        if state.state in (State.QUEUED, State.RECOVERING):
            state = settle.stop_before_start(store, state)
        return state
    finally:
        os.close(lock)


def _end_unwatched(places: Places, store: RunStore, state: RunState, grace_s: float, *, late: bool) -> None:
    """Ends a training that no supervisor (or only a hanging one) looks after, and closes its attempt."""
    handle = settle.current_handle(store, state)
    boot = settle.boot_id(places)
    if handle is not None and handle.boot_id == boot:
        if settle.is_watched(handle, boot):
            if not late:
                return
            processes.send(handle.supervisor, signal.SIGKILL)
        settle.end_tree(store, handle, 0.0 if late else grace_s)
    settle.settle_if_gone(places, store)
