"""Who may sign up: codes, limits, names and keys that are taken."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.hostile_people import KEYS, NAMES, PRIVATE, ed25519
from tpufleet.board.signup import (
    LINKS,
    Form,
    Invitation,
    Room,
    SignUp,
    State,
    Throttle,
    new_code,
    new_token,
    origin,
    plain,
)
from tpufleet.model import Person
from tpufleet.names import UserName
from tpufleet.personkey import parse_person_key

NOW = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)


def signed(name: str, number: int, state: State = State.WAITING) -> SignUp:
    return SignUp(UserName(name), parse_person_key(ed25519(number)), share=False, since=NOW, state=state)


def listed(name: str, number: int) -> Person:
    return Person(UserName(name), parse_person_key(ed25519(number)))


def refusal(room: Room, name: str, number: int) -> dict[str, str]:
    return room.refusal(UserName(name), parse_person_key(ed25519(number)))


def test_a_code_is_good_however_it_is_typed_and_until_its_time_is_over() -> None:
    invitation = Invitation("KX7M-W2QD", NOW)
    before = NOW - timedelta(seconds=1)
    for typed in ("KX7M-W2QD", "kx7m w2qd", " kx7mw2qd\n", "KX7M—W2QD"):
        assert invitation.refusal(typed, before) is None
    for typed in ("", "KX7M-W2Q", "KX7M-W2QDD", "AAAA-AAAA", "\0", "😀"):
        assert "not the invitation code" in str(invitation.refusal(typed, before))
    assert "over" in str(invitation.refusal("KX7M-W2QD", NOW))
    assert "not the invitation code" in str(invitation.refusal("wrong", NOW)), "a guess learns nothing about the time"


def test_codes_and_tokens_are_never_the_same_and_codes_have_no_letters_that_look_alike() -> None:
    codes = {new_code() for _ in range(500)}
    assert len(codes) == 500
    assert not set("".join(codes)) & set("0O1IL5S")
    assert all(len(plain(code)) == 8 for code in codes)
    assert len({new_token() for _ in range(500)}) == 500
    assert len(new_token()) == 32, "192 bits"


def test_a_form_with_hostile_fields_says_one_sentence_for_each_and_shows_no_key() -> None:
    for what, name in NAMES.items():
        _, _, wrong = Form(name=name, key=ed25519()).read()
        assert set(wrong) == {"name"}, what
        assert wrong["name"].isprintable(), what
    for what, key in {**KEYS, **PRIVATE}.items():
        form = Form(name="ada", key=key)
        _, _, wrong = form.read()
        assert set(wrong) == {"key"}, what
        assert wrong["key"].isprintable(), what
        assert key not in repr(form) or key.strip() in ("", "key"), what


def test_who_is_there_already_is_known_by_name_and_key_together() -> None:
    room = Room([listed("ada", 1)], "tpufleet", signed_up=[signed("grace", 2)])
    assert room.knows("ada", parse_person_key(ed25519(1)))
    assert room.knows("grace", parse_person_key(ed25519(2)))
    assert not room.knows("ada", parse_person_key(ed25519(2)))
    assert not room.knows("linus", parse_person_key(ed25519(1)))


@pytest.mark.parametrize(
    ("name", "number", "field", "says"),
    [
        ("ada", 9, "name", "is taken"),
        ("grace", 9, "name", "is taken"),
        ("linus", 9, "name", "was somebody's before"),
        ("kiml", 9, "name", "looks like it"),
        ("boss", 9, "name", "another account's"),
        ("zoe", 1, "key", "somebody else's"),
        ("zoe", 2, "key", "somebody else's"),
    ],
)
def test_what_is_anothers_is_refused_without_telling_whose_it_is(name: str, number: int, field: str, says: str) -> None:
    people = [listed("ada", 1), listed("kim1", 5)]
    room = Room(people, "boss", former={"linus"}, signed_up=[signed("grace", 2)])
    wrong = refusal(room, name, number)
    assert set(wrong) == {field}
    assert says in wrong[field]
    assert not any(other in wrong[field] for other in ("kim1", "ada ", "grace"))


def test_whoever_was_refused_keeps_nobody_from_a_name_or_a_key() -> None:
    room = Room([], "tpufleet", signed_up=[signed("ada", 1, State.REFUSED)])
    assert refusal(room, "ada", 2) == {}
    assert refusal(room, "grace", 1) == {}
    assert room.knows("ada", parse_person_key(ed25519(1))), "and comes back to their own page"


def test_a_card_is_opened_by_its_first_link_and_the_newest_ones() -> None:
    tokens = [new_token() for _ in range(LINKS + 1)]
    sign_up = signed("ada", 1)
    for token in tokens:
        sign_up = sign_up.with_link(token)
    assert [sign_up.opened_by(token) for token in tokens] == [True, False, *[True] * (LINKS - 1)]
    assert not any(token in repr(sign_up) for token in tokens), "only digests are kept"
    assert not sign_up.opened_by("")
    assert not sign_up.opened_by(sign_up.links[0])


def test_tries_are_limited_for_one_address_and_for_all_together() -> None:
    throttle = Throttle(each=3, everybody=5, window_s=60)
    for second in range(3):
        assert throttle.wait("192.0.2.1", second) == 0
        throttle.count("192.0.2.1", second)
    assert throttle.wait("192.0.2.1", 10) == 50, "until the first of the three is a minute ago"
    assert throttle.wait("192.0.2.2", 10) == 0
    throttle.count("192.0.2.2", 10)
    throttle.count("192.0.2.3", 10)
    assert throttle.wait("192.0.2.4", 20) == 40, "all of them together"
    assert throttle.wait("192.0.2.1", 60) == 0
    assert throttle.wait("192.0.2.4", 1000) == 0


def test_one_household_is_one_address() -> None:
    assert origin("2001:db8::1") == origin("2001:db8::ffff:1")
    assert origin("2001:db8:0:1::1") != origin("2001:db8:0:2::1")
    assert origin("::ffff:192.0.2.1") == origin("192.0.2.1")
    assert origin("no address") == "no address"
