"""Which chips the next runs get: pure. A slot is 1, 2, 4 or 8 neighbouring chips, aligned to its size (libtpu: two
chips are 0,1 or 2,3 only)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

SIZES = (1, 2, 4, 8)


class Wish(NamedTuple):
    """A run that waits for `chips` chips; of its `group` at most `limit` may be on."""

    run: str
    chips: int
    group: str | None = None
    limit: int | None = None


def assign(
    waiting: Sequence[Wish],
    present: Collection[int],
    free: Collection[int],
    ours: Collection[int],
    running: Mapping[str, int] | None = None,
) -> dict[str, tuple[int, ...]]:
    """The chips of each run that can start now, the lowest that fit.

    `waiting` is in the order of the queue, `present` are the host's chips, `free` those nobody holds, `ours` those
    that runs hold. A run that must wait keeps a slot of `free` and `ours` chips for itself, so that smaller runs
    behind it cannot overtake it for ever; chips that people hold are not waited for. `running` says how many of each
    group are on; a run whose group is full keeps nothing.
    """
    open_chips = set(free)
    promised: set[int] = set()
    given: dict[str, tuple[int, ...]] = {}
    on: Counter[str] = Counter(running or {})
    for wish in waiting:
        run, size = wish.run, wish.chips
        if is_full(wish, on):
            continue
        slots = _slots(size, present)
        chosen = next((slot for slot in slots if open_chips.issuperset(slot)), None)
        if chosen is not None:
            given[run] = chosen
            open_chips -= set(chosen)
            on[wish.group or ""] += 1
            continue
        coming = [slot for slot in slots if set(slot) <= (open_chips | set(ours)) - promised]
        if coming:
            kept = max(coming, key=lambda slot: len(open_chips & set(slot)))
            promised |= set(kept)
            open_chips -= set(kept)
    return given


def is_full(wish: Wish, running: Mapping[str, int]) -> bool:
    """Whether as many of the run's group are on as may be."""
    return wish.group is not None and wish.limit is not None and running.get(wish.group, 0) >= wish.limit


def _slots(size: int, present: Collection[int]) -> list[tuple[int, ...]]:
    """All aligned slots of `size` chips, the lowest first; a run without chips fits everywhere."""
    if size == 0:
        return [()]
    starts = range(0, max(present, default=-1) + 1, size)
    slots = (tuple(range(start, start + size)) for start in starts)
    return [slot for slot in slots if set(slot) <= set(present)]
