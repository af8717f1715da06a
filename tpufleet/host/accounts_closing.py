"""The end of a person's account on this host: key, account, sessions, seat, in this order. The home stays.

What is written down changes last, so that whoever comes after a kill does all of it again.
"""

from __future__ import annotations

import os
import time

from tpufleet.host import accounts_child, accounts_home, accounts_system, clock, people, seats
from tpufleet.host.accounts_system import Account
from tpufleet.host.people import EXPIRED, Known, Person
from tpufleet.host.places import Places

KEYS_S = 1.0  # a person may hold up what is done in their home; the account is closed all the same


def close(places: Places, known: Known, account: Account, state: str, operator: Account) -> tuple[Known, int]:
    """Closes the account; gives what is known then, and 1 if something of theirs ran. Raises HostError."""
    before = known.people.get(account.name)
    since = clock.now() if before is None else before.since
    expires, share = (None, False) if before is None else (before.expires, before.share)
    if before is None or before.state != state or not accounts_system.is_closed(places, account.name):
        _take_keys_out(places, account)
        accounts_system.close(places, account.name)
        ended = accounts_system.end_everything(places, account)
        _take_keys_out(places, account)  # whoever was in could have put them back
    else:
        ended = accounts_system.end_everything(places, account)  # what somebody else has started in their name since
    left = Person(account.name, account.uid, (), since, state, expires, share)
    known = known.with_person(left)
    seats.enforce(places, known, operator)
    people.write(places, known)
    return known, int(ended)


def close_who_is_over(places: Places) -> Known | None:
    """Closes the accounts whose time is over by this host's clock; gives what is known then."""
    known = people.read(places)
    if known is None:
        return None
    for person in ends(known):
        if clock.seconds(person.expires or "") > time.time():
            continue
        account = accounts_system.by_name(places, person.name)
        if account is not None and account.comment == accounts_system.mark(known.fleet):
            known, _ = close(places, known, account, EXPIRED, accounts_system.operator(places))
    return known


def ends(known: Known) -> list[Person]:
    """Who is here until a time."""
    return [person for person in known.people.values() if person.is_here and person.expires is not None]


def _take_keys_out(places: Places, account: Account) -> None:
    real = accounts_system.is_real(places)
    home, uid = places.home(account.name), account.uid if real else os.getuid()
    child = accounts_child.start(account.uid, account.gid, lambda: accounts_home.take_keys_out(home, uid), become=real)
    accounts_child.outcome(child, time.monotonic() + KEYS_S)
