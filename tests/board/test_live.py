"""The live line: what viewers are told, once for all of them, by the real server over real connections."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.board.rig import Desk, Open, Site, board
from tests.board.viewer import Viewer
from tests.project import until
from tpufleet.board import feed, live, parts, serve
from tpufleet.board.look import Look
from tpufleet.board.records import Points
from tpufleet.board.scene import Chip, HostChips, Piece, RunRow, Scene
from tpufleet.errors import Unreachable

AT = datetime(2026, 11, 21, 18, tzinfo=UTC)
ROW = RunRow("gpt-lr0.1", "gpt", "running", step=1, params=(("lr", "0.1"),), started=AT)
SCENE = Scene(
    AT,
    (HostChips("tpu-0-w0", (Chip("tpu-0-w0:0", "free"),)),),
    runs=(ROW,),
    pieces=(Piece("ada", "ada-1", 1, "", "x"),),
)


def points(*steps: int, anew: bool = False) -> Points:
    return Points(ROW.id, [(step, {"loss": float(step)}) for step in steps], anew=anew)


@pytest.fixture
def desk() -> Desk:
    return Desk(seen=SCENE, points=[points(1, 2, 3)])


def test_who_comes_is_told_everything_and_then_what_is_new(tmp_path: Path, desk: Desk) -> None:
    with board(tmp_path, desk) as opened, Viewer(opened.site) as viewer:
        assert viewer.status == 200
        assert "text/event-stream" in viewer.head
        viewer.wait(lambda v: ROW.id in v.curves)
        assert viewer.events[0] == "all"
        assert viewer.lists["runs"] == [parts.part_id("runs", ROW)]
        assert set(viewer.parts) == {"head", *(part for order in viewer.lists.values() for part in order)}
        assert viewer.runs == {ROW.id: {"job": "gpt", "state": "running", "person": None, "params": {"lr": "0.1"}}}
        assert viewer.curves == {ROW.id: {"loss": [[1, 2, 3], [1.0, 2.0, 3.0]]}}
        desk.points = [points(4)]
        desk.seen = replace(SCENE, runs=(replace(ROW, state="done"),), pieces=())
        viewer.wait(lambda v: v.curves[ROW.id]["loss"][0][-1] == 4 and v.runs[ROW.id]["state"] == "done")
        assert viewer.lists["pieces"] == []
        assert not any(part.startswith("pieces") for part in viewer.parts)
        assert set(viewer.events[1:]) <= {"news"}


def test_a_run_that_is_gone_takes_its_curve_along(tmp_path: Path, desk: Desk) -> None:
    with board(tmp_path, desk) as opened, Viewer(opened.site) as viewer:
        viewer.wait(lambda v: ROW.id in v.curves)
        desk.seen = replace(SCENE, runs=(replace(ROW, id="another"),))
        viewer.wait(lambda v: "another" in v.runs)
        assert ROW.id not in viewer.runs
        assert ROW.id not in viewer.curves


def test_a_run_that_went_back_is_drawn_anew(tmp_path: Path, desk: Desk) -> None:
    with board(tmp_path, desk) as opened, Viewer(opened.site) as viewer, Viewer(opened.site) as early:
        viewer.wait(lambda v: ROW.id in v.curves)
        early.wait(lambda v: ROW.id in v.curves)
        desk.points = [points(2, 5)]
        viewer.wait(lambda v: v.curves[ROW.id]["loss"][0] == [1, 2, 5])
        desk.points = [points(1, anew=True)]
        viewer.wait(lambda v: v.curves[ROW.id]["loss"][0] == [1])
        early.wait(lambda v: v.version == viewer.version)
        assert early.curves == viewer.curves


def test_who_comes_back_is_told_what_was_missed_and_nothing_else(tmp_path: Path, desk: Desk) -> None:
    with board(tmp_path, desk) as opened:
        with Viewer(opened.site) as viewer:
            viewer.wait(lambda v: ROW.id in v.curves)
        for step in (10, 11, 12):
            desk.points = [points(step)]
            until(lambda: not desk.points, "the look")
        with Viewer(opened.site, last=viewer.version) as back, Viewer(opened.site) as fresh:
            fresh.wait(lambda v: 12 in v.curves.get(ROW.id, {"loss": [[]]})["loss"][0])
            back.curves = viewer.curves
            back.wait(lambda v: v.curves[ROW.id]["loss"][0][-1] == 12)
            assert back.curves == fresh.curves
            assert "all" not in back.events


@pytest.mark.parametrize("last", [0, 5, 10**17])
def test_who_comes_back_from_another_board_is_told_everything(tmp_path: Path, desk: Desk, last: int) -> None:
    with board(tmp_path, desk) as opened, Viewer(opened.site, last=last) as viewer:
        viewer.version = 0
        viewer.wait(lambda v: ROW.id in v.curves)
        assert viewer.events[0] == "all"


def test_who_missed_too_much_is_told_everything(tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "KEPT", 2)
    with board(tmp_path, desk) as opened:
        with Viewer(opened.site) as viewer:
            viewer.wait(lambda v: ROW.id in v.curves)
        for step in range(10, 20):
            desk.points = [points(step)]
            until(lambda: not desk.points, "the look")
        until(lambda: opened.poll.feed.since(viewer.version) is None, "the news that are kept no more")
        with Viewer(opened.site, last=viewer.version) as back:
            back.wait(lambda v: 19 in v.curves.get(ROW.id, {"loss": [[]]})["loss"][0])
            assert back.events[0] == "all"


class Stepped(Desk):
    """A desk that looks as often as it is told to, and no more."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.steps = threading.Semaphore(0)

    def look(self) -> Look:
        assert self.steps.acquire(timeout=30)
        return super().look()


