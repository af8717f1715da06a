"""Text made harmless for a terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, strategies as st

from tpufleet.text import clean, clean_bytes

ANYTHING = st.text(st.characters()) | st.text(st.sampled_from("\x1b[]m;0\x07\x9b\r\n\t\u202eab\ud800"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 語 👩‍🔬", "plain ü 語 👩‍🔬"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b2Jgone", "gone"),
        ("\x1b\x1b[0m[2J", "\\x1b[2J"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x1b]52;c;aGk=\x1b\\", "\\x1b]52;c;aGk=\\x1b\\"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("\ud800", "\\ud800"),
        ("one\ntwo\tthree\r\n", "one\\ntwo\\tthree\\r\\n"),
        ("\x00\x7f\x85", "\\x00\\x7f\\x85"),
    ],
)
def test_what_acts_on_a_terminal_is_shown_or_left_out(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_newlines_and_tabs_are_kept_when_asked_for() -> None:
    assert clean("a\tb\r\n10%\r20%\n\x07", keep_newlines=True) == "a\tb\n10%\n20%\n\\x07"


@given(ANYTHING, st.booleans())
def test_nothing_that_acts_on_a_terminal_is_left(text: str, keep: bool) -> None:
    allowed = "\n\t" if keep else ""
    for character in clean(text, keep_newlines=keep):
        if character not in allowed:
            assert unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
            assert unicodedata.bidirectional(character) not in (
                "LRE",
                "RLE",
                "LRO",
                "RLO",
                "PDF",
                "LRI",
                "RLI",
                "FSI",
                "PDI",
            )


@given(ANYTHING, st.booleans())
def test_cleaning_what_is_clean_changes_nothing(text: str, keep: bool) -> None:
    once = clean(text, keep_newlines=keep)
    assert clean(once, keep_newlines=keep) == once


@given(st.binary())
def test_any_bytes_become_text_that_can_be_printed(data: bytes) -> None:
    assert clean_bytes(data).encode().decode().isprintable() or all(
        unicodedata.category(character) in ("Cf", "Co", "Cn", "Zs") or character.isprintable()
        for character in clean_bytes(data)
    )


def test_a_byte_that_is_no_text_is_shown() -> None:
    assert clean_bytes(b"a\xff\x9b2J") == "a\\xff\\x9b2J"
