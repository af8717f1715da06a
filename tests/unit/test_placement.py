"""Runs and hosts -> which run goes to which host."""

from __future__ import annotations

from collections import Counter

import pytest

from tpufleet.errors import UsageError
from tpufleet.model import JobSpec, RunSpec
from tpufleet.placement import Room, place


def some_runs(count: int, chips: int = 1) -> list[RunSpec]:
    job = JobSpec(command=("true",), chips=chips)
    return [RunSpec(f"j-seed{i}", "j", {"seed": i}, ("true",), {}, job) for i in range(count)]


def test_eight_runs_fill_two_hosts_evenly() -> None:
    placed = place(some_runs(8), [Room("tpu-0-w0", 4, 4), Room("tpu-1-w0", 4, 4)], {})
    assert Counter(placed.values()) == {"tpu-0-w0": 4, "tpu-1-w0": 4}


def test_free_chips_come_before_queues() -> None:
    placed = place(some_runs(3), [Room("tpu-0-w0", 4, 0, waiting=0), Room("tpu-1-w0", 4, 3)], {})
    assert set(placed.values()) == {"tpu-1-w0"}


def test_queues_grow_by_chips_not_by_hosts() -> None:
    placed = place(some_runs(12), [Room("big-0-w0", 8, 0), Room("one-0-w0", 4, 0)], {})
    assert Counter(placed.values()) == {"big-0-w0": 8, "one-0-w0": 4}


def test_a_run_returns_to_the_host_that_has_its_checkpoints() -> None:
    placed = place(some_runs(1), [Room("tpu-0-w0", 4, 4), Room("tpu-1-w0", 4, 0, waiting=3)], {"j-seed0": "tpu-1-w0"})
    assert placed == {"j-seed0": "tpu-1-w0"}


def test_a_run_whose_host_is_gone_goes_elsewhere() -> None:
    assert place(some_runs(1), [Room("tpu-0-w0", 4, 4)], {"j-seed0": "tpu-9-w0"}) == {"j-seed0": "tpu-0-w0"}


def test_the_same_question_has_the_same_answer() -> None:
    rooms = [Room(f"tpu-{i}-w0", 4, 4) for i in range(12)]
    assert place(some_runs(30), rooms, {}) == place(some_runs(30), list(reversed(rooms)), {})


def test_a_run_that_fits_nowhere_says_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"needs 8 chips.*has 4"):
        place(some_runs(1, chips=8), [Room("tpu-0-w0", 4, 4)], {})