def test_fifty_viewers_cost_what_one_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks, drawings and encodings are counted while as much happens for one viewer as for fifty."""
    counted = {"encoded": 0, "drawn": 0}

    def count(module: Any, name: str, key: str) -> None:
        original = getattr(module, name)

        def wrapper(*words: Any) -> Any:
            counted[key] += 1
            return original(*words)

        monkeypatch.setattr(module, name, wrapper)

    count(feed, "event", "encoded")
    count(parts, "draw", "drawn")

    def costs(directory: Path, viewers: int) -> dict[str, int]:
        directory.mkdir()
        desk = Stepped(seen=SCENE, points=[points(1, 2, 3)])
        with board(directory, desk) as opened, contextlib.ExitStack() as stack:
            opened.site.get("/")
            desk.steps.release()
            until(lambda: opened.poll.feed.scene.at, "the first look")
            counted.update(encoded=0, drawn=0)
            there = [stack.enter_context(Viewer(opened.site)) for _ in range(viewers)]
            for viewer in there:
                viewer.wait(lambda v: ROW.id in v.curves)
            for step in range(10, 20):
                desk.seen = replace(SCENE, runs=(replace(ROW, step=step),))
                desk.points = [points(step)]
                desk.steps.release()
                for viewer in there:
                    viewer.wait(lambda v, s=step: v.curves[ROW.id]["loss"][0][-1] == s)
            found = counted | {"looks": desk.looks}
            desk.steps.release(1000)
            return found

    assert costs(tmp_path / "one", 1) == {"looks": 11, "encoded": 11, "drawn": 10}
    assert costs(tmp_path / "fifty", 50) == {"looks": 11, "encoded": 11, "drawn": 10}


def test_a_viewer_that_takes_nothing_holds_up_nobody(tmp_path: Path, desk: Desk) -> None:
    with board(tmp_path, desk) as opened, Viewer(opened.site) as viewer:
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                slow = stack.enter_context(socket.socket())
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.connect(("127.0.0.1", opened.site.port))
                slow.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            for n in range(30):
                piece = Piece("ada", "ada-1", n, "", f"{n} " + "x" * 100_000)
                desk.seen = replace(SCENE, pieces=(piece,))
                viewer.wait(lambda v, p=piece: parts.part_id("pieces", p) in v.parts)
            assert opened.site.get("/icon.svg").status == 200
        desk.seen = replace(SCENE, standing=("zoe",))
        viewer.wait(lambda v: "zoe" in v.parts["head"])


def test_closing_the_board_ends_the_streams_at_once(
    tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "GRACE_S", 60)  # what it would take if they didn't end by themselves
    with contextlib.ExitStack() as stack:
        with board(tmp_path, desk) as opened:
            there = [stack.enter_context(Viewer(opened.site)) for _ in range(5)]
            for viewer in there:
                viewer.wait(lambda v: v.events)
        for viewer in there:
            while viewer.next():
                pass  # a whole end: no reset in the middle of an event


def test_only_so_many_look_and_who_goes_makes_room(tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_VIEWERS", 3)
    with board(tmp_path, desk) as opened, contextlib.ExitStack() as stack:
        there = [stack.enter_context(Viewer(opened.site)) for _ in range(3)]
        for viewer in there:
            viewer.wait(lambda v: v.events)
        with Viewer(opened.site) as late:
            assert late.status == 503
        assert opened.site.get("/").status == 200, "the page itself is there for all"
        there[0].close()

        def is_let_in() -> bool:
            with Viewer(opened.site) as next_one:
                return next_one.status == 200

        until(is_let_in, "room")


def test_streams_are_not_the_ones_that_make_room(tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "AT_ONCE", 20)
    monkeypatch.setattr(serve, "SPARE", 20)
    with board(tmp_path, desk) as opened, contextlib.ExitStack() as stack:
        there = [stack.enter_context(Viewer(opened.site)) for _ in range(10)]
        for viewer in there:
            viewer.wait(lambda v: ROW.id in v.curves)
        for _ in range(60):
            stack.enter_context(socket.create_connection(("127.0.0.1", opened.site.port), timeout=30))
        desk.points = [points(9)]
        for viewer in there:
            viewer.wait(lambda v: v.curves[ROW.id]["loss"][0][-1] == 9)


def test_a_quiet_line_says_that_it_lives(tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "ALIVE_S", 0.02)
    with board(tmp_path, desk) as opened, Viewer(opened.site) as viewer:
        viewer.wait(lambda v: ROW.id in v.curves)
        assert viewer._block() == "event: alive\ndata: ."


def test_the_live_line_and_logs_are_for_viewers_alone(tmp_path: Path, desk: Desk) -> None:
    desk.logs["gpt"] = b"a secret\n"
    with board(tmp_path, desk, url="https://board.example.org") as opened:
        with Viewer(opened.site) as stranger:
            assert stranger.status == 403
        for path in ("/log/gpt", "/wall", "/"):
            answer = opened.site.get(path)
            assert answer.status == 403, path
            assert "secret" not in answer.text
        site = Site(opened.site.port)
        site.get(f"/view/{opened.viewer}")
        with Viewer(site) as viewer:
            assert viewer.status == 200
        assert site.get("/log/gpt").text == "a secret\n"
        assert site.get("/wall").status == 200
        for path in ("/live", "/log/gpt", "/wall"):
            assert site.post(path, [("a", "b")], origin="https://board.example.org").status in (403, 405)


def test_the_head_of_the_line_is_no_stream(open_board: Open) -> None:
    assert open_board.site.ask("HEAD", "/live").status == 200


def test_a_problem_is_told_and_what_was_known_stays(tmp_path: Path, desk: Desk) -> None:
    with board(tmp_path, desk) as opened, Viewer(opened.site) as viewer:
        viewer.wait(lambda v: ROW.id in v.curves)
        desk.trouble = Unreachable("the cloud is gone")
        viewer.wait(lambda v: "the cloud is gone" in v.parts["head"])
        assert ROW.id in viewer.curves
        desk.trouble = None
        viewer.wait(lambda v: "the cloud is gone" not in v.parts["head"])
