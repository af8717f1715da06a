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
from tpufleet.board.look import LONGEST, host_of, shown, told
from tpufleet.board.poll import INTEREST_S, Poll
from tpufleet.board.scene import Chip, HostChips, Piece, Scene
from tpufleet.board.writings import MOST_PIECES, Writings
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


def pieces_of(answer: dict[str, Any], sharing: set[str]) -> list[Piece]:
    return [piece for one in shown("tpu-0-w0", answer, sharing, {}) for piece in one.pieces]


def test_seats_are_shown_with_who_is_on_the_chip_now() -> None:
    seating = Seating({"ada": Seat("tpu-0-w0:0"), "grace": Seat("tpu-1-w0")}, {})
    began = datetime(2026, 11, 21, 18, tzinfo=UTC)
    busy = [{"index": 0, "state": "busy", "user": "bob"}, {"index": 1, "state": "run", "run": "gpt"}]
    first = host_of(view("tpu-0-w0", busy), seating, {"tpu-0-w0:1": began})
    assert first.chips[0] == Chip("tpu-0-w0:0", "in use", "ada", "bob")
    assert first.chips[1] == Chip("tpu-0-w0:1", "run", None, "gpt", run="gpt", since=began)
    theirs = [{"index": 0, "state": "free"}, {"index": 1, "state": "person", "person": "grace"}]
    second = host_of(view("tpu-1-w0", theirs), seating, {"tpu-1-w0:0": began})
    assert second.chips == (Chip("tpu-1-w0:0", "free", "grace"), Chip("tpu-1-w0:1", "in use", "grace"))
    down = host_of(view("tpu-2-w0", None, error="no answer\x1b"), seating, {})
    assert down == HostChips("tpu-2-w0", problem="no answer\u241b")


def test_what_a_chip_does_is_shown_where_it_makes_sense() -> None:
    usage = {"hbm_used": 3 << 30, "hbm_total": 16 << 30, "duty_pct": 87.5}
    nonsense = {"hbm_used": -1, "hbm_total": "much", "duty_pct": 1e9}
    chips = [{"index": n, "state": "run", "run": "gpt", **told} for n, told in enumerate((usage, nonsense))]
    good, bad = host_of(view("tpu-0-w0", chips), Seating(), {}).chips
    assert (good.hbm_used, good.hbm_total, good.duty) == (3 << 30, 16 << 30, 87.5)
    assert (bad.hbm_used, bad.hbm_total, bad.duty) == (None, None, None)


def test_only_those_who_agreed_are_read() -> None:
    answer = {"runs": [run("ada", "ada-1", "ElOne", "Two"), run("bob", "bob-1", "private")]}
    found = pieces_of(answer, {"ada", "eve"})
    assert [(piece.person, piece.step, piece.text) for piece in found] == [("ada", 0, "One"), ("ada", 1, "Two")]


@pytest.mark.parametrize(
    ("told", "on_chip", "state"),
    [
        ({"ended": None}, "ada", "running"),
        ({"ended": None}, "bob", "stopped"),
        ({"ended": "2026-11-21T19:00:00Z", "exit_code": 0}, "None", "done"),
        ({"ended": "2026-11-21T19:00:00Z", "exit_code": 1}, "ada", "failed"),
    ],
)
def test_a_persons_run_is_what_its_chip_and_its_end_say(told: dict[str, Any], on_chip: str, state: str) -> None:
    answer = {"runs": [run("ada", "ada-1", chip=2, **told)]}
    (one,) = shown("tpu-0-w0", answer, {"ada"}, {"tpu-0-w0:2": on_chip})
    assert (one.row.state, one.row.chips) == (state, ("tpu-0-w0:2",))


def test_a_persons_curves_are_points_in_the_order_of_their_steps() -> None:
    curves = {"loss": [[1, 5], [3.0, 2.0]], "lr": [[5], [0.1]], "steps": [[1], [9]], "bad": [[1]], "worse": 7}
    (one,) = shown("tpu-0-w0", {"runs": [run("ada", "ada-1", curves=curves)]}, {"ada"}, {})
    assert one.points == ((1, {"loss": 3.0}), (5, {"loss": 2.0, "lr": 0.1}))


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
    assert pieces_of(answer, {"ada"}) == []


STATE = {
    "id": "gpt-lr0.1",
    "job": "gpt",
    "params": {"lr": 0.1},
    "state": "running",
    "chips": ["tpu-0-w0:1"],
    "step": 20,
    "metrics": {"test_loss": 2.5, "steps": 100, "lr": None},
    "attempts": [{"n": 1, "chips": ["tpu-0-w0:1"], "started": "2026-11-21T18:00:00Z", "ended": None}],
    "submitted": "2026-11-21T17:59:00Z",
}


def test_a_run_is_shown_as_its_host_tells_it() -> None:
    known = told(STATE)
    assert known
    assert (known.row.id, known.row.job, known.row.state, known.row.step) == ("gpt-lr0.1", "gpt", "running", 20)
    assert known.row.metrics == (("test_loss", 2.5),), "how many steps there will be is no measurement"
    assert known.row.params == (("lr", "0.1"),)
    assert known.row.started == datetime(2026, 11, 21, 18, tzinfo=UTC)
    assert known.of == 100


