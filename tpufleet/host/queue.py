"""The host's queue: one worker that starts runs as chips come free, with nobody connected.

The worker holds `queue.lock`, which it inherits locked from whoever starts it, so there is one at most. It sleeps until
it is poked through `queue.fifo` or until one of the processes that matter ends, and goes when every run has ended. It
keeps nothing in memory that matters: killed at any moment, the next one goes on from the records.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Generator, Sequence
from pathlib import Path
from typing import NamedTuple

from tpufleet.host import chips, daemons, holders, locks, metrics, people, processes, settle, slots, store, usage
from tpufleet.host.errors import is_disk_full
from tpufleet.host.limits import GRACE_S, Limits
from tpufleet.host.places import Places
from tpufleet.host.records import RunState
from tpufleet.host.store import RunStore
from tpufleet.restart import FINAL_STATES, Reason, State

STARTABLE = (State.QUEUED, State.RECOVERING)
POLL_S = 2.0  # while something waits for what nobody tells us of: a chip that a person holds
LONGEST_SLEEP_S = 30.0
AFTER_FAILED_START_S = 5.0
AFTER_FULL_S = 5.0
AFTER_VANISHED_S = 0.2  # a run vanished between the look at it and the sleep, or its lock was not free yet


def wake(places: Places) -> None:
    """Makes the worker look at the records; starts one if none lives.

    In this order: a worker that is about to go looks at the records once more after it let go of the lock.
    """
    _poke(places.queue_fifo)
    lock = locks.try_lock(places.queue_lock)
    if lock is None:
        return
    try:
        daemons.start(places, "work", [str(lock)], [lock])
    finally:
        os.close(lock)


def work(places: Places, lock: int) -> None:
    """The worker's life; `lock` is the queue's lock, inherited."""
    if not locks.lock_again(lock):
        return
    places.prepare()  # a reboot has emptied /run, and with it the leases' directory
    held: int | None = lock
    while held is not None:
        with _fifo(places.queue_fifo) as fifo:
            _Worker(places, fifo).run_until_all_have_ended()
        for run in places.runs():
            settle.tidy(RunStore(places.run(run)))
        os.close(held)
        unfinished = any(state.state not in FINAL_STATES for state in store.all_states(places))
        held = locks.try_lock(places.queue_lock) if unfinished else None


class _Starting(NamedTuple):
    """A supervisor that has not written "running" yet; `attempts` is how many the run had before."""

    pid: int
    chips: tuple[int, ...]
    attempts: int


class _Worker:
    """One worker at work."""

    def __init__(self, places: Places, fifo: int) -> None:
        self.places = places
        self.fifo = fifo
        self.children: dict[int, subprocess.Popen[bytes]] = {}
        self.starting: dict[str, _Starting] = {}
        self.hold: dict[str, float] = {}
        self.limits: dict[tuple[str, int], Limits] = {}
        self.sampler = usage.Sampler(places)

    def run_until_all_have_ended(self) -> None:
        """Goes on when there is room again, where a full disk keeps it from writing anything down."""
        while True:
            try:
                if not self._look():
                    return
            except OSError as error:
                if not is_disk_full(error):
                    raise
                self._sleep(AFTER_FULL_S, ())

    def _look(self) -> bool:
        """One round: closes, starts, ends what is to be, and sleeps; False when every run has ended."""
        _drain(self.fifo)
        states = self._settled()
        if not states and not self.children:
            return False
        seconds = min(self._start_what_can(states), self._keep_limits(states))
        self.sampler.look([state for state in states if state.state is State.RUNNING])
        self._sleep(min(seconds, POLL_S) if self.starting else seconds, states)
        return True

    def _settled(self) -> list[RunState]:
        """The states of the runs that have not ended, after closing the attempts of those that are gone."""
        self._look_after_children()
        found = (settle.settle_if_gone(self.places, RunStore(self.places.run(run))) for run in self.places.runs())
        return [state for state in found if state is not None and state.state not in FINAL_STATES]

    def _look_after_children(self) -> None:
        """Takes leave of supervisors that have ended; a run that one of them could not start waits a little."""
        ended = {pid for pid, child in self.children.items() if child.poll() is not None}
        for pid in ended:
            del self.children[pid]
        for run, start in list(self.starting.items()):
            state = RunStore(self.places.run(run)).state()
            happened = state is None or state.state not in STARTABLE or len(state.attempts) > start.attempts
            if happened or start.pid in ended:
                del self.starting[run]
            if start.pid in ended and not happened:
                self.hold[run] = time.time() + AFTER_FAILED_START_S

    def _keep_limits(self, states: Sequence[RunState]) -> float:
        """Ends trainings that are over their limits and have no supervisor any more to do it; gives the seconds until
        the next look."""
        boot, orphans = settle.boot_id(self.places), 0
        for state in states:
            store = RunStore(self.places.run(state.id))
            handle = settle.current_handle(store, state) if state.state is State.RUNNING else None
            if handle is None or settle.is_watched(handle, boot) or not settle.is_training(handle, boot):
                continue
            orphans += 1
            spec, key = store.spec(), (state.id, handle.attempt)
            with contextlib.suppress(OSError):
                metrics.scan(store.at, spec.metrics, spec.log_limit)
            broken = self.limits.setdefault(key, Limits(store.at, spec, handle)).broken()
            if broken is not None:
                settle.end_unwatched(store, state, handle, broken, GRACE_S)
        return POLL_S if orphans else LONGEST_SLEEP_S

    def _start_what_can(self, states: Sequence[RunState]) -> float:
        """Starts the runs whose turn it is and for which there are chips; gives the seconds until the next look."""
        now = time.time()
        due = {state.id: max(state.not_before, self.hold.get(state.id, 0.0)) for state in states}
        startable = [state for state in states if state.state in STARTABLE and state.id not in self.starting]
        waiting = _in_order(self.places, [state for state in startable if due[state.id] <= now])
        later = [due[state.id] - now for state in startable if due[state.id] > now]
        ours = {chip for state in states if state.state is State.RUNNING for chip in state.chip_indices}
        ours |= {chip for start in self.starting.values() for chip in start.chips}
        present = [chip.number for chip in chips.chips_of(self.places)] if waiting else []
        seats = people.seats(self.places) if waiting else {}
        free = [chip for chip in self._free(ours) if chip not in seats] if waiting else []
        on = self._groups_on(states) if waiting else Counter[str]()
        assigned = slots.assign(waiting, present, free, ours - seats.keys(), on)
        left_out = [wish for wish in waiting if not (wish.run in assigned and self._start(wish.run, assigned))]
        on.update(wish.group or "" for wish in waiting if wish.run in assigned)
        others_hold_some = bool(set(present) - set(free) - ours)
        who = holders.sentence(holders.look(self.places, states), seats) if left_out and others_hold_some else None
        for wish in left_out:
            full = wish.run not in assigned and slots.is_full(wish, on)
            self._say_why(wish.run, Reason.JOB_IS_FULL if full else Reason.NO_FREE_CHIP, None if full else who)
        contended = any(wish.run in assigned for wish in left_out)
        poll = [POLL_S] if left_out and (others_hold_some or contended) else []
        return min([LONGEST_SLEEP_S, *later, *poll])

    def _groups_on(self, states: Sequence[RunState]) -> Counter[str]:
        """How many runs of each group are on, or about to be."""
        on = [state.id for state in states if state.state is State.RUNNING or state.id in self.starting]
        return Counter(RunStore(self.places.run(run)).spec().group or "" for run in on)

    def _free(self, ours: Collection[int]) -> list[int]:
        """The chips that nobody has leased and whose device nobody has open, lowest first."""
        candidates = [chip for chip in chips.chips_of(self.places) if chip.number not in ours]
        busy = processes.holders([chip.device for chip in candidates])
        return [
            chip.number
            for chip in candidates
            if chip.device not in busy and not locks.is_held(self.places.lease(chip.number), chips.PATIENCE_S)
        ]

    def _start(self, run: str, assigned: dict[str, tuple[int, ...]]) -> bool:
        """Starts the run's supervisor and hands it the run's lock and the leases; False when someone was faster."""
        record = RunStore(self.places.run(run))
        lock = record.take()
        if lock is None:
            return False
        held = [lock]
        try:
            state = record.state()
            if state is None or state.state not in STARTABLE:
                return True
            if record.asked_to_stop() is not None:
                settle.stop_before_start(record, state)
                return True
            leases = chips.take_leases(self.places, assigned[run], run)
            if leases is None:
                return False
            held += leases.values()
            words = [run, str(lock), *(f"{chip}:{fd}" for chip, fd in leases.items())]
            child = daemons.start(self.places, "supervise", words, held)
            self.children[child.pid] = child
            self.starting[run] = _Starting(child.pid, assigned[run], len(state.attempts))
            return True
        finally:
            for fd in held:
                os.close(fd)

    def _say_why(self, run: str, reason: Reason, why: str | None) -> None:
        """Notes what a run waits for, once it was looked at; not if someone has its lock, who will change it."""
        record = RunStore(self.places.run(run))
        state = record.state()
        if state is None or _says(state, reason, why) == state:
            return
        lock = record.take()
        if lock is None:
            return
        try:
            state = record.state()
            if state is not None and state.state in STARTABLE:
                record.write_state(_says(state, reason, why))
        finally:
            os.close(lock)

    def _sleep(self, seconds: float, states: Sequence[RunState]) -> None:
        """Until poked, until a supervisor or an unwatched training ends, or for `seconds`."""
        pids = [*self.children]
        for state in states:
            if state.state is State.RUNNING:
                pid = _pid_to_watch(self.places, state)
                pids += [] if pid is None else [pid]
                seconds = min(seconds, AFTER_VANISHED_S) if pid is None else seconds
        with contextlib.ExitStack() as stack:
            ends: list[int] = []
            for pid in pids:
                try:
                    ends.append(os.pidfd_open(pid))
                except ProcessLookupError:
                    seconds = 0.0  # gone meanwhile: look at once
                else:
                    stack.callback(os.close, ends[-1])
            select.select([self.fifo, *ends], [], [], max(0.0, seconds))


def _says(state: RunState, reason: Reason, why: str | None) -> RunState:
    """The state of a run that waits; why it must be started again is worth more than what it waits for."""
    return state._replace(reason=reason if state.state is State.QUEUED else state.reason, why=why)


def _pid_to_watch(places: Places, state: RunState) -> int | None:
    """The supervisor of a running run, or the training itself when that is gone; None when both went just now."""
    handle, boot = settle.current_handle(RunStore(places.run(state.id)), state), settle.boot_id(places)
    if handle is not None and settle.is_watched(handle, boot):
        return handle.supervisor
    if handle is not None and settle.is_training(handle, boot):
        return handle.pid
    return None


def _in_order(places: Places, states: Sequence[RunState]) -> list[slots.Wish]:
    """The queue: the most urgent first, then the oldest."""
    specs = [RunStore(places.run(state.id)).spec() for state in states]
    ordered = sorted(specs, key=lambda spec: (-spec.priority, spec.submitted, spec.id))
    return [slots.Wish(spec.id, spec.chips, spec.group, spec.group_limit) for spec in ordered]


def _poke(fifo: Path) -> None:
    """Wakes the worker if there is one; a full pipe is poke enough."""
    with contextlib.suppress(OSError):
        fd = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(fd, b".")
        finally:
            os.close(fd)


@contextlib.contextmanager
def _fifo(path: Path) -> Generator[int]:
    """The worker's end of the pipe, open for writing as well so that it never reads end of file."""
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _drain(fifo: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(fifo, 4096):
            pass
