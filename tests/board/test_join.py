"""Signing up over HTTP: what is taken, what is refused, and that nobody sees what is another's."""

from __future__ import annotations

import re
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from tests.board.rig import CODE, Answer, Desk, Open, Site, board, words_of
from tests.project import until
from tests.unit.hostile_people import KEYS, NAMES, PRIVATE, ed25519
from tpufleet.board.book import Book
from tpufleet.board.signup import LINKS, State
from tpufleet.names import Seat

ERROR = re.compile(r'<p class="error" id="(\w+)-error">([^<]*)</p>')


def card(site: Site, token: str) -> Answer:
    """The card, as soon as it is there."""
    return until(lambda: answer if "Log in" in (answer := site.get(f"/card/{token}")).text else None, "the card")


def test_from_the_form_to_the_card(open_board: Open) -> None:
    page = open_board.site.get(f"/join?code={CODE}")
    assert page.status == 200
    assert f'value="{CODE}"' in page.text
    answer = open_board.site.join("ada", f"{ed25519()} ada@laptop", share=True)
    assert answer.status == 303
    text = words_of(card(open_board.site, answer.token).text)
    assert "ada@127.77.0.1" in text
    assert "may be shown" in text
    (person,) = open_board.desk.persons
    assert (person.name, str(person.key), person.share) == ("ada", ed25519(), True)
    heard = {"ada has signed up", "ada has a seat and a card"}  # from two threads, so in any order
    until(lambda: set(open_board.said) == heard, "the host to hear of it")


def test_the_page_teaches_to_make_the_key_that_the_card_names(open_board: Open) -> None:
    taught = open_board.site.get("/join").text
    shown = card(open_board.site, open_board.site.join("ada", ed25519()).token).text
    for file in ("~/.ssh/tpu-sherlock", '"$HOME\\.ssh\\tpu-sherlock"'):
        assert f"ssh-keygen -t ed25519 -f {file}\n" in taught
        assert f"ssh -i {file} " in shown


def test_three_hundred_hostile_sign_ups_are_refused_with_a_sentence_and_change_nothing(open_board: Open) -> None:
    tries = [*((name, ed25519(), "name") for name in NAMES.values())]
    tries += [("ada", key, "key") for key in [*KEYS.values(), *PRIVATE.values()]]
    assert len(tries) >= 300
    for name, key, field in tries:
        open_board.times.step(6)
        answer = open_board.site.join(name, key)
        assert answer.status == 422, (name[:80], key[:80])
        wrong = ERROR.findall(answer.text)
        assert [found for found, _ in wrong] == [field], (name[:80], key[:80])
        assert len(answer.text) < 20_000
        assert all(character.isprintable() or character == "\n" for character in answer.text)
    assert open_board.desk.persons == []
    assert open_board.book.sign_ups() == []
    assert open_board.said == []


def test_a_private_key_is_refused_loudly_and_is_nowhere_afterwards(open_board: Open, tmp_path: Path) -> None:
    for key in PRIVATE.values():
        open_board.times.step(6)
        for code in (CODE, "wrong-one"):
            answer = open_board.site.join("ada", key, code=code)
            assert answer.status == 422
            assert "THIS IS A PRIVATE KEY" in answer.text
            assert max((word for word in key.split() if len(word) > 15), key=len, default="MC4CAQ") not in answer.text
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"b3BlbnNzaC1rZXkt" not in kept
    assert b"PRIVATE KEY" not in kept
    assert open_board.said == []


@pytest.mark.parametrize("field", ["code", "name"])
def test_a_private_key_in_the_wrong_field_is_not_shown_either(open_board: Open, field: str) -> None:
    secret = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmU"
    fields = {"code": CODE, "name": "ada", "key": ed25519(), field: secret}
    answer = open_board.site.post("/join", list(fields.items()))
    assert answer.status == 422
    assert [found for found, _ in ERROR.findall(answer.text)] == [field]
    assert "THIS IS A PRIVATE KEY" in answer.text
    assert secret not in answer.text
    assert secret not in open_board.site.get(f"/join?code={secret}").text


def test_a_refused_form_keeps_what_was_typed_and_a_sound_public_key_but_no_other(open_board: Open) -> None:
    answer = open_board.site.join('"><b>ada', f"{ed25519()} secret-comment", share=True)
    assert 'value="&quot;&gt;&lt;b&gt;ada"' in answer.text
    assert "<b>" not in answer.text
    assert "checked" in answer.text
    assert f">{ed25519()}</textarea>" in answer.text
    assert "secret-comment" not in answer.text
    unsound = open_board.site.join("ada", "my password is hunter2")
    assert "hunter2" not in unsound.text
    assert 'value="ada"' in unsound.text


