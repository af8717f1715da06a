"""What the board lets nobody do: guess, flood, post from elsewhere, read what isn't theirs."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.board.rig import FORM, Open, board
from tests.unit.hostile_people import ed25519
from tpufleet.board import app, serve
from tpufleet.errors import ConfigError


def test_guesses_are_limited_and_the_page_says_for_how_long(open_board: Open) -> None:
    for number in range(20):
        assert open_board.site.join("ada", ed25519(), code=f"GUESS{number}").status == 422
    limited = open_board.site.join("ada", ed25519())
    assert limited.status == 429, "the right code, too: else one could guess on"
    assert limited.headers["retry-after"] == "600"
    assert "Try again in 10 min" in limited.text
    open_board.times.step(601)
    assert open_board.site.join("ada", ed25519()).status == 303


def test_forms_are_limited_even_with_the_code_but_not_those_of_a_full_room(open_board: Open) -> None:
    statuses = [open_board.site.join("Ada", ed25519()).status for _ in range(121)]
    assert statuses == [*[422] * 120, 429]


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
    ],
)
def test_a_form_of_another_sites_page_is_refused(open_board: Open, headers: dict[str, str]) -> None:
    assert open_board.site.join("ada", ed25519(), **headers).status == 403
    host = open_board.as_host()
    assert host.post("/host", [("name", "ada"), ("word", "welcome")], **headers).status == 403
    assert open_board.book.sign_ups() == []


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8042", "", "127.0.0.1.evil.example", "[::1", "a b"])
def test_another_name_for_this_address_gets_nothing(open_board: Open, host: str) -> None:
    for path in ("/", "/join", "/board.css"):
        answer = open_board.site.get(path, host=host)
        assert answer.status in (400, 421)
        assert "sherlock" not in answer.text


@pytest.mark.parametrize(
    "said",
    [
        "",
        "GET / HTTP/1.1\r\nHost: loc",
        f"POST /join HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FORM}\r\nContent-Length: 9\r\n\r\na=",
    ],
    ids=["nothing", "half a head", "half a form"],
)
def test_who_takes_all_connections_and_says_little_keeps_nobody_out(
    tmp_path: Path, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "AT_ONCE", 20)
    monkeypatch.setattr(serve, "SPARE", 20)
    with board(tmp_path) as opened, contextlib.ExitStack() as stack:
        for number in range(60):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", opened.site.port), timeout=30))
            idle.sendall(said.encode())
            assert opened.site.get("/icon.svg").status == 200, number
        assert opened.site.join("ada", ed25519()).status == 303


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9", "LOCALHOST", "[::1]:80", "192.168.0.7:8042"])
def test_addresses_and_this_machines_names_are_good(open_board: Open, host: str) -> None:
    assert open_board.site.get("/join", host=host).status == 200


def test_every_answer_forbids_what_it_doesnt_need(open_board: Open) -> None:
    token = open_board.site.join("ada", ed25519()).token
    paths = ("/", "/join", f"/card/{token}", "/host", "/nothing", "/board.css", "/board.js", "/join?code=%ff")
    for path in paths:
        headers = open_board.site.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] in ("no-referrer", "same-origin")
        assert "server" not in headers
    assert open_board.site.get(f"/card/{token}").headers["cache-control"] == "no-store"
    assert open_board.site.get(f"/card/{token}").headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("url", [None, "https://board.example.org"])
def test_browsers_that_would_pass_a_header_over_arent_sent_it(tmp_path: Path, url: str | None) -> None:
    with board(tmp_path, url=url) as opened:
        assert ("cross-origin-opener-policy" in opened.site.get("/join").headers) == (url is not None)


def test_bodies_that_are_no_forms_or_far_too_long_are_refused(open_board: Open) -> None:
    site = open_board.site
    assert site.ask("POST", "/join", b"x" * 400_001, **{"content-type": FORM}).status == 413
    assert site.ask("POST", "/join", b"{}", **{"content-type": "application/json"}).status == 415
    assert site.ask("POST", "/join", b"\xff\xfe", **{"content-type": FORM}).status == 400
    assert site.ask("POST", "/join", "&".join(["a=b"] * 700), **{"content-type": FORM}).status == 400
    assert site.ask("POST", "/join", urlencode({"name": "ada"}), **{"content-type": FORM}).status == 422
    assert site.ask("PUT", "/join", "").status == 405
    assert site.ask("POST", "/", "", **{"content-type": FORM}).status == 405
    assert open_board.book.sign_ups() == []


def test_a_form_that_never_ends_holds_up_nobody(open_board: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "FORM_S", 0.2)
    with socket.create_connection(("127.0.0.1", open_board.site.port), timeout=30) as slow:
        head = f"POST /join HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FORM}\r\nContent-Length: 9"
        slow.sendall(f"{head}\r\n\r\na=".encode())
        assert open_board.site.join("ada", ed25519()).status == 303
        assert slow.recv(100).startswith(b"HTTP/1.1 408 ")


def test_a_list_that_cant_be_read_is_no_page_with_its_words(open_board: Open) -> None:
    open_board.desk.unreadable = ConfigError("/home/boss/secret/people.yaml:3:1 is wrong")
    answer = open_board.site.join("ada", ed25519())
    assert answer.status == 503
    assert "secret" not in answer.text
    open_board.desk.unreadable = None
    assert open_board.site.join("ada", ed25519()).status == 303
