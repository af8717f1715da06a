"""A host's chips: its device files, and the leases (locks that every user can take and nobody can remove)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tpufleet.host import files, locks
from tpufleet.host.places import Places

ACCEL = re.compile(r"accel(\d{1,3})")
VFIO = re.compile(r"\d{1,3}")

# How long a lease is asked for, so that someone who only looks whether it is held is not taken for a holder.
PATIENCE_S = 0.05


class Chip(NamedTuple):
    """A chip by its number on the host, and the device file that stands for it."""

    number: int
    device: Path


def chips_of(places: Places) -> list[Chip]:
    """The host's chips in order: `/dev/accelN`, else `/dev/vfio/N` (v5e, v5p, v6e), numbered from 0.

    vfio groups are numbered by the kernel; libtpu counts them in order, so the index is the position.
    """
    accel = _numbered(places.dev, ACCEL)
    if accel:
        return [Chip(number, path) for number, path in accel]
    return [Chip(index, path) for index, (_, path) in enumerate(_numbered(places.dev / "vfio", VFIO))]


def owner_by_driver(places: Places, chip: Chip) -> int | None:
    """The process that has the chip open, by the accel driver's own word (`/sys/class/accel/accelN/device_owner`),
    which every user may read, unlike other users' /proc/PID/fd. vfio has nothing of the kind."""
    try:
        pid = int((places.root / "sys/class/accel" / chip.device.name / "device_owner").read_text())
    except (OSError, ValueError):
        return None
    return pid if pid > 0 else None


def take_lease(places: Places, chip: int, run: str) -> int | None:
    """A descriptor that holds the chip's lease for `run`, or None when someone else has it."""
    fd = locks.try_lock(places.lease(chip), PATIENCE_S, 0o666)
    if fd is None:
        return None
    if not os.path.samestat(os.fstat(fd), places.lease(chip).lstat()):
        os.close(fd)  # a fresh one has been put there, because the chip changed hands
        return None
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps({"run": run}).encode(), 0)
    return fd


def take_leases(places: Places, chips: Sequence[int], run: str) -> dict[int, int] | None:
    """The leases of all `chips` as {chip: descriptor}, or none of them and None."""
    taken: dict[int, int] = {}
    for chip in chips:
        fd = take_lease(places, chip, run)
        if fd is None:
            for held in taken.values():
                os.close(held)
            return None
        taken[chip] = fd
    return taken


def lease_note(places: Places, chip: int) -> files.JsonObject:
    """What the holder of a lease wrote into it: `run` or `person`. Anybody can write there: a hint, not a proof."""
    try:
        fd = os.open(places.lease(chip), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        note: object = json.loads(os.read(fd, 4096))
    except (ValueError, RecursionError):
        return {}
    finally:
        os.close(fd)
    return files.as_object(note) or {}


def lease_pids(places: Places, chips: Sequence[int]) -> dict[int, int]:
    """Who took the leases, by /proc/locks (every user may read it): {chip: pid}; that process may be gone by now."""
    wanted: dict[str, int] = {}
    for chip in chips:
        try:
            status = places.lease(chip).stat()
        except OSError:
            continue
        wanted[f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"] = chip
    found: dict[int, int] = {}
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()  # 1: FLOCK ADVISORY WRITE 1234 fd:01:5678 0 EOF
        if len(words) >= 6 and words[1] == "FLOCK" and words[5] in wanted:
            found[wanted[words[5]]] = int(words[4])
    return found


def _numbered(folder: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    """Files of a folder whose whole name matches `pattern`, by the number in the name."""
    try:
        found = [path for path in folder.iterdir() if pattern.fullmatch(path.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((int(path.name.removeprefix("accel")), path) for path in found)
