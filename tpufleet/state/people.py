"""What is remembered of people between commands: where they sat, and who was revoked and may still be on hosts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tpufleet.errors import StateError
from tpufleet.names import PersonName, Seat
from tpufleet.paths import write_atomically


@dataclass(frozen=True)
class Remembered:
    """`seats` by name; `revoked` are names whose accounts the hosts have not been told to close yet."""

    seats: Mapping[str, Seat] = field(default_factory=dict[str, Seat])
    revoked: tuple[str, ...] = ()


def recall(path: Path) -> Remembered:
    """What is at `path`; nothing where there is no such file. Raises StateError when it can't be understood."""
    try:
        data = cast("dict[str, Any]", json.loads(path.read_bytes()))
        seats = {str(PersonName(name)): Seat(seat) for name, seat in data["seats"].items()}
        return Remembered(seats, tuple(str(PersonName(name)) for name in data["revoked"]))
    except FileNotFoundError:
        return Remembered()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        hint = f"rm '{path}'; people then get seats anew, and who was revoked must be revoked again"
        raise StateError("what is remembered of people can't be read", where=str(path), hint=hint) from error


def remember(path: Path, seats: Mapping[str, Seat], revoked: Iterable[str]) -> None:
    """Replace what is at `path`."""
    data = {"seats": dict(seats), "revoked": sorted(set(revoked))}
    write_atomically(path, (json.dumps(data, indent=2, sort_keys=True) + "\n").encode())
