"""The keys that people may have: what OpenSSH makes is taken, everything else is refused with one sentence."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.unit.hostile_people import FILES as LISTS, GOOD, KEYS, NAMES, PRIVATE, TABLES, ed25519
from tpufleet.names import PersonName
from tpufleet.personkey import MAX_CHARACTERS, parse_person_key

MADE = {"ed25519": ["ed25519"], "ecdsa": ["ecdsa", "-b", "256"], "rsa": ["rsa", "-b", "3072"]}
REFUSED = {"rsa-2048": ["rsa", "-b", "2048"], "ecdsa-384": ["ecdsa", "-b", "384"], "ecdsa-521": ["ecdsa", "-b", "521"]}


def made(path: Path, *words: str) -> str:
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-C", "me", "-f", str(path), "-t", *words], check=True)
    return path.with_name(path.name + ".pub").read_text()


def test_there_are_three_hundred_hostile_things() -> None:
    assert len(KEYS) + len(NAMES) + len(LISTS) + len(TABLES) >= 300


@pytest.mark.parametrize("case", GOOD)
def test_what_people_may_have_is_written_anew_without_its_comment(case: str) -> None:
    written = str(parse_person_key(GOOD[case]))
    assert written == " ".join(GOOD[case].split()[:2])
    assert str(parse_person_key(written)) == written


@pytest.mark.parametrize("kind", MADE)
def test_what_ssh_keygen_makes_is_taken(tmp_path: Path, kind: str) -> None:
    text = made(tmp_path / "key", *MADE[kind])
    assert str(parse_person_key(text)) == text.removesuffix(" me\n")


@pytest.mark.parametrize("kind", REFUSED)
def test_what_ssh_keygen_makes_and_is_not_taken(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ValueError, match=r"3072|only ecdsa-sha2-nistp256"):
        parse_person_key(made(tmp_path / "key", *REFUSED[kind]))


def test_the_private_half_is_refused_loudly(tmp_path: Path) -> None:
    made(tmp_path / "key", "ed25519")
    with pytest.raises(ValueError, match=r"PRIVATE KEY.*must now be thrown away"):
        parse_person_key((tmp_path / "key").read_text())


@pytest.mark.parametrize("case", KEYS)
def test_a_hostile_key_is_refused_with_one_sentence(case: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_person_key(KEYS[case])
    said = str(caught.value)
    assert said.isprintable()
    assert len(said) < 250
    assert type(caught.value) is ValueError  # none of Python's own, such as UnicodeEncodeError


@pytest.mark.parametrize("case", PRIVATE)
def test_nothing_of_a_private_key_is_said(case: str) -> None:
    with pytest.raises(ValueError, match=r"PRIVATE KEY.*must now be thrown away") as caught:
        parse_person_key(PRIVATE[case])
    assert not any(word in str(caught.value) for word in PRIVATE[case].split() if len(word) > 8)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("options: a command", "options before a key are not taken: send only what begins with ssh-ed25519"),
        ("two keys by newline", "more than one line"),
        ("two keys in one line", "two keys in one line"),
        ("dsa", "DSA"),
        ("rsa of 1024 bits", "this RSA key has 1024 bits"),
        ("another type inside", "one type in front and another one inside"),
        ("a certificate ssh-ed25519-cert-v01@openssh.com", "certificate"),
        ("a public key as RFC 4716", "another format"),
        ("NUL in the comment", "invisible"),
        ("100 kB", "longer than a public key"),
    ],
)
def test_the_sentence_says_what_was_meant(case: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"key|invisible") as caught:
        parse_person_key(KEYS[case])
    assert words in str(caught.value)


@pytest.mark.parametrize("case", NAMES)
def test_a_hostile_name_is_refused(case: str) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        PersonName(NAMES[case])
    assert str(caught.value).isprintable()


@given(st.text(max_size=200))
def test_any_text_is_a_key_or_refused(text: str) -> None:
    try:
        assert " " in str(parse_person_key(text))
    except ValueError as error:
        assert str(error).isprintable()


@given(st.integers(0, 80), st.integers(0, 3), st.text(max_size=3))
def test_a_sound_key_with_a_piece_changed_is_the_same_key_another_or_refused(at: int, length: int, new: str) -> None:
    text = ed25519()
    changed = text[:at] + new + text[at + length :]
    try:
        written = str(parse_person_key(changed))
    except ValueError as error:
        assert str(error).isprintable()
    else:
        assert changed.split()[:2] == written.split(" ")
    assert len(text) < MAX_CHARACTERS
