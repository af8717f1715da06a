"""The host's page: who waits for a word, who is let in, who is refused, and what didn't work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.board.rig import Desk, Open, Site, board, words_of
from tests.project import until
from tests.unit.hostile_people import ed25519
from tpufleet.board import admission
from tpufleet.board.book import Book
from tpufleet.board.signup import State
from tpufleet.errors import StateError, Unreachable


def page(opened: Open, token: str) -> str:
    return words_of(opened.site.get(f"/card/{token}").text)


def word(host: Site, what: str, *names: str) -> None:
    assert host.post("/host", [*(("name", name) for name in names), ("word", what)]).status == 303


def test_whoever_waits_is_let_in_or_refused_by_the_host_alone(tmp_path: Path) -> None:
    with board(tmp_path, approve=True) as opened:
        ada, troll = (opened.site.join(name, ed25519(n)).token for n, name in enumerate(("ada", "troll")))
        assert "has seen you" in page(opened, ada)
        assert opened.desk.persons == []
        host = opened.as_host()
        text = words_of(host.get("/host").text)
        assert "2 waiting for your word" in text
        assert "KX7M-W2QD" in text
        word(host, "welcome", "ada")
        word(host, "refuse", "troll")
        until(lambda: "ada@" in page(opened, ada), "ada's card")
        assert "didn't let you in" in page(opened, troll)
        assert [str(person.name) for person in opened.desk.persons] == ["ada"]
        assert "seat tpu-0-w0:0" in words_of(host.get("/host").text)
        word(host, "refuse", "ada", "nobody-there")  # too late: to end it is `people revoke`
        assert "ada@" in page(opened, ada)
        word(host, "welcome", "troll")
        until(lambda: "troll@" in page(opened, troll), "the other card, after all")
    assert "ada has signed up: waits for your word" in opened.said
    assert opened.said.count("ada was let in") == 1


def test_all_who_wait_are_let_in_with_one_button(tmp_path: Path) -> None:
    with board(tmp_path, approve=True) as opened:
        names = [f"p{n}x" for n in range(20)]
        tokens = [opened.site.join(name, ed25519(n)).token for n, name in enumerate(names)]
        word(opened.as_host(), "welcome", *names)
        for token in tokens:
            until(lambda token=token: "Log in" in page(opened, token), "a card")
        assert opened.desk.rounds == [sorted(names)]


def test_nobody_else_sees_or_does_what_the_host_may(tmp_path: Path) -> None:
    with board(tmp_path, approve=True) as opened:
        opened.site.join("ada", ed25519())
        form = [("name", "ada"), ("word", "welcome")]
        for cookies in ({}, {f"tpufleet-host-{opened.site.port}": "guess"}, {"tpufleet-host": opened.host[6:]}):
            site = Site(opened.site.port)
            site.cookies = cookies
            assert site.get("/host").status == 403
            assert "ada" not in site.get("/host").text
            assert site.post("/host", form).status == 403
        assert opened.site.get("/host/guess").status == 404
        assert opened.book.sign_ups()[0].state is State.WAITING
        assert opened.site.cookies == {}
        entering = opened.site.get(opened.host)
        cookie = entering.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert opened.as_host().post("/host", [("name", "ada"), ("word", "other")]).status == 400


def test_what_fails_is_told_to_the_host_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "FIRST_PAUSE_S", 0.05)
    desk = Desk(trouble=Unreachable("no answer within 10 s", where="tpu-0-w0"))
    with board(tmp_path, desk) as opened:
        token = opened.site.join("ada", ed25519()).token
        host = opened.as_host()
        until(lambda: "tried again: tpu-0-w0: no answer" in words_of(host.get("/host").text), "the failure")
        assert "no answer" not in page(opened, token), "what hosts say is not for guests"
        assert "are being made" in page(opened, token)
        until(lambda: len(desk.rounds) >= 3, "two more tries")
        desk.trouble = None
        until(lambda: "ada@" in page(opened, token), "the card after all")
        assert "tried again" not in words_of(host.get("/host").text)
    assert len([line for line in opened.said if "no answer" in line]) == 1, "the same is said once"


def test_who_cant_be_in_the_list_after_all_is_refused_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    monkeypatch.setattr(desk, "enlist", lambda *_: {"ada": "is in the list already"})  # added by hand meanwhile
    with board(tmp_path, desk) as opened:
        token = opened.site.join("ada", ed25519()).token
        until(lambda: "didn't let you in" in page(opened, token), "the refusal")
        until(lambda: "ada can't be in the list: is in the list already" in opened.said, "the host to hear of it")


def test_a_round_that_was_cut_off_is_done_by_the_next_board(tmp_path: Path) -> None:
    desk = Desk(trouble=Unreachable("gone"))
    with board(tmp_path, desk) as opened:
        token = opened.site.join("ada", ed25519()).token
        until(lambda: desk.rounds, "a try")
        opened.book.mark(["ada"], State.WELCOME)  # killed before the book knew of the list
    desk.trouble = None
    with board(tmp_path, desk) as opened:
        until(lambda: "ada@" in page(opened, token), "the card")
        assert len(desk.persons) == 1


def test_who_is_revoked_before_the_hosts_knew_costs_no_endless_rounds(tmp_path: Path) -> None:
    desk = Desk()
    desk.gate.clear()
    with board(tmp_path, desk) as opened:
        token = opened.site.join("ada", ed25519()).token
        until(lambda: desk.persons, "ada in the list")
        desk.persons.clear()
        desk.gate.set()
        until(lambda: desk.rounds, "the round that was under way")
        assert "It is over" in page(opened, token)
        assert opened.site.join("grace", ed25519(2)).status == 303
        until(lambda: ["grace"] in desk.rounds, "the next round")
        assert desk.rounds == [["ada"], ["grace"]]


def test_the_list_counts_whatever_the_book_says(tmp_path: Path) -> None:
    with board(tmp_path, approve=True) as opened:
        opened.desk.have("ada", 1)
        tokens = [opened.site.join(name, ed25519(n)).token for n, name in ((1, "ada"), (2, "grace"))]
        host = opened.as_host()
        word(host, "refuse", "grace")
        until(lambda: "ada@" in page(opened, tokens[0]), "ada's card")
        opened.desk.persons.clear()
        opened.desk.have("grace", 2)
        opened.desk.have("linus", 3)
        until(lambda: "grace@" in page(opened, tokens[1]), "the card of who was put in the list by hand")
        shown = words_of(host.get("/host").text)
        assert "not in the list any more" in shown
        assert "refused" not in shown
        assert shown.count("seat tpu-0-w0:0") == 1
        assert "without signing up here: linus" in shown


def test_the_list_says_what_is_shown_whatever_was_ticked_later(tmp_path: Path) -> None:
    desk = Desk()
    desk.have("ada", 1)
    with board(tmp_path, desk, approve=True) as opened:
        token = opened.site.join("ada", ed25519(1), share=True).token
        until(lambda: "are nobody's but yours" in page(opened, token), "the card")
        opened.site.join("grace", ed25519(2), share=True)
        opened.site.join("grace", ed25519(2), share=False)
        assert [s.share for s in opened.book.sign_ups(State.WAITING)] == [False], "minds may be changed while one waits"


@pytest.mark.parametrize("text", ["{", "[]", '{"viewer": "x"}', '{"viewer": "x", "invitation": null, "people": [{}]}'])
def test_a_book_that_cant_be_read_is_told_with_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / "signups.json").write_text(text)
    with pytest.raises(StateError, match="can't be read") as caught:
        Book(tmp_path / "signups.json")
    assert caught.value.hint
    assert caught.value.hint.startswith("rm ")
