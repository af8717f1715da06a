"""Which chips the next runs get: pure. A slot is 1, 2, 4 or 8 neighbouring chips, aligned to its size (libtpu: two
chips are 0,1 or 2,3 only)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Wish(NamedTuple):
    """A run that waits for `chips` chips."""

    run: str
    chips: int


def assign(
    waiting: Sequence[Wish], present: Collection[int], free: Collection[int], ours: Collection[int]
) -> dict[str, tuple[int, ...]]:
    """The chips of each run that can start now, the lowest that fit.

    `waiting` is in the order of the queue, `present` are the host's chips, `free` those nobody holds, `ours` those
    that runs hold. A run that must wait keeps a slot of `free` and `ours` chips for itself, so that smaller runs
    behind it cannot overtake it for ever; chips that people hold are not waited for.
    """
    open_chips = set(free)
    promised: set[int] = set()
    given: dict[str, tuple[int, ...]] = {}
    for run, size in waiting:
        slots = _slots(size, present)
        chosen = next((slot for slot in slots if open_chips.issuperset(slot)), None)
        if chosen is not None:
            given[run] = chosen
            open_chips -= set(chosen)
            continue
        coming = [slot for slot in slots if set(slot) <= (open_chips | set(ours)) - promised]
        if coming:
            kept = max(coming, key=lambda slot: len(open_chips & set(slot)))
            promised |= set(kept)
            open_chips -= set(kept)
    return given


def _slots(size: int, present: Collection[int]) -> list[tuple[int, ...]]:
    """All aligned slots of `size` chips, the lowest first; a run without chips fits everywhere."""
    if size == 0:
        return [()]
    starts = range(0, max(present, default=-1) + 1, size)
    slots = (tuple(range(start, start + size)) for start in starts)
    return [slot for slot in slots if set(slot) <= set(present)]