def test_without_the_code_nothing_is_told_of_who_is_there(open_board: Open) -> None:
    open_board.desk.have("ada", 1)
    taken = open_board.site.join("ada", ed25519(2), code="wrong")
    free = open_board.site.join("zoe", ed25519(3), code="wrong")
    assert taken.status == free.status == 422
    assert taken.text.replace("ada", "zoe") == free.text.replace(ed25519(3), ed25519(2)).replace("ada", "zoe")
    assert open_board.book.sign_ups() == []


def test_a_code_that_is_over_opens_nothing(open_board: Open) -> None:
    open_board.times.step(3601)
    assert "invitation is over" in open_board.site.join("ada", ed25519()).text
    assert open_board.site.get("/join").status == 404


def test_a_board_without_sign_up_takes_nobody(tmp_path: Path) -> None:
    with board(tmp_path, accept=False) as closed:
        assert closed.site.get("/join").status == 404
        assert closed.site.join("ada", ed25519()).status == 422


def test_the_same_person_gets_their_card_again_and_nobody_else_does(open_board: Open) -> None:
    first = open_board.site.join("ada", ed25519(1)).token
    card(open_board.site, first)
    again = open_board.site.join("ada", f"{ed25519(1)} another comment").token
    assert again != first
    assert card(open_board.site, again).text == card(open_board.site, first).text
    assert open_board.desk.rounds == [["ada"]], "the hosts need not hear of it twice"
    stolen = open_board.site.join("ada", ed25519(2))
    assert stolen.status == 422
    assert "is taken" in stolen.text
    assert [str(person.key) for person in open_board.desk.persons] == [ed25519(1)]


def test_who_is_in_the_list_already_gets_a_card_by_their_key(tmp_path: Path) -> None:
    desk = Desk()
    desk.have("ada", 1)
    with board(tmp_path, desk, approve=True) as opened:
        assert "ada@" in card(opened.site, opened.site.join("ada", ed25519(1)).token).text
        assert len(desk.persons) == 1


def test_nobody_reads_anothers_card(open_board: Open) -> None:
    ada = open_board.site.join("ada", ed25519(1)).token
    grace = open_board.site.join("grace", ed25519(2)).token
    assert "ada@" not in card(open_board.site, grace).text
    assert "grace@" not in card(open_board.site, ada).text
    (kept,) = (sign_up for sign_up in open_board.book.sign_ups() if sign_up.name == "ada")
    for guess in ("ada", "", kept.links[0], ada[:-1], f"{ada}x", f"{ada}%00", "..%2f..%2fhost", f"{ada}/", f"{ada}/.."):
        assert open_board.site.get(f"/card/{guess}").status in (404, 307), guess
        assert "ada@" not in open_board.site.get(f"/card/{guess}").text


def test_who_is_taken_out_of_the_list_has_no_card_any_more_and_cant_sign_up_again(open_board: Open) -> None:
    token = open_board.site.join("ada", ed25519(1)).token
    card(open_board.site, token)
    open_board.desk.persons.clear()
    open_board.desk.former.add("ada")
    for link in (token, open_board.site.join("ada", ed25519(1)).token):
        page = open_board.site.get(f"/card/{link}")
        assert "It is over" in page.text
        assert "ada@" not in page.text
    assert "was somebody" in open_board.site.join("ada", ed25519(2)).text
    assert open_board.desk.persons == []


def test_whoever_knows_name_key_and_code_cant_agree_for_somebody_or_use_up_their_link(tmp_path: Path) -> None:
    with board(tmp_path, approve=True) as opened:
        own = opened.site.join("ada", ed25519(1)).token
        for _ in range(2 * LINKS):
            opened.site.join("ada", ed25519(1), share=True)
        assert [sign_up.share for sign_up in opened.book.sign_ups()] == [False]
        assert "Signed up" in opened.site.get(f"/card/{own}").text


