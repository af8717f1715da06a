"""Google's words -> their meaning and exit code."""

from __future__ import annotations

import pytest

from tpufleet.cloud.classify import classify
from tpufleet.errors import (
    CapacityError,
    CloudError,
    CloudUnreachable,
    Conflict,
    NotFound,
    PermissionDenied,
    QuotaError,
    RateLimited,
)

CASES = [
    (
        "RESOURCE_EXHAUSTED",
        'There is no more capacity in the zone "us-central1-b"; you can try in another zone where Cloud TPU Nodes '
        "are offered (see https://cloud.google.com/tpu/docs/regions) [EID: 0x1a2b]",
        CapacityError,
        3,
    ),
    ("FAILED_PRECONDITION", "Insufficient reserved capacity. Contact customer support to increase.", CapacityError, 3),
    ("RESOURCE_EXHAUSTED", "Insufficient reserved capacity. Contact customer support.", CapacityError, 3),
    (
        "RESOURCE_EXHAUSTED",
        "Quota 'TPUV2sPreemptiblePodPerProjectPerRegionForTPUAPI' exhausted. Limit 32 in region us-central1",
        QuotaError,
        4,
    ),
    ("PERMISSION_DENIED", "Location us-east1-d is not found or access is unauthorized.", PermissionDenied, 4),
    ("RESOURCE_EXHAUSTED", "Quota exceeded for DeleteNode requests per minute.", RateLimited, 4),
    (
        "INVALID_ARGUMENT",
        "Cloud TPU received a bad request. update is not supported while in state PREEMPTED",
        Conflict,
        4,
    ),
    ("NOT_FOUND", "Resource 'projects/p/locations/z/nodes/n' was not found", NotFound, 4),
    ("ALREADY_EXISTS", "Resource 'projects/p/locations/z/nodes/n' already exists", Conflict, 4),
    ("UNAVAILABLE", "The service is currently unavailable.", CloudUnreachable, 5),
    ("SOMETHING_NEW", "A sentence nobody has seen.", CloudError, 4),
]


@pytest.mark.parametrize(("status", "text", "meaning", "code"), CASES)
def test_each_text_has_its_meaning_and_keeps_its_words(
    status: str, text: str, meaning: type[CloudError], code: int
) -> None:
    error = classify(status, text, "tpu-0")
    assert type(error) is meaning
    assert error.exit_code == code
    assert error.message == text
    assert error.where == "tpu-0"
    assert error.hint
