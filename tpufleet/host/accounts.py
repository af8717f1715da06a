"""The verb `accounts`, for root: this host's accounts of the fleet's people become equal to the list.

Idempotent: killed anywhere and asked again it goes on. In this order, so that what is in the way of nobody is done
first, and what is done is known to be ours at every moment:

1. who is gone from the list, or whose time is over, loses keys, account, sessions and seat (`accounts_closing`);
2. accounts are made, marked as the fleet's by useradd itself (`accounts_system`);
3. `people.json` says who is here and whose seat a chip is, so that the queue leaves these chips alone (`people`);
4. root's files, shared directories and homes are made, homes side by side (`accounts_files`, `accounts_home`);
5. devices and leases of seats are their owners' (`seats`), and somebody waits for the next end (`expiry`);
6. the code is cloned where it is wanted and isn't there (`accounts_clone`), while others may change accounts again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import time
from pathlib import Path

from tpufleet.host import (
    accounts_child,
    accounts_clone,
    accounts_closing,
    accounts_files,
    accounts_home,
    accounts_request,
    accounts_system,
    autostart,
    clock,
    expiry,
    files,
    locks,
    people,
    seats,
)
from tpufleet.host.accounts_request import Clone, Request, Visitor, Wanted
from tpufleet.host.accounts_system import Account
from tpufleet.host.errors import INTERNAL, HostError, bad
from tpufleet.host.files import JsonObject
from tpufleet.host.people import EXPIRED, HERE, REVOKED, Known, Person
from tpufleet.host.places import Places

CLONE_S = 120.0
HOME_S = 10.0
HAS_A_HOME = ("made", "kept", "changed")
SHARED_MODE = 0o2750  # what is made in it is the operator's group's as well


def accounts(places: Places, request: JsonObject) -> JsonObject:
    """Does it all, and gives an entry for everybody: those of the request, and those who are gone."""
    accounts_system.require_root(places)
    wanted = accounts_request.parse(request)
    with locks.locked(places.accounts_lock) as lock:
        this = _Round(places, wanted, lock)
        this.make_equal()
    with locks.locked(places.clones_lock):
        this.clone()
    return this.told()


class _Round:
    """One time that the accounts are made equal, under their lock."""

    def __init__(self, places: Places, request: Request, lock: int) -> None:
        self.places = places
        self.request = request
        self.lock = lock
        self.operator = accounts_system.operator(places)
        self.now = time.time()
        known = people.read(places) or Known(request.fleet, request.host, self.operator.name, {})
        if known.fleet != request.fleet:
            if any(person.is_here for person in known.people.values()):
                raise bad(f"the people on this host are those of the fleet {known.fleet}")
            known = known._replace(people={})
        hosts = [{"name": host.name, "address": host.address, "port": host.port} for host in request.hosts]
        self.known = known._replace(fleet=request.fleet, host=request.host, operator=self.operator.name, hosts=hosts)
        self.states: dict[str, str] = {}
        self.whys: dict[str, list[str]] = {}
        self.ended = 0

    def make_equal(self) -> None:
        self._close_who_is_gone()
        here = [person for person in self.request.people if not person.is_over(self.now) and self._account(person)]
        for person in here:
            self._write_down(person)
        self.known = seats.remember_devices(self.places, self.known)
        people.write(self.places, self.known)
        self.places.close_runs()
        accounts_files.write(self.places, self.known, self.request.hosts)
        self._homes(here)
        seats.enforce(self.places, self.known, self.operator)
        autostart.prepare_unit(self.places, self.operator.name)
        expiry.start(self.places, self.known)

    def clone(self) -> None:
        """Makes the clones that aren't there. They may take long, and nobody who is to be revoked waits for them."""
        real = accounts_system.is_real(self.places)
        work: list[tuple[str, accounts_child.Child]] = []
        for person in self.request.people:
            home = self.places.home(person.name)
            if person.clone is None or self.states[person.name] not in HAS_A_HOME:
                continue
            if os.path.lexists(home / person.clone.name):
                continue
            tree, settings = self._tree(person.clone), self.places.settings / "gitconfig"
            clone = functools.partial(accounts_clone.clone, home, person.clone, tree, settings, CLONE_S)
            work.append((person.name, accounts_child.start(person.uid, person.uid, clone, become=real)))
        deadline = time.monotonic() + CLONE_S
        for name, child in work:
            told = accounts_child.outcome(child, deadline)
            self._hear(name, told if "error" not in told else {"whys": [f"no clone: {told['error']}"]})

    # ------------------------------------------------------------------------------------------------ who must leave

    def _close_who_is_gone(self) -> None:
        """Those whose time is over, and those who aren't in the list any more, known by either of two marks."""
        listed = {person.name for person in self.request.people} | {entry.name for entry in self.request.refused}
        over = {person.name for person in self.request.people if person.is_over(self.now)}
        ours = {account.name for account in accounts_system.of_fleet(self.places, self.request.fleet)}
        for name in sorted(over):
            self._close(name, EXPIRED)
        for name in sorted((self.known.people.keys() | ours) - listed):
            self._close(name, REVOKED)

    def _close(self, name: str, state: str) -> None:
        self.states[name] = state
        account = accounts_system.by_name(self.places, name)
        if account is None or account.comment != accounts_system.mark(self.request.fleet):
            people_left = {other: person for other, person in self.known.people.items() if other != name}
            self.known = self.known._replace(people=people_left)
            return
        try:
            self.known, ended = accounts_closing.close(self.places, self.known, account, state, self.operator)
            self.ended += ended
        except HostError as error:
            self.whys.setdefault(name, []).append(error.message)

    # ------------------------------------------------------------------------------------------------- who is to be

    def _account(self, person: Wanted) -> bool:
        """Sees to it that there is an account; False, with the reason noted, when there can't be one."""
        try:
            self.states[person.name] = self._made_or_kept(person)
        except HostError as error:
            self._refuse(person.name, error.message)
        return self.states[person.name] != "refused"

    def _made_or_kept(self, person: Wanted) -> str:
        places, name = self.places, person.name
        account = accounts_system.by_name(places, name)
        if account is None:
            other = accounts_system.by_uid(places, person.uid)
            if other is not None:
                raise bad(f"uid {person.uid} is {other.name}'s on this host")
            group = accounts_system.group_in_the_way(places, name, person.uid)
            if group is not None:
                raise bad(f"there is a group {group} on this host, which tpufleet did not make")
            accounts_system.add(places, name, person.uid, self.request.fleet, [self.lock])
            state = "made"
        else:
            _check_whose(account, person, self.request.fleet)
            state = "kept"
        if accounts_system.is_closed(places, name):
            accounts_system.open_again(places, name)
            state = "changed"
        if account is not None and accounts_system.extra_groups(places, account):
            accounts_system.leave_groups(places, name)
            state = "changed"
        self._make_home(person)
        return state

    def _make_home(self, person: Wanted) -> None:
        """An empty home that is theirs. /home is root's, so nobody can put something in its place meanwhile."""
        home, real = self.places.home(person.name), accounts_system.is_real(self.places)
        home.parent.mkdir(mode=0o755, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            home.mkdir(mode=0o700)
        status = home.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise bad(f"{home} is no directory")
        if real and status.st_uid != person.uid:
            if status.st_uid or any(home.iterdir()):
                raise bad(f"{home} is there already, and belongs to somebody else")
            os.chown(home, person.uid, person.uid, follow_symlinks=False)

    def _write_down(self, wanted: Wanted) -> None:
        before = self.known.people.get(wanted.name)
        stays = before is not None and before.is_here and before.seat == wanted.seat
        since = before.since if before is not None and stays else clock.rfc3339(self.now)
        person = Person(wanted.name, wanted.uid, wanted.seat, since, HERE, wanted.expires, wanted.share)
        if before is not None and before != person and self.states[wanted.name] == "kept":
            self.states[wanted.name] = "changed"
        self.known = self.known.with_person(person)

    def _refuse(self, name: str, why: str) -> None:
        self.states[name] = "refused"
        self.whys[name] = [why]

    # --------------------------------------------------------------------------------------------------- their homes

    def _homes(self, here: list[Wanted]) -> None:
        """All side by side. Each is done by its owner, who may keep it from getting done, but nobody else's."""
        real = accounts_system.is_real(self.places)
        work: list[tuple[Wanted, accounts_child.Child]] = []
        for person in here:
            try:
                wishes = self._wishes(person)
            except OSError as error:
                self._refuse(person.name, f"{error.filename}: {error.strerror}")
                continue
            home, uid = self.places.home(person.name), person.uid if real else os.getuid()
            set_up = functools.partial(accounts_home.set_up, home, uid, wishes)
            work.append((person, accounts_child.start(person.uid, person.uid, set_up, become=real)))
        deadline = time.monotonic() + HOME_S
        for person, child in work:
            self._hear(person.name, accounts_child.outcome(child, deadline))

    def _hear(self, name: str, told: JsonObject) -> None:
        if "error" in told:
            self._refuse(name, str(told["error"])[:500])
            return
        self.whys.setdefault(name, []).extend(files.as_texts(told.get("whys")) or [])
        if told.get("changed") and self.states[name] == "kept":
            self.states[name] = "changed"

    def _wishes(self, person: Wanted) -> accounts_home.Wishes:
        return accounts_home.Wishes(
            keys=_authorized_keys(person, self.request.visitor),
            settings=self.places.settings,
            skeleton=self.places.root / "etc/skel",
            shared=self._shared(person),
            share=person.share,
        )

    def _shared(self, person: Wanted) -> Path:
        """Where the operator may read the person's runs, if they have agreed; it is closed to everybody else."""
        shared = self.places.shared / person.name
        if person.share:
            self.places.shared.mkdir(mode=0o755, exist_ok=True)
            shared.mkdir(mode=0o700, exist_ok=True)
            if accounts_system.is_real(self.places):
                os.chown(shared, person.uid, self.operator.gid, follow_symlinks=False)
            shared.chmod(SHARED_MODE)
        elif shared.is_dir():
            shared.chmod(0o700)
        return shared

    def _tree(self, clone: Clone) -> Path | None:
        """The operator's checkout of the same repository, if there is one."""
        if clone.mirror is None:
            return None
        at = self.places.repo(clone.mirror)
        current = files.read_json(at.current) or {}
        commit = current.get("commit")
        tree = at.tree(commit) if isinstance(commit, str) else None
        return tree if tree is not None and tree.is_dir() else None

    # ------------------------------------------------------------------------------------------------ what came of it

    def told(self) -> JsonObject:
        """The verb's answer."""
        told = [self._entry(person.name, person.uid) for person in self.request.people]
        told += [
            {"name": entry.name, "uid": entry.uid, "state": "refused", "why": entry.why}
            for entry in self.request.refused
        ]
        gone = sorted(self.states.keys() - {person.name for person in self.request.people})
        uids = {name: person.uid for name, person in self.known.people.items()}
        told += [self._entry(name, uids.get(name)) for name in gone]
        return {"accounts": told, "sessions_ended": self.ended}

    def _entry(self, name: str, uid: int | None) -> JsonObject:
        why = "; ".join(self.whys.get(name, [])) or None
        return {"name": name, "uid": uid, "state": self.states[name], "why": why}


def _check_whose(account: Account, person: Wanted, fleet: str) -> None:
    """Raises HostError unless the account is the fleet's, and the person's."""
    if account.comment != accounts_system.mark(fleet):
        whose = account.comment.partition(" ")
        if whose[0] == "tpufleet" and whose[2]:
            raise bad(f"the account {person.name} on this host is of the fleet {whose[2][:40]}")
        raise bad(f"there is an account {person.name} on this host that tpufleet did not make")
    if account.uid != person.uid:
        raise HostError(INTERNAL, f"the account {person.name} has uid {account.uid} here, and {person.uid} is wanted")


def _authorized_keys(person: Wanted, visitor: Visitor | None) -> str:
    """The person's key, and the visitor's while there is one, each until its time is over."""
    until = None if person.expires is None else clock.seconds(person.expires)
    lines = [_key_line(person.key, until)]
    if visitor is not None:
        ends = visitor.until if until is None else min(until, visitor.until)
        lines.append(_key_line(visitor.key, ends))
    return "".join(lines)


def _key_line(key: str, until: float | None) -> str:
    """sshd(8), AUTHORIZED_KEYS: without the Z that OpenSSH 9.1 brought it is the host's local time."""
    if until is None:
        return f"{key}\n"
    return f'expiry-time="{time.strftime("%Y%m%d%H%M%S", time.localtime(until))}" {key}\n'
