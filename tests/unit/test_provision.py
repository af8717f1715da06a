"""A node was refused -> where and when to ask next, or why to give up."""

from __future__ import annotations

import pytest

from tpufleet.errors import (
    AlreadyExists,
    CapacityError,
    CloudError,
    CloudUnreachable,
    Conflict,
    NotOffered,
    PermissionDenied,
    QuotaError,
    RateLimited,
    TpufleetError,
    ZoneNotGranted,
)
from tpufleet.names import Zone
from tpufleet.provision import Ask, GiveUp, Search, after_refusal, too_late

A, B, C = Zone("us-central1-a"), Zone("us-central1-b"), Zone("us-central1-c")
FULL = CapacityError("There is no more capacity in the zone")


def asked(search: Search, *errors: TpufleetError) -> Ask:
    """The step after all of `errors`, each of which must leave hope."""
    step = Ask(search)
    for error in errors:
        found = after_refusal(step.search, error, 0.5)
        assert isinstance(found, Ask)
        step = found
    return step


def test_a_stock_out_sends_to_the_next_zone_at_once() -> None:
    step = asked(Search((A, B, C)), FULL)
    assert (step.search.zone, step.after_s) == (B, 0.0)


def test_after_the_last_zone_the_first_is_asked_again_after_a_pause_that_grows_to_five_minutes() -> None:
    first = asked(Search((A, B)), FULL, FULL)
    second = asked(first.search, FULL, FULL)
    assert (first.search.zone, second.search.zone) == (A, A)
    assert (first.after_s, second.after_s) == (2.0, 4.0)
    assert asked(Search((A,)), *[FULL] * 60).after_s == 300.0


@pytest.mark.parametrize("error", [ZoneNotGranted("not granted"), NotOffered("no such type there")])
def test_a_zone_that_can_never_have_it_is_not_asked_again(error: CloudError) -> None:
    step = asked(Search((A, B, C)), FULL, error)
    assert (step.search.zones, step.search.zone, step.after_s) == ((A, C), C, 0.0)
    again = asked(step.search, FULL)
    assert (again.search.zone, again.after_s) == (A, 2.0)


def test_when_no_zone_is_left_the_search_is_over_and_says_what_each_said() -> None:
    alone = after_refusal(Search((A,)), denied := ZoneNotGranted("not granted"), 0.5)
    assert alone == GiveUp(denied)
    both = after_refusal(asked(Search((A, B)), denied).search, NotOffered("no v4 here"), 0.5)
    assert isinstance(both, GiveUp)
    assert "us-central1-a: not granted; us-central1-b: no v4 here" in both.error.message


@pytest.mark.parametrize(
    "error",
    [
        QuotaError("exhausted"),
        PermissionDenied("no"),
        Conflict("busy"),
        AlreadyExists("taken"),
        CloudUnreachable("silent"),
        CloudError("new"),
    ],
)
def test_what_another_zone_cannot_help_ends_the_search(error: CloudError) -> None:
    assert after_refusal(Search((A, B)), error, 0.5) == GiveUp(error)


def test_a_rate_limit_waits_in_the_same_zone_at_least_as_long_as_google_says() -> None:
    step = asked(Search((A, B)), RateLimited("slow down", retry_after_s=30.0))
    assert (step.search.zone, step.after_s) == (A, 30.0)
    assert asked(Search((A,)), RateLimited("slow down")).after_s == 2.0


def test_many_nodes_spread_their_next_tries() -> None:
    pauses = {after_refusal(Search((A,)), FULL, jitter) for jitter in (0.0, 0.5, 1.0)}
    assert sorted(step.after_s for step in pauses if isinstance(step, Ask)) == [1.5, 2.0, 2.5]


def test_a_search_that_took_too_long_says_what_was_tried_and_for_how_long() -> None:
    search = asked(Search((A, B)), FULL, FULL, FULL).search
    error = too_late(search, "v2-8", 1805.0)
    assert error.exit_code == 3
    assert error.message == (
        "no v2-8 to be had in 30 min: us-central1-a (2 tries), us-central1-b (1 try); "
        "last: There is no more capacity in the zone"
    )
