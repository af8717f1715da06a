"""The labels by which nodes are found again and known to be ours, without any local state.

A label's value may hold lower-case letters, digits, '-' and '_' only, at most 63 (Google Cloud's rule).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FLEET: Final = "tpufleet"
POOL: Final = "tpufleet-pool"
ADOPTED: Final = "tpufleet-adopted"  # taken in by `tpufleet adopt`: in the fleet, though no pool of the file counts it
EXPIRES: Final = "tpufleet-expires"  # the end of the node's ttl, in seconds of Unix time
RESERVED: Final = frozenset({FLEET, POOL, ADOPTED, EXPIRES})


def fleet_of(labels: Mapping[str, str]) -> str | None:
    """The fleet that a node with `labels` belongs to; None for somebody else's node."""
    return labels.get(FLEET) or None


def expiry(labels: Mapping[str, str]) -> float | None:
    """When the node's ttl is over, in seconds of Unix time; None when it has none."""
    text = labels.get(EXPIRES, "")
    return float(text) if text.isdecimal() and len(text) < 15 else None
