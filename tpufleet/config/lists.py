"""Pure: what is in a list more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from tpufleet.config.marks import Finding, Path
from tpufleet.names import shown


def twins(path: Path, names: Iterable[str], key: str | None = None) -> Iterator[Finding]:
    """What is in a list of names more than once, at its second place (at `key` of it, if the items are mappings)."""
    seen: Counter[str] = Counter()
    for index, name in enumerate(names):
        seen[name] += 1
        if seen[name] == 2:
            place = (*path, index, key) if key else (*path, index)
            yield Finding(place, f"{shown(name)} is here twice")
