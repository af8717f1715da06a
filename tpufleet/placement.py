"""Pure: runs and hosts -> which run goes to which host.

Home decides the host only. The chip is taken by the host itself at the moment of the start, under a lock that
all users of the host share: two commands can't give one chip away twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpufleet.errors import UsageError
from tpufleet.model import RunSpec
from tpufleet.text import natural


@dataclass(frozen=True)
class Room:
    """A host's room: its chips, those that are free now, and the chips that runs waiting in its queue want."""

    host: str
    chips: int
    free: int
    waiting: int = 0


def place(runs: Sequence[RunSpec], rooms: Sequence[Room], homes: Mapping[str, str]) -> dict[str, str]:
    """Run id -> host name, for every run.

    A run that was on a host before (`homes`) returns to it, since its checkpoints lie there. The others go where
    most chips are free; when none is, where the least work waits per chip. Ties go by name, so the same question
    has the same answer. Raises UsageError when a run needs more chips than any host has.
    """
    load = {room.host: room.waiting - room.free for room in rooms}
    size = {room.host: room.chips for room in rooms}
    placed: dict[str, str] = {}
    for run in runs:
        fitting = [host for host in sorted(load, key=natural) if size[host] >= run.spec.chips]
        if not fitting:
            raise UsageError(
                f"run {run.id} needs {run.spec.chips} chips on one host; the largest host that answers has "
                f"{max(size.values(), default=0)}",
                hint="tpufleet status",
            )
        home = homes.get(run.id)
        host = home if home in fitting else min(fitting, key=lambda name: _crowding(load[name], size[name]))
        placed[run.id] = host
        load[host] += run.spec.chips
    return placed


def _crowding(load: int, chips: int) -> float:
    """Negative while chips are free (more free chips first), else the chips waited for, per chip."""
    return float(load) if load < 0 else load / chips
