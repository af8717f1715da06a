"""What is remembered of people between commands: where they sat, their uids, who was revoked, what hosts were told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tpufleet.errors import StateError
from tpufleet.names import PersonName, Seat
from tpufleet.paths import write_atomically


@dataclass(frozen=True)
class Remembered:
    """`seats` and `uids` by name; `revoked` are names whose accounts not every host has been told to close yet.

    `told` has a digest of what each host (by its identity) was asked to make its accounts equal to, the last time that
    it did: what it is to be asked now differs from that for a host that has missed something.
    """

    seats: Mapping[str, Seat] = field(default_factory=dict[str, Seat])
    revoked: tuple[str, ...] = ()
    uids: Mapping[str, int] = field(default_factory=dict[str, int])
    told: Mapping[str, str] = field(default_factory=dict[str, str])


def recall(path: Path) -> Remembered:
    """What is at `path`; nothing where there is no such file. Raises StateError when it can't be understood."""
    try:
        data = cast("dict[str, Any]", json.loads(path.read_bytes()))
        return Remembered(
            {str(PersonName(name)): Seat(seat) for name, seat in data["seats"].items()},
            tuple(str(PersonName(name)) for name in data["revoked"]),
            {str(PersonName(name)): int(uid) for name, uid in data.get("uids", {}).items()},
            {str(host): str(digest) for host, digest in data.get("told", {}).items()},
        )
    except FileNotFoundError:
        return Remembered()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        hint = f"rm '{path}'; people then get seats anew, and `tpufleet people apply` tells all hosts again"
        raise StateError("what is remembered of people can't be read", where=str(path), hint=hint) from error


def remember(path: Path, memory: Remembered) -> None:
    """Replace what is at `path`."""
    data = {
        "seats": dict(memory.seats),
        "revoked": sorted(set(memory.revoked)),
        "uids": dict(memory.uids),
        "told": dict(memory.told),
    }
    write_atomically(path, (json.dumps(data, indent=2, sort_keys=True) + "\n").encode())
