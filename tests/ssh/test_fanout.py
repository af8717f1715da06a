"""Fan-out: order, limits, failures that stay their own, bugs that are not hidden, interruption."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from tests.ssh.servers import eventually
from tpufleet.errors import Unreachable
from tpufleet.ssh.fanout import fan_out, gather


def test_outcomes_come_in_the_items_order_from_gather() -> None:
    last = threading.Event()

    def work(item: int) -> int:
        if item == 2:
            last.set()
        elif item == 0:
            last.wait(10)
        return item * 10

    assert [outcome.value for outcome in gather([0, 1, 2], work)] == [0, 10, 20]


def test_the_first_done_comes_first_from_fan_out() -> None:
    told = threading.Event()

    def work(item: str) -> str:
        if item == "slow":
            told.wait(10)
        return item

    outcomes = fan_out(["slow", "fast"], work)
    assert next(outcomes).item == "fast"
    told.set()
    assert next(outcomes).item == "slow"


def test_one_failure_is_only_one_failure() -> None:
    def work(item: int) -> int:
        if item == 1:
            raise Unreachable("gone", where="tpu-1-w0")
        return item

    outcomes = gather([0, 1, 2], work)
    assert [outcome.value for outcome in outcomes] == [0, None, 2]
    assert isinstance(outcomes[1].error, Unreachable)
    with pytest.raises(Unreachable):
        outcomes[1].unwrap()


def test_a_bug_is_raised_when_the_others_are_done() -> None:
    seen: list[int] = []

    def work(item: int) -> int:
        if item == 0:
            raise ZeroDivisionError
        return item

    with pytest.raises(ZeroDivisionError):
        seen.extend(outcome.item for outcome in fan_out([0, 1, 2], work))
    assert sorted(seen) == [1, 2]


def test_no_more_than_the_limit_work_at_once() -> None:
    lock, running, most = threading.Lock(), 0, 0
    both = threading.Barrier(2)

    def work(_item: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait(10)
        with lock:
            running -= 1

    gather(range(10), work, limit=2)
    assert most == 2


def test_nothing_to_do_is_done_at_once() -> None:
    assert gather([], lambda item: item) == []


def test_what_is_abandoned_begins_nothing_new() -> None:
    turn = threading.Semaphore(1)
    begun: list[int] = []

    def work(item: int) -> None:
        turn.acquire(timeout=10)
        begun.append(item)

    outcomes = fan_out(range(100), work, limit=1)
    next(outcomes)
    outcomes.close()
    turn.release()
    eventually(lambda: not any(thread.name == "fan-out" for thread in threading.enumerate()))
    assert len(begun) <= 2  # the one that was told, and the one that had begun already


INTERRUPTED = """
import os, signal, threading
from tpufleet.ssh.fanout import gather
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background has it ignored
def work(item):
    os.write(1, b"working\\n")
    threading.Event().wait()
gather([0, 1], work)
"""


def test_ctrl_c_ends_a_fan_out_whose_work_hangs() -> None:
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"working\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert b"KeyboardInterrupt" in said
