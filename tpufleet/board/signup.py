"""Pure: who may sign up. Invitations, how often one may try, what a form says, and what becomes of it."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from tpufleet.config.people import misfits
from tpufleet.model import Person
from tpufleet.names import PersonName, UserName
from tpufleet.personkey import parse_person_key, refuse_private
from tpufleet.publickey import PublicKeyLine

LETTERS = "ABCDEFGHJKMNPQRTUVWXYZ2346789"  # read aloud and from a projector: none that looks like another
MOST = 200  # sign-ups that are kept; more than that are no evening
LINKS = 8  # to one card, from a phone and a laptop, say


def new_code() -> str:
    """An invitation code such as `KX7M-W2QD`: 38 bits, of which a guesser sees a few hundred an hour."""
    return "-".join("".join(secrets.choice(LETTERS) for _ in range(4)) for _ in range(2))


def plain(code: str) -> str:
    """A code as it is compared: however it was typed."""
    return re.sub(r"[^A-Z0-9]", "", code.upper())


def new_token() -> str:
    """A secret for a link: 192 bits."""
    return secrets.token_urlsafe(24)


def digest(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def same(one: str, other: str) -> bool:
    """Whether two secrets are equal, in a time that doesn't tell where they differ."""
    return hmac.compare_digest(one.encode(errors="replace"), other.encode(errors="replace"))


@dataclass(frozen=True)
class Invitation:
    """The code that lets people sign up, until then."""

    code: str
    until: datetime

    def refusal(self, typed: str, now: datetime) -> str | None:
        """Why `typed` doesn't let anybody in, if so."""
        if not same(plain(typed), plain(self.code)):
            return "this is not the invitation code: ask who invited you"
        return None if now < self.until else "this invitation is over: ask who invited you"


class State(StrEnum):
    """What became of a sign-up: it waits for the host's word; is to be put in the list, or was (and may have been
    taken out again since); or the host of the evening has refused it."""

    WAITING = "waiting"
    WELCOME = "welcome"
    LISTED = "listed"
    REFUSED = "refused"


@dataclass(frozen=True)
class SignUp:
    """Somebody who wants to come. `links` are digests of the tokens in the links to their card.

    `returns`: they were taken out of the list, and get their name back if the host of the evening says so.
    """

    name: UserName
    key: PublicKeyLine
    share: bool
    since: datetime
    state: State
    links: tuple[str, ...] = ()
    returns: bool = False

    @property
    def person(self) -> Person:
        return Person(self.name, self.key, share=self.share)

    def with_link(self, token: str) -> SignUp:
        """With one more link. The first stays, so that nobody who knows name and key can use it up."""
        links = (*self.links, digest(token))
        return replace(self, links=links if len(links) <= LINKS else (links[0], *links[2:]))

    def opened_by(self, token: str) -> bool:
        return digest(token) in self.links


@dataclass(frozen=True)
class Form:
    """What was typed. Whatever was sent as the key may be a secret, so it is never shown."""

    code: str = ""
    name: str = ""
    key: str = field(default="", repr=False)
    share: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Form:
        return cls(fields.get("code", ""), fields.get("name", ""), fields.get("key", ""), "share" in fields)

    def read(self) -> tuple[PersonName | None, PublicKeyLine | None, dict[str, str]]:
        """The name and the key, where they are sound, and what is wrong, by field."""
        wrong: dict[str, str] = {}
        name = key = None
        try:
            refuse_private(self.code)
        except ValueError as error:
            wrong["code"] = str(error)
        try:
            refuse_private(self.name)
            name = PersonName(self.name)
        except ValueError as error:
            wrong["name"] = str(error) if self.name else "a name is missing: the one that your account is to have"
        try:
            key = parse_person_key(self.key)
        except ValueError as error:
            wrong["key"] = str(error)
        return name, key, wrong


@dataclass(frozen=True)
class Room:
    """Who is there already: the list of people, who signed up, and names that were somebody's before.

    A name that was taken out of the list leads to a home with that person's files: only the host of the evening gives
    it to anybody again.
    """

    persons: Sequence[Person]
    operator: str
    former: Collection[str] = ()
    signed_up: Sequence[SignUp] = ()

    def listed(self, name: str) -> Person | None:
        return next((person for person in self.persons if person.name == name), None)

    def signed(self, name: str) -> SignUp | None:
        return next((sign_up for sign_up in self.signed_up if sign_up.name == name), None)

    def coming(self) -> list[SignUp]:
        """Those who are to be in the list soon, or may be."""
        return [
            sign_up
            for sign_up in self.signed_up
            if sign_up.state in (State.WAITING, State.WELCOME) and not self.listed(sign_up.name)
        ]

    def knows(self, name: str, key: PublicKeyLine) -> bool:
        """Whether somebody of this name and this key is there already, or was refused."""
        return any(there is not None and there.key == key for there in (self.listed(name), self.signed(name)))

    def refusal(self, name: UserName, key: PublicKeyLine) -> dict[str, str]:
        """Why somebody new can't come by this name and this key, by field; nobody else's name is told."""
        coming = self.coming()
        if self.listed(name) or any(sign_up.name == name for sign_up in coming):
            return {"name": "this name is taken: choose another, or send the key that you signed up with"}
        if name in self.former:
            return {"name": "this name was somebody's before: choose another, or ask who invited you"}
        if len(self.signed_up) >= MOST:
            return {"": "too many people have signed up here: ask who invited you"}
        persons = [*self.persons, *(sign_up.person for sign_up in coming), Person(name, key)]
        for finding in misfits(persons, self.operator):
            if finding.path[-1] == "key":
                return {"key": "this key is somebody else's: each person has a key of their own"}
            return {"name": "this name is another account's, or looks like it: choose another"}
        return {}


# --------------------------------------------------------------------------------------------------- how often one may


@dataclass
class Throttle:
    """How many tries in `window_s` seconds one address has, and all of them together."""

    each: int
    everybody: int
    window_s: float
    _times: dict[str, deque[float]] = field(default_factory=dict[str, "deque[float]"])
    _all: deque[float] = field(default_factory=deque[float])

    def wait(self, address: str, now: float) -> float:
        """Seconds until `address` may try again; 0 when it may now."""
        self._forget(now)
        times = self._times.get(origin(address), ())
        ends = [queue[-most] for queue, most in ((times, self.each), (self._all, self.everybody)) if len(queue) >= most]
        return max((end + self.window_s - now for end in ends), default=0.0)

    def count(self, address: str, now: float) -> None:
        """A try of `address`."""
        self._forget(now)
        self._times.setdefault(origin(address), deque()).append(now)
        self._all.append(now)

    def _forget(self, now: float) -> None:
        for times in (self._all, *self._times.values()):
            while times and times[0] <= now - self.window_s:
                times.popleft()
        self._times = {address: times for address, times in self._times.items() if times}


def origin(address: str) -> str:
    """What counts as one address: of IPv6 the /64 that a single household has."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
