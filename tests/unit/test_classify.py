"""Google's words → their meaning. Every real text, at every place in a command, is in tests/cloud/test_said.py."""

from __future__ import annotations

import pytest

from tpufleet.cloud.classify import classify
from tpufleet.errors import CapacityError, QuotaError, RateLimited, ZoneNotGranted

RPC = "type.googleapis.com/google.rpc."
STOCK_OUT = 'There is no more capacity in the zone "us-central1-b" [EID: 0x1a2b]'


def test_the_original_text_with_its_eid_stays() -> None:
    error = classify("RESOURCE_EXHAUSTED", STOCK_OUT, "tpu-0")
    assert (error.message, error.where) == (STOCK_OUT, "tpu-0")


@pytest.mark.parametrize("status", ["RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "UNKNOWN", "SOMETHING_NEW", ""])
def test_a_known_text_means_the_same_under_any_status(status: str) -> None:
    assert type(classify(status, STOCK_OUT, "tpu-0")) is CapacityError


def test_a_reason_speaks_where_the_text_is_new() -> None:
    detail = {"@type": f"{RPC}ErrorInfo", "reason": "LOCATION_POLICY_VIOLATED", "metadata": {"location": "x"}}
    assert type(classify("PERMISSION_DENIED", "Not here.", "tpu-0", details=[detail])) is ZoneNotGranted


def test_what_only_the_details_say_is_added_to_the_text_once() -> None:
    violation = {"description": "Quota 'Q' exhausted. Limit 4 in zone us-east5-a"}
    details = [{"@type": f"{RPC}QuotaFailure", "violations": [violation, violation, {}]}]
    error = classify("RESOURCE_EXHAUSTED", "Exhausted.", "tpu-0", details=[*details, {"@type": f"{RPC}Help"}])
    assert error.message == f"Exhausted.; {violation['description']}"
    assert type(error) is QuotaError


def test_hints_of_what_is_not_known_say_where_to_fill_it_in() -> None:
    hint = classify("PERMISSION_DENIED", "Permission 'tpu.nodes.list' denied on 'x'", "tpu-0").hint
    assert hint
    assert hint.endswith("add-iam-policy-binding PROJECT --member=user:YOUR-ADDRESS --role=roles/tpu.admin")


def test_the_zone_is_known_when_it_is_the_subject() -> None:
    hint = classify("INVALID_ARGUMENT", "the accelerator v9-8 was not found in zone x", "europe-west4-a").hint
    assert hint
    assert "--zone=europe-west4-a" in hint


@pytest.mark.parametrize(("delay", "seconds"), [("41s", 41.0), ("0.5s", 0.5), ("soon", None), (None, None)])
def test_a_delay_in_the_details_is_kept_and_nonsense_is_not(delay: str | None, seconds: float | None) -> None:
    details = [{"@type": f"{RPC}RetryInfo", "retryDelay": delay}]
    error = classify("RESOURCE_EXHAUSTED", "requests per minute", "tpu-0", details=details)
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == seconds


def test_a_header_s_delay_goes_before_the_details() -> None:
    details = [{"@type": f"{RPC}RetryInfo", "retryDelay": "41s"}]
    assert classify("UNAVAILABLE", "no", "tpu-0", details=details, retry_after_s=2.0).retry_after_s == 2.0
