"""Times as people and files read them: RFC 3339, UTC, whole milliseconds."""

from __future__ import annotations

import time


def now() -> str:
    return rfc3339(time.time())


def rfc3339(seconds: float) -> str:
    """Seconds since the epoch as `2026-11-21T04:07:09.123Z`."""
    whole, milliseconds = divmod(int(seconds * 1000), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{milliseconds:03d}Z"
