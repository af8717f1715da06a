"""Runs and hosts -> which run goes to which host, and how many of a job each may have on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from tpufleet.errors import UsageError
from tpufleet.model import JobSpec, RunSpec
from tpufleet.placement import Room, place, shares, why_waiting

JOB = JobSpec(command=("true",))
WHOLE = JobSpec(command=("true",), whole_host=True)


def some_runs(count: int, job: JobSpec = JOB) -> list[RunSpec]:
    return [RunSpec(f"j-seed{i}", "j", {"seed": i}, ("true",), {}, job) for i in range(count)]


def room(number: int, chips: int = 4, free: int | None = None, waiting: int = 0, taken: int = 0) -> Room:
    return Room(f"tpu-{number}-w0", chips, range(chips if free is None else free), waiting, taken)


# ----------------------------------------------------------------------------------------------- where a run goes


def test_eight_runs_fill_two_hosts_evenly() -> None:
    placed = place(some_runs(8), [room(0), room(1)], {})
    assert Counter(placed.values()) == {"tpu-0-w0": 4, "tpu-1-w0": 4}


def test_free_chips_come_before_queues() -> None:
    placed = place(some_runs(3), [room(0, free=0), room(1, free=3)], {})
    assert set(placed.values()) == {"tpu-1-w0"}


def test_queues_grow_by_chips_not_by_hosts() -> None:
    placed = place(some_runs(12), [room(0, 8, free=0), room(1, 4, free=0)], {})
    assert Counter(placed.values()) == {"tpu-0-w0": 8, "tpu-1-w0": 4}


def test_chips_that_people_hold_are_not_waited_for() -> None:
    placed = place(some_runs(10), [room(0, free=0, taken=3), room(1, free=0)], {})
    assert Counter(placed.values()) == {"tpu-0-w0": 2, "tpu-1-w0": 8}
    assert set(place(some_runs(2), [room(0, free=0, taken=4), room(1, free=0)], {}).values()) == {"tpu-1-w0"}


def test_a_suspect_host_gets_runs_only_when_no_other_has_room() -> None:
    suspect, other = replace(room(0), suspect=True), room(1)
    assert set(place(some_runs(4), [suspect, other], {}).values()) == {"tpu-1-w0"}
    assert Counter(place(some_runs(6), [suspect, other], {}).values()) == {"tpu-0-w0": 2, "tpu-1-w0": 4}
    assert set(place(some_runs(4), [replace(suspect, free=()), replace(other, free=())], {}).values()) == {"tpu-1-w0"}
    assert shares(JOB, 4, [suspect, other], {}) == {"tpu-1-w0": 4}


def test_a_run_of_two_chips_goes_where_two_are_free_side_by_side() -> None:
    apart = Room("tpu-0-w0", 4, (1, 2))
    pair = Room("tpu-1-w0", 4, (2, 3))
    placed = place(some_runs(1, JobSpec(command=("true",), chips=2)), [apart, pair], {})
    assert placed == {"j-seed0": "tpu-1-w0"}


def test_chips_that_a_waiting_run_keeps_for_itself_are_not_free() -> None:
    placed = place(some_runs(1), [room(0, free=2, waiting=4), room(1, free=1)], {})
    assert placed == {"j-seed0": "tpu-1-w0"}


def test_a_run_that_wants_a_whole_host_goes_to_an_empty_one_of_any_size() -> None:
    placed = place(some_runs(2, WHOLE), [room(0, 4, free=3), room(1, 8), room(2, 4)], {})
    assert Counter(placed.values()) == {"tpu-1-w0": 1, "tpu-2-w0": 1}


def test_a_whole_host_of_three_chips_is_none() -> None:
    assert place(some_runs(1, WHOLE), [room(0, 3), room(1, 4, free=0)], {}) == {"j-seed0": "tpu-1-w0"}
    with pytest.raises(UsageError, match="those that answer have 3"):
        place(some_runs(1, WHOLE), [room(0, 3)], {})


def test_a_run_returns_to_the_host_that_has_its_checkpoints() -> None:
    placed = place(some_runs(1), [room(0), room(1, free=0, waiting=3)], {"j-seed0": "tpu-1-w0"})
    assert placed == {"j-seed0": "tpu-1-w0"}


def test_a_run_whose_host_is_gone_goes_elsewhere() -> None:
    assert place(some_runs(1), [room(0)], {"j-seed0": "tpu-9-w0"}) == {"j-seed0": "tpu-0-w0"}


def test_the_same_question_has_the_same_answer() -> None:
    rooms = [room(i) for i in range(12)]
    assert place(some_runs(30), rooms, {}) == place(some_runs(30), list(reversed(rooms)), {})


def test_a_run_that_fits_nowhere_says_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"needs 8 chips.*has 4"):
        place(some_runs(1, JobSpec(command=("true",), chips=8)), [room(0)], {})


# ---------------------------------------------------------------------------------------- how many of a job at once


def test_a_bound_is_shared_out_evenly_and_adds_up() -> None:
    assert shares(JOB, 3, [room(0), room(1)], {}) == {"tpu-0-w0": 2, "tpu-1-w0": 1}
    assert shares(JOB, 6, [room(0), room(1), room(2)], {}) == {"tpu-0-w0": 2, "tpu-1-w0": 2, "tpu-2-w0": 2}


def test_fewer_than_hosts_leave_hosts_out() -> None:
    rooms = [room(0, free=0), room(1), room(2)]
    shared = shares(JOB, 2, rooms, {})
    assert shared == {"tpu-1-w0": 1, "tpu-2-w0": 1}
    assert Counter(place(some_runs(6), rooms, {}, shared).values()) == {"tpu-1-w0": 3, "tpu-2-w0": 3}


def test_runs_are_spread_by_the_shares_of_their_hosts() -> None:
    rooms = [room(0, free=4), room(1, free=1)]
    shared = shares(JOB, 4, rooms, {})
    assert shared == {"tpu-0-w0": 3, "tpu-1-w0": 1}
    assert Counter(place(some_runs(8), rooms, {}, shared).values()) == {"tpu-0-w0": 6, "tpu-1-w0": 2}


def test_no_host_has_a_larger_share_than_it_has_slots() -> None:
    assert shares(JOB, 100, [room(0), room(1, 8)], {}) == {"tpu-0-w0": 4, "tpu-1-w0": 8}
    assert shares(WHOLE, 100, [room(0), room(1, 8)], {}) == {"tpu-0-w0": 1, "tpu-1-w0": 1}


def test_what_hosts_were_given_before_counts() -> None:
    assert shares(JOB, 4, [room(0), room(1)], {"tpu-1-w0": 3}) == {"tpu-0-w0": 1, "tpu-1-w0": 3}
    assert shares(JOB, 3, [room(0), room(1)], {"tpu-1-w0": 3}) == {"tpu-1-w0": 3}


def test_a_host_with_checkpoints_to_go_on_from_may_always_have_one() -> None:
    assert shares(JOB, 1, [room(0), room(1)], {"tpu-0-w0": 0, "tpu-1-w0": 0}) == {"tpu-0-w0": 1, "tpu-1-w0": 1}


def test_runs_of_the_job_that_are_there_already_count_when_others_are_spread() -> None:
    busy = replace(room(0, free=2), of_job=2)
    placed = place(some_runs(2), [busy, room(1)], {}, {"tpu-0-w0": 2, "tpu-1-w0": 2})
    assert Counter(placed.values()) == {"tpu-1-w0": 2}


@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.sampled_from([1, 4, 8]), st.integers(0, 8), st.integers(0, 9)), min_size=1, max_size=8),
    st.integers(0, 60),
)
def test_shares_never_add_up_to_more_than_the_bound_and_every_run_gets_a_place(
    limit: int, hosts: list[tuple[int, int, int]], count: int
) -> None:
    rooms = [room(i, chips, min(free, chips), waiting) for i, (chips, free, waiting) in enumerate(hosts)]
    shared = shares(JOB, limit, rooms, {})
    assert sum(shared.values()) == min(limit, sum(chips for chips, _, _ in hosts))
    placed = place(some_runs(count), rooms, {}, shared)
    assert len(placed) == count
    assert set(placed.values()) <= set(shared)


# ------------------------------------------------------------------------------------------------ why a run waits


def test_why_a_run_waits_is_said_with_who_has_the_chips() -> None:
    assert why_waiting("tpu-0-w0", 4, 4, [], 2) == "tpu-0-w0: 4 of 4 chips in use; 2 before it"
    assert why_waiting("tpu-0-w0", 4, 4, ["bo", "ann", "bo"], 0) == "tpu-0-w0: 4 of 4 chips in use, 3 by ann and bo"
