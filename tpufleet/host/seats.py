"""Seats are kept by the host itself: a seat's device and its lease belong to the person, with the operator's group, and
nobody else can open the one or lock the other.

A run that is on a chip when it becomes somebody's seat goes on to its end: it has the lease, and the chip open. Until
then `on-chip` says so to who sits there; no other run gets the chip.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from tpufleet.host import chips, leases, locks, people
from tpufleet.host.accounts_request import FIRST_UID
from tpufleet.host.accounts_system import Account, is_real
from tpufleet.host.people import Known
from tpufleet.host.places import Places

SEAT_MODE = 0o660
OPEN_MODE = 0o666
ROOTS = (0, 0, OPEN_MODE)


def remember_devices(places: Places, known: Known) -> Known:
    """`known`, with what the chips' devices are like that are no seats yet: they get it back one day."""
    devices = dict(known.devices)
    for chip in chips.chips_of(places):
        status = _plain(chip.device)
        if status is not None and status.st_uid < FIRST_UID:
            devices[str(chip.number)] = (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))
    return known._replace(devices=devices)


def enforce(places: Places, known: Known, operator: Account) -> None:
    """Gives each chip's device and lease to whose seat it is, and back where it is nobody's. On process hosts of the
    rehearsal cloud there is nothing to give."""
    if not is_real(places):
        return
    leases.prepare(places)
    sitting: Mapping[int, str] = known.seats()
    for chip in chips.chips_of(places):
        lease, name = places.lease(chip.number), sitting.get(chip.number)
        if name is None:
            before = known.devices.get(str(chip.number), ROOTS)
            _own(chip.device, *(before if len(before) == 3 else ROOTS))
            _own(lease, *ROOTS)
        else:
            owner = (known.people[name].uid, operator.gid, SEAT_MODE)
            _own(chip.device, *owner)
            _renew(lease, *owner)
            _own(lease, *owner)


def enforce_again(places: Places, operator: Account) -> None:
    """After a boot, which gave devices and leases back: what is written down is true again."""
    known = people.read(places)
    if known is not None:
        enforce(places, known, operator)


def _own(path: Path, uid: int, gid: int, mode: int) -> None:
    """Nothing is done where it is so already, so that nobody who is about to open it is disturbed."""
    status = _plain(path)
    if status is None or (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (uid, gid, mode):
        return
    path.chmod(mode & 0o600)  # nobody else gets in between
    os.chown(path, uid, gid, follow_symlinks=False)
    path.chmod(mode)


def _renew(lease: Path, uid: int, gid: int, mode: int) -> None:
    """Puts a fresh file in the place of a lease that changes hands: whoever has the old one open could lock it for
    ever. One that is held stays: its holder goes on to their end."""
    status = _plain(lease)
    if status is None or (status.st_uid, status.st_gid) == (uid, gid):
        return
    held = locks.try_lock(lease, chips.PATIENCE_S)
    if held is None:
        return
    fresh = lease.with_name(f".{lease.name}.fresh")
    try:
        fresh.unlink(missing_ok=True)
        os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        _own(fresh, uid, gid, mode)
        fresh.replace(lease)
    finally:
        os.close(held)


def _plain(path: Path) -> os.stat_result | None:
    """Of a device, or of a plain file as the rehearsal cloud has it; None for anything else. Both lie in directories
    that only root can change."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status if stat.S_ISCHR(status.st_mode) or stat.S_ISREG(status.st_mode) else None