def test_a_closed_account_comes_back_by_the_hosts_word_alone(tmp_path: Path) -> None:
    with board(tmp_path, approve=True) as opened:
        opened.desk.have("ada", 1)
        token = opened.site.join("ada", ed25519(1)).token
        card(opened.site, token)
        opened.desk.persons.clear()
        opened.desk.former.add("ada")
        assert "It is over" in opened.site.get(f"/card/{token}").text
        opened.site.join("ada", ed25519(1))
        assert "Signed up" in opened.site.get(f"/card/{token}").text
        assert opened.desk.persons == []
        host = opened.as_host()
        assert "was taken out of the list before" in host.get("/host").text
        host.post("/host", [("name", "ada"), ("word", "welcome")])
        card(opened.site, token)
        assert opened.desk.returned == {"ada"}
        assert opened.site.join("ada", ed25519(2)).status == 422


def test_who_is_remembered_by_a_stale_book_alone_is_not_shut_out(open_board: Open) -> None:
    card(open_board.site, open_board.site.join("ada", ed25519(1)).token)
    open_board.desk.persons.clear()
    card(open_board.site, open_board.site.join("ada", ed25519(1)).token)
    assert [str(person.name) for person in open_board.desk.persons] == ["ada"]


def test_a_book_that_is_removed_ends_the_evening_of_an_open_board(open_board: Open, tmp_path: Path) -> None:
    token = open_board.site.join("ada", ed25519(1)).token
    card(open_board.site, token)
    (tmp_path / "signups.json").unlink()
    assert open_board.site.get(f"/card/{token}").status == 404
    assert open_board.site.get(f"/join?code={CODE}").status == 404
    assert open_board.site.join("grace", ed25519(2)).status == 422
    assert "Nobody can sign up now" in open_board.as_host().get("/host").text
    again = Book(tmp_path / "signups.json")
    assert (again.sign_ups(), again.invitation) == ([], None)


def test_who_is_expired_is_told_so_and_costs_no_rounds(tmp_path: Path) -> None:
    desk = Desk()
    with board(tmp_path, desk) as opened:
        desk.have("ada", 1, expires=opened.times.now + timedelta(hours=1))
        token = opened.site.join("ada", ed25519(1)).token
        card(opened.site, token)
        opened.times.step(3600)
        page = opened.site.get(f"/card/{token}").text
        assert "your time is over" in page
        assert "ada@" not in page
        assert 'http-equiv="refresh"' not in page, "nothing comes any more"
        shown = words_of(opened.as_host().get("/host").text)
        assert "their time is over" in shown
        assert "seat" not in shown
        assert desk.rounds == [["ada"]]


def test_the_card_is_made_anew_when_the_seat_has_moved(open_board: Open) -> None:
    token = open_board.site.join("ada", ed25519(1)).token
    assert "tpu-0-w0:0" in card(open_board.site, token).text
    open_board.desk.moved["ada"] = Seat("tpu-4-w0:3")
    until(lambda: "tpu-4-w0:3" in open_board.site.get(f"/card/{token}").text, "the new seat on the card")
    assert open_board.desk.rounds == [["ada"], ["ada"]]


def test_twenty_at_once_are_taken_in_together(open_board: Open) -> None:
    open_board.desk.gate.clear()
    tokens = [open_board.site.join(f"p{n}x", ed25519(n)).token for n in range(20)]
    assert "Nearly there" in open_board.site.get(f"/card/{tokens[7]}").text
    open_board.desk.gate.set()
    for token in tokens:
        card(open_board.site, token)
    assert len(open_board.desk.rounds) <= 2, "who came while the first was taken in, together"
    assert sum(map(len, open_board.desk.rounds)) == 20


def test_of_many_who_want_one_name_at_the_same_moment_one_gets_it(open_board: Open) -> None:
    with ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(lambda n: open_board.site.join("ada", ed25519(n)).status, range(24)))
    assert sorted(statuses) == [303, *[422] * 23]
    assert len(open_board.book.sign_ups()) == 1


def test_sign_ups_are_kept_where_only_their_owner_reads_them_and_a_new_board_goes_on(tmp_path: Path) -> None:
    desk = Desk()
    with board(tmp_path, desk, approve=True) as opened:
        token = opened.site.join("ada", ed25519(1), share=True).token
        assert "Signed up" in opened.site.get(f"/card/{token}").text
    kept = tmp_path / "signups.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert token not in kept.read_text()
    with board(tmp_path, desk, approve=True) as opened:
        assert "Signed up" in opened.site.get(f"/card/{token}").text
        (waiting,) = opened.book.sign_ups(State.WAITING)
        assert (waiting.name, waiting.share) == ("ada", True)
        opened.as_host().post("/host", [("name", "ada"), ("word", "welcome")])
        card(opened.site, token)
    with board(tmp_path, desk) as opened:
        assert "ada@" in card(opened.site, token).text, "a card is made again when it is asked for"
