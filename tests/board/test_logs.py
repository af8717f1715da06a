"""Logs on the board: the end of one, as text, read once for all who look."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from tests.board.rig import Desk, board
from tpufleet.board.logs import FRESH_S, MOST, TAIL, Logs, shown
from tpufleet.errors import Unreachable


def test_all_who_look_at_once_are_told_by_one_reading() -> None:
    reads: list[str] = []
    ticks = [0.0]
    gate = threading.Event()

    def read(run: str, size: int) -> bytes | None:
        assert gate.wait(30)
        reads.append(run)
        assert size == TAIL
        return b"hello\n" if run == "gpt" else None

    async def look() -> None:
        logs = Logs(read, clock=lambda: ticks[0])
        asked = [asyncio.create_task(logs.tail("gpt")) for _ in range(50)]
        await asyncio.sleep(0)
        gate.set()
        assert await asyncio.gather(*asked) == ["hello\n"] * 50
        assert reads == ["gpt"]
        ticks[0] += FRESH_S
        assert await logs.tail("gpt") == "hello\n"
        assert reads == ["gpt", "gpt"]
        for n in range(3 * MOST):
            assert await logs.tail(f"unknown-{n}") is None
        assert len(logs._tails) <= MOST

    asyncio.run(look())


def test_the_end_of_a_log_is_text_in_whole_lines() -> None:
    assert shown(b"\x1b[31mred\x1b[0m\x1b]52;c;x\x07\r\n\xff\xe2\x80\xae") == "red␛]52;c;x␇\n��"
    long = b"".join(b"line %06d\n" % n for n in range(10_000))
    text = shown(long[-TAIL:])
    assert text.startswith("line ")
    assert text.endswith("line 009999\n")
    assert shown(b"x" * TAIL) == "x" * TAIL, "one line without end is better than nothing"


def test_a_log_that_says_something_known_comes_with_what_it_means(tmp_path: Path) -> None:
    desk = Desk(logs={"gpt": b"RuntimeError: Missing XLA configuration <b>\n", "fine": b"step 100\n"})
    with board(tmp_path, desk) as opened:
        meaning = opened.site.get("/log/gpt").headers["x-tpufleet-meaning"]
        assert "tpufleet run or on-chip" in meaning
        assert meaning.endswith("(docs/troubleshooting.md#missing-xla-configuration).")
        assert "x-tpufleet-meaning" not in opened.site.get("/log/fine").headers


def test_a_log_is_asked_for_by_its_run_alone(tmp_path: Path) -> None:
    desk = Desk(logs={"gpt": b"<script>alert(1)</script>\n"})
    with board(tmp_path, desk) as opened:
        site = opened.site
        answer = site.get("/log/gpt")
        assert (answer.status, answer.text) == (200, "<script>alert(1)</script>\n")
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert site.get("/log/gpt", if_none_match=answer.headers["etag"]).status == 304
        assert desk.logs_read == ["gpt"]
        for path in ("/log/other", "/log/", "/log/..%2f..%2fetc", "/log/%00", "/log/gpt/x"):
            assert site.get(path).status == 404, path
        desk.trouble = Unreachable("10.0.0.7 doesn't answer")
        refused = site.get("/log/new")
        assert refused.status == 503
        assert "10.0.0.7" not in refused.text
