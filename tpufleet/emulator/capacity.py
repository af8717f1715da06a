"""What the zones have (chips) and what a project may use of it (quota): data, set from outside, endless at first.

Sources of the texts and names: FACTS' table of errors; skypilot's handler of TPU errors; answers of the API that
users recorded (`Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. Limit: 0 in region
us-east5.`, with a QuotaFailure in its details). The quota counts what an accelerator's name counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from tpufleet.accelerators import Accelerator
from tpufleet.emulator import zones
from tpufleet.emulator.wire import RPC_TYPES, ApiError, Json, project_number, with_id

STOCKOUT = (
    'There is no more capacity in the zone "{zone}"; you can try in another zone where Cloud TPU Nodes are offered '
    "(see https://cloud.google.com/tpu/docs/regions)"
)
NOT_RESERVED = "Insufficient reserved capacity. Contact customer support to increase your reservation."


@dataclass(frozen=True)
class Use:
    """One node, existing or asked for: where, of which type, and by which right."""

    zone: str
    accelerator: Accelerator
    spot: bool = False
    reserved: bool = False

    @property
    def amount(self) -> int:
        """What the quota counts: the number in the type's name."""
        return self.accelerator.chips * self.accelerator.generation.cores_per_chip

    def metric(self, scope: str) -> str:
        """The quota's name; `scope` is Region or Zone."""
        large = self.accelerator.hosts > 1
        kind = "Preemptible" if self.spot else ""
        family = {
            "v2": f"TPUV2s{kind}{'Pod' if large else ''}",
            "v3": f"TPUV3s{kind}{'Pod' if large else ''}",
            "v4": f"TPUV4s{kind}Pod",
            "v5e": f"TPUV5s{kind}Litepod{'' if large else 'Serving'}",
            "v5p": f"TPUV5P{kind}",
            "v6e": f"TPUV6E{kind}",
        }
        return f"{family[self.accelerator.generation.name]}PerProjectPer{scope}ForTPUAPI"


class Capacity:
    """The limits in force. `freed` wakes whoever waits for room."""

    def __init__(self, stored: Json | None = None) -> None:
        stored = stored or {}
        self._limits: dict[str, int] = stored.get("limits", {})
        self._quotas: dict[str, int] = stored.get("quotas", {})
        self._waiting: list[asyncio.Event] = []

    def stored(self) -> Json:
        """What is in force, as JSON: chips by ZONE or ZONE/TYPE, quota by METRIC@PLACE."""
        return {"limits": self._limits, "quotas": self._quotas}

    def limit(self, zone: str, accelerator: str | None, chips: int | None) -> None:
        """`zone` has `chips` in all, of one type or of all together; None is endless, 0 a stock-out.

        Nodes that are there stay. Raises ApiError for a zone that isn't there.
        """
        zones.check_zone(zone)
        key = f"{zone}/{accelerator}" if accelerator else zone
        self._limits.pop(key, None)
        if chips is not None:
            self._limits[key] = chips
        self.freed()

    def quota(self, metric: str, place: str, limit: int | None) -> None:
        """Every project may use `limit` of `metric` (as `Use.metric` names it) in a region or zone; None is endless."""
        self._quotas.pop(f"{metric}@{place}", None)
        if limit is not None:
            self._quotas[f"{metric}@{place}"] = limit

    def check_room(self, wanted: list[Use], held: Iterable[Use]) -> None:
        """Raises ApiError, as an operation fails with it, unless all of `wanted` fits beside `held`."""
        taken = list(held)
        for use in wanted:
            taken.append(use)
            if not self._fits(use, taken):
                if use.reserved:
                    raise ApiError("FAILED_PRECONDITION", with_id(NOT_RESERVED))
                raise ApiError("RESOURCE_EXHAUSTED", with_id(STOCKOUT.format(zone=use.zone)))

    def _fits(self, use: Use, taken: list[Use]) -> bool:
        there = [one for one in taken if one.zone == use.zone]
        same = [one for one in there if one.accelerator.name == use.accelerator.name]
        for key, uses in ((use.zone, there), (f"{use.zone}/{use.accelerator.name}", same)):
            if key in self._limits and sum(one.accelerator.chips for one in uses) > self._limits[key]:
                return False
        return True

    def check_quota(self, project: str, wanted: list[Use], used: Iterable[Use]) -> None:
        """Raises ApiError, as the API refuses the call, when a quota of the project would be exceeded."""
        counted = [*used, *wanted]
        for use in wanted:
            for scope, place in (("Region", zones.region_of(use.zone)), ("Zone", use.zone)):
                metric = use.metric(scope)
                limit = self._quotas.get(f"{metric}@{place}")
                total = sum(
                    one.amount
                    for one in counted
                    if one.metric(scope) == metric and place in (one.zone, zones.region_of(one.zone))
                )
                if limit is not None and total > limit:
                    raise _exceeded(metric, limit, f"{scope.lower()} {place}", project)

    def freed(self) -> None:
        """There may be room: who waits tries again, in the order of their waiting."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.set()

    async def wait(self) -> None:
        """Until there may be room."""
        woken = asyncio.Event()
        self._waiting.append(woken)
        await woken.wait()


def _exceeded(metric: str, limit: int, place: str, project: str) -> ApiError:
    violation = {
        "subject": f"project:{project_number(project)}",
        "description": f"Quota '{metric}' exhausted. Limit {limit} in {place}",
    }
    return ApiError(
        "RESOURCE_EXHAUSTED",
        f"Quota limit '{metric}' has been exceeded. Limit: {limit} in {place}.",
        [{"@type": f"{RPC_TYPES}.QuotaFailure", "violations": [violation]}],
    )
