"""When a call is made again, after which pause, and how many calls a minute may be made at all."""

from __future__ import annotations

import threading

import pytest

from tpufleet.cloud.bucket import TokenBucket
from tpufleet.cloud.retry import LONGEST_S, Patience, pause_s, persistently
from tpufleet.errors import (
    Aborted,
    CapacityError,
    CloudError,
    CloudUnreachable,
    Conflict,
    PermissionDenied,
    QuotaError,
    RateLimited,
)

from .conftest import Steps

PATIENCE = Patience(rate_s=100, transient_s=10)


class Failing:
    """Raises the errors, one a call, then gives its number of calls."""

    def __init__(self, *errors: CloudError) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.calls


@pytest.mark.parametrize("kind", [RateLimited, CloudUnreachable, Aborted])
def test_what_passes_is_tried_again_after_growing_pauses(steps: Steps, kind: type[CloudError]) -> None:
    assert persistently(Failing(kind("no"), kind("no"), kind("no")), PATIENCE, steps.time) == 4
    assert steps.slept == [0.25, 0.5, 1.0]  # half of 0.5, 1 and 2 s, by this chance


@pytest.mark.parametrize("kind", [CapacityError, QuotaError, PermissionDenied, Conflict, CloudError])
def test_what_stays_is_not_tried_again(steps: Steps, kind: type[CloudError]) -> None:
    call = Failing(kind("no"))
    with pytest.raises(kind):
        persistently(call, PATIENCE, steps.time)
    assert (call.calls, steps.slept) == (1, [])


@pytest.mark.parametrize(("kind", "limit"), [(RateLimited, 100), (CloudUnreachable, 10)])
def test_patience_has_an_end(steps: Steps, kind: type[CloudError], limit: float) -> None:
    with pytest.raises(kind):
        persistently(Failing(*(kind("no") for _ in range(1000))), PATIENCE, steps.time)
    assert limit / 2 < steps.now < limit


def test_jitter_is_full_and_pauses_have_an_end() -> None:
    assert pause_s(1, 0.0, None) == 0
    assert pause_s(50, 0.999, None) < LONGEST_S
    assert pause_s(3, 0.5, 10.0) == 11.0


def test_a_bucket_lets_a_burst_through_and_then_one_a_second(steps: Steps) -> None:
    bucket = TokenBucket(60, 3, steps.time)
    for _ in range(5):
        bucket.take()
    assert steps.slept == [1.0, 1.0]
    steps.now += 100
    steps.slept.clear()
    for _ in range(4):
        bucket.take()
    assert steps.slept == [1.0]  # a long rest makes no larger burst


def test_many_threads_at_once_wait_in_their_turn(steps: Steps) -> None:
    bucket = TokenBucket(60, 2, steps.time)
    threads = [threading.Thread(target=bucket.take) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert steps.now >= 10
