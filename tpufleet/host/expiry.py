"""Ends people's time by the host's clock: one small process of root's, which lives while somebody here has an end.

`expiry-time` in authorized_keys keeps an expired key out. But its owner may change that file, and sessions outlast it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tpufleet.host import accounts_closing, accounts_system, clock, locks, people, seats
from tpufleet.host.daemons import LIBRARY
from tpufleet.host.errors import HostError
from tpufleet.host.files import JsonObject
from tpufleet.host.people import Known
from tpufleet.host.places import Places

LOOK_S = 1.0  # at the clock, which may be set, and at what is written down, which may change
AFTER_TROUBLE_S = 5.0


def start(places: Places, known: Known) -> None:
    """Sees to it that the process lives, if anybody's time will be over."""
    if not accounts_closing.ends(known):
        return
    lock = locks.try_lock(places.expiry_lock)
    if lock is None:
        return
    try:
        with places.accounts_log.open("ab") as log:
            subprocess.Popen(
                [sys.executable, "-ES", str(LIBRARY), "expire", str(lock)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[lock],
                cwd="/",
            )
    finally:
        os.close(lock)


def expire(places: Places, lock: int) -> None:
    """The process's life; `lock` is inherited."""
    held: int | None = lock if locks.lock_again(lock) else None
    while held is not None:
        while (known := people.read(places)) is not None and (found := accounts_closing.ends(known)):
            left = min(clock.seconds(person.expires or "") for person in found) - time.time()
            time.sleep(min(max(left, 0.0), LOOK_S))
            if left <= 0 and not _close(places):
                time.sleep(AFTER_TROUBLE_S)
        os.close(held)
        known = people.read(places)  # somebody may have come while we still held the lock
        held = locks.try_lock(places.expiry_lock) if known is not None and accounts_closing.ends(known) else None


def keep(places: Places, _request: JsonObject) -> JsonObject:
    """The verb `keep`, for root at boot: seats are their owners' again, and whose time went by meanwhile is out."""
    accounts_system.require_root(places)
    with locks.locked(places.accounts_lock):
        seats.enforce_again(places, accounts_system.operator(places))
        known = accounts_closing.close_who_is_over(places)
        if known is not None:
            start(places, known)
    return {"kept": known is not None}


def _close(places: Places) -> bool:
    """Whether it could be done."""
    try:
        with locks.locked(places.accounts_lock):
            accounts_closing.close_who_is_over(places)
    except (HostError, OSError) as error:
        print(f"{clock.now()} {error}", flush=True)
        return False
    return True
