"""The labels by which nodes are found again and known to be ours, without any local state.

A label's value may hold lower-case letters, digits, '-' and '_' only, at most 63 (Google Cloud's rule).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

FLEET: Final = "tpufleet"
POOL: Final = "tpufleet-pool"
ADOPTED: Final = "tpufleet-adopted"  # taken in by `tpufleet adopt`: in the fleet, though no pool of the file counts it
TTL: Final = "tpufleet-ttl"  # how long after its making the node is deleted, in seconds
RESERVED: Final = frozenset({FLEET, POOL, ADOPTED, TTL})


def fleet_of(labels: Mapping[str, str]) -> str | None:
    """The fleet that a node with `labels` belongs to; None for somebody else's node."""
    return labels.get(FLEET) or None


def expiry(labels: Mapping[str, str], created: str | None) -> float | None:
    """When the ttl of a node that was `created` (RFC 3339) is over, in seconds of Unix time; None when it has none."""
    text = labels.get(TTL, "")
    if not (created and text.isdecimal() and len(text) < 12):
        return None
    try:
        return datetime.fromisoformat(created).timestamp() + float(text)
    except ValueError:
        return None
