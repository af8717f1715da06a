"""Asking again, where asking again can help: growing pauses with full jitter, bounded by a patience in seconds.

A stock-out, a quota or a missing permission is as it is: those calls are made once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tpufleet.errors import Aborted, CloudError, CloudUnreachable, RateLimited

T = TypeVar("T")

FIRST_S = 0.5
LONGEST_S = 32.0


@dataclass(frozen=True)
class Patience:
    """How long one call may be tried: `rate_s` when calls were too many, `transient_s` for all that passes sooner."""

    rate_s: float
    transient_s: float

    def for_error(self, error: CloudError) -> float:
        return self.rate_s if isinstance(error, RateLimited) else self.transient_s


@dataclass(frozen=True)
class Time:
    """Where time and chance come from; a test brings its own."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random


def pause_s(tries: int, chance: float, retry_after_s: float | None) -> float:
    """The pause after the `tries`-th failure: what Google asked for, and full jitter on top so that not all come back
    at once (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/). `chance` is in [0, 1)."""
    return (retry_after_s or 0.0) + chance * min(LONGEST_S, FIRST_S * 2 ** (tries - 1))


def persistently(call: Callable[[], T], patience: Patience, at: Time | None = None) -> T:
    """`call()`'s value; what it raises in the end is its last error."""
    at = at or Time()
    started = at.clock()
    tries = 0
    while True:
        try:
            return call()
        except (RateLimited, Aborted, CloudUnreachable) as error:
            tries += 1
            pause = pause_s(tries, at.chance(), error.retry_after_s)
            if at.clock() + pause - started >= patience.for_error(error):
                raise
        at.sleep(pause)
