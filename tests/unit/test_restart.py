"""Restart or give up."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st

from tpufleet.restart import FREE_REASONS, HOPELESS_REASONS, LONGEST_WAIT_S, GiveUp, Policy, Reason, Restart, decide


class Ended(NamedTuple):
    reason: Reason | None


def after(*reasons: Reason, retries: int = 0) -> Restart | GiveUp:
    return decide(Policy(retries), [Ended(reason) for reason in reasons], reasons[-1])


def test_a_failure_is_tried_again_as_often_as_the_policy_says() -> None:
    failed = Reason.EXIT_NONZERO
    assert isinstance(after(failed), GiveUp)
    assert after(failed, retries=1) == Restart(1.0)
    assert isinstance(after(failed, failed, retries=1), GiveUp)


def test_waits_double_up_to_a_minute() -> None:
    waits = [after(*[Reason.SIGNAL] * n, retries=99) for n in (1, 2, 3, 20)]
    assert waits == [Restart(1.0), Restart(2.0), Restart(4.0), Restart(LONGEST_WAIT_S)]


@pytest.mark.parametrize("reason", [Reason.PREEMPTED, Reason.HOST_REBOOTED])
def test_a_host_that_goes_away_never_counts_however_often(reason: Reason) -> None:
    assert after(*[reason] * 50) == Restart(0.0)
    assert after(Reason.EXIT_NONZERO, *[reason] * 50, Reason.EXIT_NONZERO, retries=2) == Restart(2.0)


def test_a_run_that_is_lost_again_and_again_is_given_up() -> None:
    assert after(*[Reason.LOST] * 4) == Restart(0.0)
    assert isinstance(after(*[Reason.LOST] * 5), GiveUp)
    assert after(*[Reason.LOST] * 4, Reason.HOST_REBOOTED, Reason.LOST) == Restart(0.0)


def test_a_busy_tpu_is_waited_for_without_costing_a_retry_but_not_for_ever() -> None:
    waits = [after(*[Reason.TPU_BUSY] * n) for n in (1, 2, 3, 19)]
    assert waits == [Restart(1.0), Restart(2.0), Restart(4.0), Restart(LONGEST_WAIT_S)]
    assert isinstance(after(*[Reason.TPU_BUSY] * 20), GiveUp)


def test_what_takes_time_to_change_is_given_time() -> None:
    waits = [after(reason, retries=1) for reason in (Reason.OUT_OF_MEMORY, Reason.TPU_INIT_FAILED, Reason.DISK_FULL)]
    assert waits == [Restart(10.0), Restart(10.0), Restart(60.0)]


@pytest.mark.parametrize("reason", sorted(HOPELESS_REASONS))
def test_what_would_end_the_same_way_again_is_not_tried(reason: Reason) -> None:
    assert isinstance(after(reason, retries=99), GiveUp)


@given(st.lists(st.sampled_from(sorted(Reason)), min_size=1), st.integers(0, 10))
def test_a_run_never_fails_more_often_than_its_retries_and_once(reasons: list[Reason], retries: int) -> None:
    counted = [reason for reason in reasons if reason not in FREE_REASONS]
    if isinstance(after(*reasons, retries=retries), Restart):
        assert len(counted) <= retries or reasons[-1] in FREE_REASONS
