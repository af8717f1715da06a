"""Looking at a run from outside: what its state really is, and closing attempts that ended with nobody watching."""

from __future__ import annotations

import contextlib
import os
import time

from tpufleet.host import endings, metrics, processes
from tpufleet.host.places import Places
from tpufleet.host.records import Handle, RunState
from tpufleet.host.store import RunStore
from tpufleet.restart import FINAL_STATES, Reason, State


def boot_id(places: Places) -> str:
    """Which boot of the host this is; process ids mean nothing in another one."""
    with contextlib.suppress(OSError):
        return places.boot_id.read_text().strip()
    return "unknown"


def is_watched(handle: Handle, boot: str) -> bool:
    """Whether the supervisor that wrote this handle lives."""
    return handle.boot_id == boot and processes.is_alive(handle.supervisor, handle.supervisor_start)


def is_training(handle: Handle, boot: str) -> bool:
    """Whether the training's first process lives."""
    return handle.boot_id == boot and processes.is_alive(handle.pid, handle.start)


def current_handle(store: RunStore, state: RunState) -> Handle | None:
    """The handle of the attempt that `state` says is running; None if that attempt never came to have one."""
    handle = store.handle()
    return handle if handle is not None and handle.attempt == state.attempts[-1].n else None


def settle_if_gone(places: Places, store: RunStore) -> RunState | None:
    """Closes the attempt of a run that is said to be running but is gone; gives the run's state.

    A training whose supervisor is gone goes on running, and so does its state. What is left of a training whose
    first process is gone, and that nobody watches, is ended first. The caller does not hold the run's lock.
    """
    state = store.state()
    if state is None or state.state is not State.RUNNING:
        return state
    handle, boot = current_handle(store, state), boot_id(places)
    if handle is not None and (is_watched(handle, boot) or is_training(handle, boot)):
        return state
    if handle is not None and handle.boot_id == boot:
        end_tree(store, handle, grace_s=2.0)
        _sweep(handle)
    rebooted = handle is not None and handle.boot_id != boot
    return _close_unwatched(store, state, Reason.HOST_REBOOTED if rebooted else Reason.LOST)


def end_unwatched(store: RunStore, state: RunState, handle: Handle, reason: Reason, grace_s: float) -> RunState | None:
    """Ends a training that no supervisor looks after, for `reason`; gives the run's state."""
    end_tree(store, handle, grace_s)
    _sweep(handle)
    return _close_unwatched(store, state, reason)


def _close_unwatched(store: RunStore, state: RunState, reason: Reason) -> RunState | None:
    """Closes the attempt of `state`, of which no process is left, unless someone is about to do the same."""
    lock = store.take()
    if lock is None:
        return state
    try:
        now = store.state()
        if now is None or now.state is not State.RUNNING or now.attempts != state.attempts:
            return now
        return close(store, now, endings.Ending(None, reason), stopped=store.asked_to_stop() is not None)
    finally:
        os.close(lock)


def end_tree(store: RunStore, handle: Handle, grace_s: float) -> None:
    """Ends every process of an attempt: SIGTERM, and SIGKILL after the grace period; returns when none is left."""
    run_dir = store.at.dir
    processes.end(lambda: processes.tree_of(handle, run_dir), grace_s)


def _sweep(handle: Handle) -> None:
    """Removes the temporary directory that the supervisor would have removed."""
    import shutil  # late: seldom needed

    shutil.rmtree(handle.tmp, ignore_errors=True)


def close(store: RunStore, state: RunState, ending: endings.Ending, *, stopped: bool) -> RunState:
    """Writes down how a run's attempt ended, with its last numbers; gives the new state.

    The caller holds the run's lock, and no process of the attempt is left.
    """
    spec = store.spec()
    with contextlib.suppress(OSError):  # numbers are worth less than the state: a full disk must not keep it from us
        metrics.scan(store.at, spec.metrics, spec.log_limit, at_end=True)
    after = endings.conclude(with_numbers(store, state), spec, ending, time.time(), stopped=stopped)
    store.write_state(after)
    if after.state in FINAL_STATES:
        store.forget_secrets()
    return after


def stop_before_start(store: RunStore, state: RunState) -> RunState:
    """Writes down that a person stopped a run before its (next) attempt began. The caller holds the run's lock."""
    after = store.write_state(endings.stop_before_start(state))
    store.forget_secrets()
    return after


def tidy(store: RunStore) -> None:
    """Removes what a run that has ended has left, where whoever ended it was killed before doing so."""
    lock = store.take()
    if lock is None:
        return
    try:
        state, handle = store.state(), store.handle()
        if state is not None and state.state in FINAL_STATES:
            store.forget_secrets()
            if handle is not None:
                _sweep(handle)
    finally:
        os.close(lock)


def with_numbers(store: RunStore, state: RunState) -> RunState:
    """The state with the last step and metrics that stand in the run's metrics.jsonl."""
    found = metrics.latest(store.at.metrics)
    step = state.step if found.step is None else found.step
    return state._replace(step=step, metrics={**state.metrics, **found.metrics})


def view(store: RunStore, state: RunState) -> RunState:
    """The state as it is right now: numbers of a run that is under way are read from its file."""
    return state if state.state in FINAL_STATES else with_numbers(store, state)
