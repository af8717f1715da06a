"""What a job set as an end to its own attempts: a time, a silence, a loss that is no number any more."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection

from tpufleet.host import logfile, metrics
from tpufleet.host.files import JsonObject
from tpufleet.host.places import RunPlaces
from tpufleet.host.records import Handle
from tpufleet.host.specs import RunSpec
from tpufleet.restart import Reason

GRACE_S = 10.0  # between SIGTERM and SIGKILL, as for a person's stop
TICKS = os.sysconf("SC_CLK_TCK")


class Limits:
    """The limits of one attempt, looked at now and then; a silence counts from the first look at the earliest."""

    def __init__(self, run: RunPlaces, spec: RunSpec, handle: Handle) -> None:
        self._run = run
        self._spec = spec
        self._begun_s = handle.start / TICKS
        self._metrics_offset = handle.metrics_from
        self._heard: tuple[int, int] | None = None
        self._heard_s = 0.0

    def broken(self) -> Reason | None:
        """Why the attempt is to be ended now, if it is."""
        spec, now_s = self._spec, time.clock_gettime(time.CLOCK_BOOTTIME)
        if spec.time_limit_s is not None and now_s - self._begun_s >= spec.time_limit_s:
            return Reason.TIME_LIMIT
        if spec.stop_on_nan and self._loss_is_lost():
            return Reason.NOT_A_NUMBER
        if spec.stalled_s is not None and self._silence_s(now_s) >= spec.stalled_s:
            return Reason.STALLED
        return None

    def _silence_s(self, now_s: float) -> float:
        heard = (logfile.size_of(self._run), metrics.size_of(self._run.metrics))
        if heard != self._heard:
            self._heard, self._heard_s = heard, now_s
        return now_s - self._heard_s

    def _loss_is_lost(self) -> bool:
        """Reads on in metrics.jsonl, where this attempt's records begin; the last word on a loss counts."""
        found, self._metrics_offset = metrics.records_from(self._run.metrics, self._metrics_offset)
        last: JsonObject = {}
        for record in found:
            last |= record
        return bool(lost_losses(last, self._spec.metrics))


def lost_losses(record: JsonObject, patterns: Collection[str]) -> list[str]:
    """The metrics of a record whose name speaks of a loss and whose value is NaN or infinite.

    `null` is how the numbers that patterns find say so; in a job's own record it may mean that there is none.
    """
    return [
        name
        for name, value in record.items()
        if "loss" in name.lower()
        and ((isinstance(value, float) and not math.isfinite(value)) or (value is None and name in patterns))
    ]
