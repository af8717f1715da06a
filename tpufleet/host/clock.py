"""Times as people and files read them: RFC 3339, UTC, whole milliseconds."""

from __future__ import annotations

import time
from datetime import datetime


def now() -> str:
    return rfc3339(time.time())


def rfc3339(seconds: float) -> str:
    """Seconds since the epoch as `2026-11-21T04:07:09.123Z`."""
    whole, milliseconds = divmod(int(seconds * 1000), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{milliseconds:03d}Z"


def seconds(text: str) -> float:
    """An RFC 3339 time as seconds since the epoch; raises ValueError for anything else."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00").replace("z", "+00:00"))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"{text!r:.50} is not a time such as 2026-12-01T18:00:00Z")
    return moment.timestamp()
