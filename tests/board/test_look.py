"""The board's own page: what hosts say is shown as text, to those who may look, and asked for only while they do."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.board.rig import Desk, Site, board, words_of
from tests.project import until
from tpufleet.board.board_page import board_page
from tpufleet.board.look import LONGEST, MOST_PIECES, Chip, HostChips, Look, Piece, look_of, pieces_of
from tpufleet.board.poll import INTEREST_S, Poll
from tpufleet.errors import Unreachable
from tpufleet.model import Host, HostView
from tpufleet.names import HostName, NodeName, Seat
from tpufleet.people import Seating

NASTY = "<script>alert(1)</script>\x1b[2J\u202eevil\0</blockquote>"


def view(name: str, chips: list[dict[str, Any]] | None, error: str | None = None) -> HostView:
    host = Host(HostName(name), NodeName(name[:-3]), "z", 0, "127.0.0.1", 22, "id-w0")
    return HostView(host, probe=None if chips is None else {"chips": chips, "runs": []}, error=error)


def run(person: str, name: str, *texts: str, **fields: Any) -> dict[str, Any]:
    completions = [{"step": step, "prompt": "El", "text": text} for step, text in enumerate(texts)]
    return {"person": person, "run": name, "started": "2026-11-21T18:00:00Z", "completions": completions, **fields}


def test_seats_are_shown_with_who_is_on_the_chip_now() -> None:
    seating = Seating({"ada": Seat("tpu-0-w0:0"), "grace": Seat("tpu-1-w0")}, {"zoe": "every chip has its person"})
    look = look_of(
        [
            view("tpu-1-w0", [{"index": 0, "state": "free"}, {"index": 1, "state": "person", "person": "grace"}]),
            view(
                "tpu-0-w0", [{"index": 0, "state": "busy", "user": "bob"}, {"index": 1, "state": "run", "run": "gpt"}]
            ),
            view("tpu-2-w0", None, error="no answer"),
        ],
        [],
        seating,
        set(),
    )
    first, second, third = look.hosts
    assert first.chips == (Chip("tpu-0-w0:0", "in use", "ada", "bob"), Chip("tpu-0-w0:1", "run", None, "gpt"))
    assert second.chips == (Chip("tpu-1-w0:0", "free", "grace"), Chip("tpu-1-w0:1", "in use", "grace"))
    assert third == HostChips("tpu-2-w0", problem="no answer")
    assert look.standing == ("zoe",)


def test_only_those_who_agreed_are_read_and_the_newest_comes_first() -> None:
    answers = [
        {"runs": [run("ada", "ada-1", "ElOne", "Two"), run("bob", "bob-1", "private")]},
        {"runs": [run("eve", "eve-1", "later", started="2026-11-21T19:00:00Z")]},
    ]
    found = pieces_of(answers, {"ada", "eve"})
    assert [(piece.person, piece.step, piece.text) for piece in found] == [
        ("eve", 0, "later"),
        ("ada", 1, "Two"),
        ("ada", 0, "One"),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"runs": None},
        {"runs": {"a": 1}},
        {"runs": [1, None, "x", [], {}]},
        {"runs": [run("ada", "../../etc", "x")]},
        {"runs": [run("ada", "x" * 200, "x")]},
        {"runs": [{"person": ["ada"], "run": 5, "completions": 7}]},
        {"runs": [{"person": "ada", "run": "ada-1", "completions": [1, {"text": 5}, {"text": None}]}]},
    ],
)
def test_what_a_host_makes_up_is_passed_over(answer: dict[str, Any]) -> None:
    assert pieces_of([answer], {"ada"}) == ()


@pytest.mark.parametrize(
    "number", [pytest.param(10**5000, id="endless"), 2**53 + 1, -1, True, 1.5, math.inf, math.nan, "1"]
)
def test_what_counts_nothing_is_dropped(number: object) -> None:
    answer = {"runs": [{**run("ada", "ada-1"), "completions": [{"step": number, "text": "x"}]}]}
    assert [piece.step for piece in pieces_of([answer], {"ada"})] == [None]
    look = look_of([view("tpu-0-w0", [{"index": number}, {"index": 0, "state": "free"}])], [], Seating(), set())
    assert [chip.name for chip in look.hosts[0].chips] == ["tpu-0-w0:0"]
    board_page("sherlock", replace(look, pieces=pieces_of([answer], {"ada"})))


def test_a_host_cant_fill_the_page() -> None:
    endless = run("ada", "ada-1", *["x" * 10 * LONGEST] * 500, started="9" * 10_000)
    found = pieces_of([{"runs": [endless] * 20}], {"ada"})
    assert len(found) == MOST_PIECES
    assert all(len(piece.text) <= LONGEST and len(piece.started) <= 32 for piece in found)


def test_whatever_models_people_and_hosts_write_is_text(tmp_path: Path) -> None:
    hosts = (HostChips("tpu-0-w0", (Chip("tpu-0-w0:0", "in use", NASTY, NASTY),)), HostChips("b", problem=NASTY))
    pieces = (Piece("ada", "ada-1", 5, NASTY, NASTY),)
    desk = Desk(seen=Look(datetime.now(UTC), hosts, (NASTY,), pieces, NASTY))
    with board(tmp_path, desk) as opened:
        page = until(lambda: text if "alert(1)" in (text := opened.site.get("/").text) else None, "the look")
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 6
    assert not set(page) & set("\x1b\u202e\0")


def test_who_looks_again_is_told_that_nothing_is_new(tmp_path: Path) -> None:
    desk = Desk(seen=Look(datetime(2026, 1, 1, tzinfo=UTC), (HostChips("tpu-0-w0"),)))
    with board(tmp_path, desk) as opened:
        until(lambda: "tpu-0-w0" in opened.site.get("/").text, "the look")
        tag = opened.site.get("/").headers["etag"]
        again = opened.site.get("/", if_none_match=tag)
        assert (again.status, again.text) == (304, "")
        desk.seen = Look(datetime(2026, 1, 1, tzinfo=UTC), (HostChips("tpu-1-w0"),))
        until(lambda: opened.site.get("/", if_none_match=tag).status == 200, "what is new")


def test_what_was_seen_stays_while_nothing_newer_is_to_be_had(tmp_path: Path) -> None:
    desk = Desk(seen=Look(datetime.now(UTC), (HostChips("tpu-0-w0"),)))
    with board(tmp_path, desk) as opened:
        until(lambda: "tpu-0-w0" in opened.site.get("/").text, "the look")
        desk.trouble = Unreachable("the cloud is gone")
        text = until(lambda: t if "the cloud is gone" in (t := words_of(opened.site.get("/").text)) else None, "it")
        assert "tpu-0-w0" in text
        desk.trouble = None
        until(lambda: "the cloud is gone" not in opened.site.get("/").text, "the next look")


def test_the_fleet_is_looked_at_once_for_all_and_only_while_somebody_looks() -> None:
    ticks = [0.0]
    desk = Desk()
    ended = threading.Event()
    poll = Poll(desk, ended.set, every_s=0.01, clock=lambda: ticks[0])
    poll.start()
    try:
        until(lambda: desk.rests == 1, "the rest before anybody looks")
        assert desk.looks == 0
        for _ in range(200):
            poll.latest()
        until(lambda: desk.looks >= 3, "looks")
        ticks[0] += INTEREST_S + 1
        until(lambda: desk.rests >= 2, "the rest when nobody looks")
        looks = desk.looks
        assert not ended.wait(0.1)
        assert desk.looks == looks
        poll.latest()
        until(lambda: desk.looks > looks, "a new look")
    finally:
        poll.close()
    assert ended.is_set()


def test_from_elsewhere_the_board_is_seen_by_those_with_the_link(tmp_path: Path) -> None:
    desk = Desk(seen=Look(datetime.now(UTC), (HostChips("tpu-0-w0"),)))
    with board(tmp_path, desk, url="https://board.example.org") as opened:
        assert opened.viewer
        assert opened.site.get("/").status == 403
        assert opened.site.get("/view/guess").status == 404
        entering = opened.site.get(f"/view/{opened.viewer}", host="board.example.org")
        assert entering.status == 303
        cookie = entering.headers["set-cookie"].lower()
        assert all(word in cookie for word in ("httponly", "samesite=lax", "secure"))
        assert opened.site.get("/").status == 200
        assert opened.site.get("/host").status == 403, "to look is not to let people in"
        assert opened.as_host().get("/").status == 200
        viewer = opened.viewer
    with board(tmp_path, desk, url="https://board.example.org") as opened:
        assert opened.viewer == viewer, "links to the board stay good when it is started again"
        stranger = Site(opened.site.port)
        assert stranger.get("/").status == 403
