"""A board over a fleet that there isn't: the real server, pages and threads, and a desk that does as it is told."""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.unit.hostile_people import ed25519
from tpufleet.board.admission import Admission
from tpufleet.board.app import Board
from tpufleet.board.book import Book
from tpufleet.board.desk import Admitted, Listed
from tpufleet.board.look import Look
from tpufleet.board.opening import door, invitation
from tpufleet.board.poll import Poll
from tpufleet.board.reception import Reception
from tpufleet.board.records import Points
from tpufleet.board.scene import Scene
from tpufleet.board.serve import listen, serving
from tpufleet.cards import Card
from tpufleet.errors import TpufleetError
from tpufleet.model import Person
from tpufleet.names import FleetName, Seat
from tpufleet.personkey import parse_person_key

CODE = "KX7M-W2QD"
FORM = "application/x-www-form-urlencoded"


@dataclass
class Desk:
    """The list of people, and hosts that make an account and a card at once, unless they are told to be in `trouble`.

    `gate` holds up a round of the hosts while it is closed. `points` are told by the next look, and no other.
    """

    fleet: str = "sherlock"
    persons: list[Person] = field(default_factory=list[Person])
    former: set[str] = field(default_factory=set[str])
    returned: set[str] = field(default_factory=set[str])
    rounds: list[list[str]] = field(default_factory=list[list[str]])
    trouble: TpufleetError | None = None
    unreadable: TpufleetError | None = None
    seen: Scene = field(default_factory=Scene)
    points: list[Points] = field(default_factory=list[Points])
    logs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    logs_read: list[str] = field(default_factory=list[str])
    looks: int = 0
    rests: int = 0
    gate: threading.Event = field(default_factory=threading.Event)
    moved: dict[str, Seat] = field(default_factory=dict[str, Seat])

    def __post_init__(self) -> None:
        self.gate.set()

    def have(self, name: str, number: int, **fields: Any) -> None:
        self.persons.append(Person(FleetName(name), parse_person_key(ed25519(number)), **fields))

    def seats(self) -> dict[str, Seat]:
        seats = {str(person.name): Seat(f"tpu-{n // 4}-w0:{n % 4}") for n, person in enumerate(self.persons)}
        return seats | self.moved

    def listed(self) -> Listed:
        if self.unreadable:
            raise self.unreadable
        return Listed(tuple(self.persons), "tpufleet", self.former, self.seats())

    def enlist(self, persons: Sequence[Person], returning: Collection[str]) -> Mapping[str, str]:
        self.returned |= set(returning)
        self.persons += [person for person in persons if person not in self.persons]
        return {}

    def admit(self, names: Collection[str]) -> Admitted:
        assert self.gate.wait(30)
        self.rounds.append(sorted(names))
        if self.trouble:
            raise self.trouble
        return Admitted({name: self.card(name) for name in names if name in self.seats()})

    def card(self, name: str) -> Card:
        seat = self.seats()[name]
        repo = "https://github.com/someone/gpt.git"
        return Card(
            FleetName(self.fleet),
            FleetName(name),
            seat,
            "127.77.0.1",
            2222,
            "a-w0",
            "SHA256:" + "x" * 43,
            repo=repo,
            clone="gpt",
        )

    def look(self) -> Look:
        self.looks += 1
        if self.trouble:
            raise self.trouble
        points, self.points = self.points, []
        return Look(self.seen, points)

    def log(self, run: str, size: int) -> bytes | None:
        self.logs_read.append(run)
        if self.trouble:
            raise self.trouble
        log = self.logs.get(run)
        return None if log is None else log[-size:]

    def rest(self) -> None:
        self.rests += 1


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def token(self) -> str:
        """The one in the link to a card that a form leads to."""
        assert self.status == 303, self.text
        return self.headers["location"].removeprefix("/card/")


class Site:
    """The board as a browser without JavaScript sees it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookies: dict[str, str] = {}

    def ask(self, method: str, path: str, body: bytes | str | None = None, **headers: str) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            sent.setdefault("cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()))
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        for name, value in answer.getheaders():
            if name.lower() == "set-cookie":
                cookie, _, rest = value.partition("=")
                self.cookies[cookie] = rest.partition(";")[0]
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, text)

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, fields: Sequence[tuple[str, str]], **headers: str) -> Answer:
        body = urlencode(fields, errors="surrogatepass")
        origin = {"origin": f"http://127.0.0.1:{self.port}"}
        return self.ask("POST", path, body, **{"content-type": FORM, **origin, **headers})

    def join(self, name: str, key: str, *, code: str = CODE, share: bool = False, **headers: str) -> Answer:
        fields = [("code", code), ("name", name), ("key", key), *([("share", "yes")] if share else [])]
        return self.post("/join", fields, **headers)


@dataclass
class Open:
    """An open board, and what stands behind it."""

    site: Site
    desk: Desk
    book: Book
    said: list[str]
    host: str  # the path that lets the host in
    viewer: str | None
    times: Times
    poll: Poll

    def as_host(self) -> Site:
        site = Site(self.site.port)
        assert site.get(self.host).status == 200
        return site


@dataclass
class Times:
    """Clocks that tests turn."""

    ticks: float = 0.0
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def step(self, seconds: float) -> None:
        self.ticks += seconds
        self.now += timedelta(seconds=seconds)


@contextlib.contextmanager
def board(
    directory: Path, desk: Desk | None = None, *, approve: bool = False, accept: bool = True, url: str | None = None
) -> Generator[Open]:
    """An open board that keeps its book in `directory`."""
    desk = desk or Desk()
    book = Book(directory / "signups.json")
    if accept:
        book.invite(invitation(book.invitation, CODE, 3600))
    said: list[str] = []
    times = Times()
    ended = threading.Event()
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listen("127.0.0.1", 0))
        admission = Admission(book, desk, said.append, ended.set)
        reception = Reception(
            book,
            desk,
            admission,
            said.append,
            accept=accept,
            approve=approve,
            clock=lambda: times.ticks,
            now=lambda: times.now,
        )
        poll = Poll(desk, ended.set, every_s=0.05)
        entrance = door("127.0.0.1", listening.getsockname()[:2], url, book.viewer)
        for worker in (admission, poll):
            worker.start()
            stack.callback(worker.close)
        stack.enter_context(
            serving(Board(desk.fleet, reception, poll, entrance).app(), listening, ended, poll.feed.close)
        )
        site = Site(listening.getsockname()[1])
        _await_server(site)
        yield Open(site, desk, book, said, urlsplit(entrance.hosts_page).path, entrance.viewer, times, poll)
        assert not ended.is_set(), "a part of the board ended by itself"


def _await_server(site: Site) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            site.get("/icon.svg")
        except ConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        else:
            return


def words_of(page: str) -> str:
    """What a page says, without its markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))
