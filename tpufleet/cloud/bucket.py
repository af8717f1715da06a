"""A token bucket: how many calls of a kind may be made in a minute, whoever makes them."""

from __future__ import annotations

import threading

from tpufleet.cloud.retry import Time


class TokenBucket:
    """`burst` calls at once, `per_minute` in the long run. Threads that come too early wait in their turn."""

    def __init__(self, per_minute: float, burst: int, at: Time | None = None) -> None:
        self._at = at or Time()
        self._apart_s = 60.0 / per_minute
        self._burst = burst
        self._lock = threading.Lock()
        self._next = self._at.clock() - burst * self._apart_s  # when the next token is due; the past is the burst

    def take(self) -> None:
        """Returns when the call may be made."""
        with self._lock:
            now = self._at.clock()
            self._next = max(self._next, now - self._burst * self._apart_s) + self._apart_s
            wait = self._next - now
        if wait > 0:
            self._at.sleep(wait)
