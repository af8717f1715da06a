"""Pure: an error as Google words it → what it means. RESOURCE_EXHAUSTED alone can be capacity, quota or rate.

By the text first, then by the reason that newer answers carry, then by the status. The original text, with its EID,
always stays in the message. The tables are in `texts`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tpufleet.cloud.texts import NAMED_QUOTA, REASONS, STATUSES, TEXTS, Meaning
from tpufleet.errors import CloudError, StuckOperation

Detail = Mapping[str, Any]  # one of google.rpc's error details, as JSON: {"@type": …, …}

NO_DETAIL: Detail = {}
ZONE = re.compile(r"[a-z]+-[a-z]+[0-9]{1,2}-[a-z]")
# by the first part of the permission's name (https://cloud.google.com/tpu/docs/iam-permissions)
ROLES = {"tpu": "roles/tpu.admin", "compute": "roles/compute.networkUser", "serviceusage": "roles/tpu.admin"}
UNKNOWN_STATUS = Meaning(CloudError, "tpufleet doctor")
# what stands in a hint where nothing better is known
DEFAULTS = {
    "project": "PROJECT",
    "zone": "ZONE",
    "member": "user:YOUR-ADDRESS",
    "account": "SERVICE-ACCOUNT",
    "service": "tpu.googleapis.com",
    "permission": "tpu.nodes.create",
}


def classify(
    status: str,
    text: str,
    subject: str,
    *,
    details: Sequence[Detail] = (),
    project: str | None = None,
    zone: str | None = None,
    member: str | None = None,
    retry_after_s: float | None = None,
) -> CloudError:
    """The error that `status` (a google.rpc.Code name) and `text` mean; `subject` is the node or zone it is about.

    `details` are the answer's google.rpc details. `project`, `zone` and `member` (who asked, as IAM names them:
    `user:me@example.com`) fill the hint.
    """
    said = "; ".join((text, *dict.fromkeys(line for line in _descriptions(details) if not _repeats(line, text))))
    info = next((detail for detail in details if _is(detail, "ErrorInfo")), NO_DETAIL)
    meaning, found = _meaning(status, said, info)
    known = {"project": project, "zone": zone or _zone_in(subject), "member": member}
    facts = DEFAULTS | {name: value for name, value in known.items() if value} | found
    facts["role"] = ROLES.get(facts["permission"].partition(".")[0], ROLES["tpu"])
    return meaning.kind(
        said,
        where=subject,
        hint=meaning.hint.format_map(facts),
        retry_after_s=retry_after_s if retry_after_s is not None else _retry_info(details),
    )


def timed_out(text: str, subject: str) -> StuckOperation:
    """An operation that Google itself gave up waiting for (it ended with DEADLINE_EXCEEDED)."""
    return StuckOperation(text, where=subject, hint="tpufleet status; what is there stays until tpufleet delete")


def _meaning(status: str, said: str, info: Detail) -> tuple[Meaning, dict[str, str]]:
    """What it means, and the facts of the hint that the answer names."""
    facts = _facts_of(info)
    reason = str(info.get("reason", ""))
    if reason == "RATE_LIMIT_EXCEEDED" and facts.get("limit") == "0":
        return NAMED_QUOTA, facts  # no call at all is allowed: waiting won't help
    for pattern, meaning in TEXTS:
        if match := re.search(pattern, said, re.IGNORECASE | re.DOTALL):
            return meaning, facts | {name: value for name, value in match.groupdict().items() if value}
    return REASONS.get(reason) or STATUSES.get(status, UNKNOWN_STATUS), facts


def _facts_of(info: Detail) -> dict[str, str]:
    """ErrorInfo's metadata as far as a hint uses it; nothing that a shell could take for more than a word."""
    metadata: Mapping[str, Any] = info.get("metadata") or {}
    names = {
        "permission": "permission",
        "service": "service",
        "quota_metric": "metric",
        "quota_limit_value": "limit",
        "quota_location": "place",
        "location": "zone",
    }
    given = {ours: str(metadata[theirs]) for theirs, ours in names.items() if theirs in metadata}
    plain = {name: value for name, value in given.items() if re.fullmatch(r"[\w./:@-]+", value)}
    return {"place": "this project", "limit": "reached", "metric": "the quota"} | plain if "metric" in plain else plain


def _descriptions(details: Iterable[Detail]) -> Iterable[str]:
    """What QuotaFailure says of each violation; the text itself is sometimes only "Quota exceeded"."""
    for detail in details:
        if _is(detail, "QuotaFailure"):
            for violation in detail.get("violations") or ():
                if description := str(violation.get("description") or ""):
                    yield description


def _repeats(line: str, text: str) -> bool:
    """Whether `line` says what `text` says already: its words, or the same quota by its name."""
    named = re.findall(r"'(\w+)'", line)
    return line in text or any(name in text for name in named)


def _retry_info(details: Iterable[Detail]) -> float | None:
    """google.rpc.RetryInfo's delay in seconds; JSON writes a duration as `41s` or `0.5s`."""
    for detail in details:
        delay = str(detail.get("retryDelay", "")) if _is(detail, "RetryInfo") else ""
        if re.fullmatch(r"\d{1,6}(\.\d{1,9})?s", delay):
            return float(delay[:-1])
    return None


def _is(detail: Detail, kind: str) -> bool:
    return str(detail.get("@type", "")).endswith(f"google.rpc.{kind}")


def _zone_in(subject: str) -> str | None:
    return subject if ZONE.fullmatch(subject) else None