@pytest.mark.parametrize(
    "made_up",
    [
        {"id": "../etc"},
        {"id": ["gpt"]},
        {"id": None},
        {"state": "flying"},
        {"state": ["running"]},
    ],
)
def test_what_is_no_run_is_passed_over(made_up: dict[str, Any]) -> None:
    assert told(STATE | made_up) is None


def test_fields_of_another_kind_are_left_out() -> None:
    nonsense: dict[str, Any] = {key: {"a": [1]} for key in STATE} | {"id": "gpt", "state": "done"}
    known = told(nonsense)
    assert known
    assert (known.row.step, known.row.chips, known.row.metrics, known.attempts) == (None, (), (), ())


@pytest.mark.parametrize(
    "number", [pytest.param(10**5000, id="endless"), 2**53 + 1, -1, True, 1.5, math.inf, math.nan, "1"]
)
def test_what_counts_nothing_is_dropped(number: object) -> None:
    answer = {"runs": [{**run("ada", "ada-1"), "completions": [{"step": number, "text": "x"}]}]}
    pieces = pieces_of(answer, {"ada"})
    assert [piece.step for piece in pieces] == [None]
    host = host_of(view("tpu-0-w0", [{"index": number}, {"index": 0, "state": "free"}]), Seating(), {})
    assert [chip.name for chip in host.chips] == ["tpu-0-w0:0"]
    known = told(STATE | {"step": number, "metrics": {"loss": number, "steps": number}})
    assert known
    assert known.row.step is None
    board_page("sherlock", Scene(hosts=(host,), pieces=tuple(pieces), runs=(known.row,)))


def test_a_host_cant_fill_the_page() -> None:
    endless = run("ada", "ada-1", *["x" * 10 * LONGEST] * 500, started="9" * 10_000)
    found = pieces_of({"runs": [endless]}, {"ada"})
    assert all(len(piece.text) <= LONGEST and len(piece.started) <= 32 for piece in found)
    writings = Writings()
    others = [replace(piece, run=f"ada-{n}") for n in range(100) for piece in found]
    assert len(writings.pieces([], [*found, *others])) == MOST_PIECES
    known = told(
        STATE | {"why": "x" * 10_000, "metrics": {f"m{n}": 1 for n in range(1000)}, "params": {"p": "y" * 10_000}}
    )
    assert known
    assert len(known.row.metrics) < 20
    assert len(known.row.why or "") <= 400
    assert len(known.row.params[0][1]) <= 400


def test_the_newest_that_arrives_comes_first_and_no_run_takes_all_the_room() -> None:
    writings = Writings()
    first = [Piece(None, "gpt", step, "", f"text {step}") for step in range(20)]
    writings.add("gpt", first)
    assert [piece.step for piece in writings.pieces(["gpt"], [])] == [19, 18, 17, 16, 15]
    hers = Piece("ada", "ada-1", 1, "", "hello")
    assert writings.pieces(["gpt"], [hers])[0] == hers
    writings.add("gpt", [Piece(None, "gpt", 20, "", "new")])
    assert [piece.step for piece in writings.pieces(["gpt"], [hers])] == [20, 1, 19, 18, 17, 16]
    writings.add("gpt", [Piece(None, "gpt", 3, "", "again")], anew=True)
    assert [piece.step for piece in writings.pieces(["gpt"], [])] == [3], "hers is shown no more"
    assert writings.pieces([], []) == ()


def test_whatever_models_people_and_hosts_write_is_text(tmp_path: Path) -> None:
    hosts = (HostChips("tpu-0-w0", (Chip("tpu-0-w0:0", "in use", NASTY, NASTY),)), HostChips("b", problem=NASTY))
    pieces = (Piece("ada", "ada-1", 5, NASTY, NASTY),)
    desk = Desk(seen=Scene(datetime.now(UTC), hosts, (NASTY,), pieces=pieces, problem=NASTY))
    with board(tmp_path, desk) as opened:
        page = until(lambda: text if "alert(1)" in (text := opened.site.get("/").text) else None, "the look")
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 6
    assert not set(page) & set("\x1b\u202e\0")


def test_who_looks_again_is_told_that_nothing_is_new(tmp_path: Path) -> None:
    desk = Desk(seen=Scene(datetime(2026, 1, 1, tzinfo=UTC), (HostChips("tpu-0-w0"),)))
    with board(tmp_path, desk) as opened:
        until(lambda: "tpu-0-w0" in opened.site.get("/").text, "the look")
        tag = opened.site.get("/").headers["etag"]
        again = opened.site.get("/", if_none_match=tag)
        assert (again.status, again.text) == (304, "")
        desk.seen = Scene(datetime(2026, 1, 1, tzinfo=UTC), (HostChips("tpu-1-w0"),))
        until(lambda: opened.site.get("/", if_none_match=tag).status == 200, "what is new")


def test_what_was_seen_stays_while_nothing_newer_is_to_be_had(tmp_path: Path) -> None:
    desk = Desk(seen=Scene(datetime.now(UTC), (HostChips("tpu-0-w0"),)))
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
    desk = Desk(seen=Scene(datetime.now(UTC), (HostChips("tpu-0-w0"),)))
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
