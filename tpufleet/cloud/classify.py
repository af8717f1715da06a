"""Pure: an error as Google words it -> what it means. RESOURCE_EXHAUSTED alone can be capacity, quota or rate.

The texts are real ones, collected from users' reports (skypilot, marin, levanter) and Google's documentation; the
first row that fits wins, and the original text, with its EID, is always kept in the message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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

# (pattern in the text, meaning, what to do next)
TEXTS: tuple[tuple[str, type[CloudError], str], ...] = (
    (r"no more capacity", CapacityError, "name further zones in the file, or try again later"),
    (r"insufficient reserved capacity", CapacityError, "name further zones in the file, or try again later"),
    (r"requests per minute|rate limit", RateLimited, "wait a minute and run the same command again"),
    (
        r"quota '?\w+'? exhausted|quota.*exceeded|exceeded.*quota",
        QuotaError,
        "ask for more quota, or use fewer chips",
    ),
    (
        r"access is unauthorized|location .* is not found",
        PermissionDenied,
        "use a zone that was granted to the project",
    ),
    (r"was not found in zone", NotFound, "name zones that have this type: cloud.zones in the fleet file"),
    (
        r"update is not supported while in state PREEMPTED",
        Conflict,
        "tpufleet create  (deletes and makes it anew)",
    ),
)

# google.rpc.Code names, and the HTTP codes that stand for them where only those are known
CODES: Mapping[str, tuple[type[CloudError], str]] = {
    "RESOURCE_EXHAUSTED": (QuotaError, "run the same command again later"),
    "PERMISSION_DENIED": (PermissionDenied, "ask the project's owner for the role roles/tpu.admin"),
    "UNAUTHENTICATED": (PermissionDenied, "gcloud auth application-default login"),
    "NOT_FOUND": (NotFound, "tpufleet status"),
    "ALREADY_EXISTS": (Conflict, "use another name in the file, or delete the other node"),
    "ABORTED": (Conflict, "run the same command again"),
    "FAILED_PRECONDITION": (Conflict, "tpufleet status"),
    "UNAVAILABLE": (CloudUnreachable, "run the same command again"),
    "DEADLINE_EXCEEDED": (CloudUnreachable, "run the same command again"),
    "INTERNAL": (CloudUnreachable, "run the same command again"),
}


def classify(status: str, text: str, subject: str) -> CloudError:
    """The error that `status` (a google.rpc.Code name) and `text` mean; `subject` is a node or a zone."""
    for pattern, meaning, hint in TEXTS:
        if re.search(pattern, text, re.IGNORECASE):
            return meaning(text, where=subject, hint=hint)
    meaning, hint = CODES.get(status, (CloudError, "tpufleet doctor"))
    return meaning(text, where=subject, hint=hint)
