"""Pure: a node was refused -> where and when to ask next, or why to give up.

A stock-out in one zone says nothing about the next one of the file, so that is asked at once. When all have been
asked, the round begins anew after a pause that grows. A zone that the project may not use, or that doesn't have the
type, is not asked again. What no retry can help (a quota, a permission, a conflict) ends the search.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

from tpufleet.actions import CreateNode
from tpufleet.errors import (
    CapacityError,
    CloudError,
    NotOffered,
    RateLimited,
    TpufleetError,
    ZoneNotGranted,
)
from tpufleet.names import Zone
from tpufleet.text import counted, lasted

FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 300.0


@dataclass(frozen=True)
class Search:
    """How far the search for a place for one node has come; `zones` are those left, the next one first in turn."""

    zones: tuple[Zone, ...]
    refusals: tuple[tuple[Zone, TpufleetError], ...] = ()
    in_round: int = 0  # refusals since the round began
    rounds: int = 0

    @property
    def zone(self) -> Zone:
        """Where to ask now."""
        return self.zones[self.in_round % len(self.zones)]


@dataclass(frozen=True)
class Ask:
    """Ask (again) in `search.zone`, `after_s` seconds from now."""

    search: Search
    after_s: float = 0.0


@dataclass(frozen=True)
class GiveUp:
    error: TpufleetError


def begin(action: CreateNode) -> Search:
    return Search(action.zones)


def after_refusal(search: Search, error: TpufleetError, jitter: float) -> Ask | GiveUp:
    """What to do after `error` in `search.zone`; `jitter` (0 to 1) spreads the pauses of many nodes."""
    search = replace(search, refusals=(*search.refusals, (search.zone, error)))
    match error:
        case ZoneNotGranted() | NotOffered():
            return _without_zone(search, error, jitter)
        case CapacityError():
            return _next_zone(replace(search, in_round=search.in_round + 1), jitter)
        case RateLimited():
            return Ask(search, max(error.retry_after_s or 0.0, _pause(len(search.refusals), jitter)))
        case _:
            return GiveUp(error)


def in_short(error: TpufleetError) -> str:
    """A refusal in a few words, for a line among many; Google's error id stays, its sentence comes at the end."""
    if not isinstance(error, CapacityError):
        return error.message
    found = re.search(r"\[EID: 0x[0-9a-fA-F]+\]", error.message)
    return f"no capacity {found.group()}" if found else error.message


def too_late(search: Search, accelerator: str, waited_s: float) -> CapacityError:
    """The end of a search that took too long: what was tried, how often, for how long, and the last answer."""
    tries = Counter(zone for zone, _ in search.refusals)
    where = ", ".join(f"{zone} ({counted(times, 'try', 'tries')})" for zone, times in tries.items())
    last = search.refusals[-1][1]
    return CapacityError(
        f"no {accelerator} to be had in {lasted(waited_s)}: {where}; last: {last.message}",
        hint="tpufleet create --timeout 12h, further cloud.zones, or `queued: true` in the fleet file",
    )


def _without_zone(search: Search, error: TpufleetError, jitter: float) -> Ask | GiveUp:
    place = search.in_round % len(search.zones)
    left = search.zones[:place] + search.zones[place + 1 :]
    if not left:
        return GiveUp(_worst(search, error))
    return _next_zone(replace(search, zones=left, in_round=place), jitter)


def _next_zone(search: Search, jitter: float) -> Ask:
    if search.in_round < len(search.zones):
        return Ask(search)
    rounds = search.rounds + 1
    return Ask(replace(search, in_round=0, rounds=rounds), _pause(rounds, jitter))


def _worst(search: Search, error: TpufleetError) -> TpufleetError:
    """No zone is left: with several it is told of all of them."""
    if len(search.refusals) == 1:
        return error
    said = "; ".join(f"{zone}: {refusal.message}" for zone, refusal in search.refusals[-5:])
    return CloudError(f"no zone of the file can make it: {said}", hint=error.hint)


def _pause(times: int, jitter: float) -> float:
    return min(FIRST_PAUSE_S * 2.0 ** min(times - 1, 20), LONGEST_PAUSE_S) * (0.75 + jitter / 2)
