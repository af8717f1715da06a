"""What one plain piece of YAML means: text, a number, true or false; and what is refused since it isn't plain."""

from __future__ import annotations

import math
import re

from tpufleet.names import shown

MAX_KEY = 100

# Nothing that a terminal or an editor acts on instead of showing it: C0 and C1, bidirectional controls, line and
# paragraph separators, byte order marks inside the text, non-characters, lone surrogates (which an escape can bring).
UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff"
    "\ud800-\udfff]"
)


class Refused(Exception):
    """A value that isn't taken; the sentence follows the value's name."""

    def __init__(self, sentence: str, hint: str | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint


YES = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
NO = frozenset({"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
REAL = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")
# What YAML 1.1 and 1.2, or different programs, read differently: octal, hexadecimal, counted in sixties, grouped.
AMBIGUOUS = re.compile(
    r"[-+]?(?:0[0-7_]+|0[0-9]+|0o[0-7]+|0b[01_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"
    r"|[0-9][0-9_]*_[0-9_]*(?:\.[0-9_]*)?)"
)
NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF|nan|NaN|NAN)")


def scalar(text: str, *, plain: bool) -> str | int | float | bool:
    """What `text` means: always text when it was quoted, else (`plain`) a number or true or false if it looks so.

    Raises Refused for nothing at all, and for what may be read in two ways.
    """
    if not plain:
        return _text(text)
    if text in NOTHING:
        raise Refused("has no value", "write a value, or leave the line out")
    if text in YES or text in NO:
        return text in YES
    if AMBIGUOUS.fullmatch(text):
        raise Refused(f"can be read in two ways: {shown(text)}", "write a plain decimal number, or quote it as text")
    if WHOLE.fullmatch(text):
        if len(text) > 18:  # what fits into 64 bits, and so into every program that reads our JSON
            raise Refused("is a number of more than 18 digits", "quote it if it is text")
        return int(text)
    if REAL.fullmatch(text) or NOT_FINITE.fullmatch(text):
        value = math.nan if NOT_FINITE.fullmatch(text) else float(text)
        if not math.isfinite(value):
            raise Refused(f"is not a finite number: {shown(text)}", "quote it if it is text")
        return value
    return _text(text)


def key(text: str, *, plain: bool) -> str:
    """The key that `text` is; raises Refused when it isn't text, or would merge another mapping into this one."""
    if plain and text == "<<":
        raise Refused("would merge another mapping (`<<`), which is not allowed", "write the keys out")
    value = scalar(text, plain=plain)
    if not isinstance(value, str):
        raise Refused(f"must be text, not {shown(text)}", f'quote it: "{text[:MAX_KEY]}"')
    if len(value) > MAX_KEY or not value.isprintable():
        raise Refused(f"must be printable text of at most {MAX_KEY} characters")
    return value


def _text(text: str) -> str:
    unseen = UNSEEN.search(text.replace("\r", "\x00"))
    if unseen:
        raise Refused(f"holds a control character (U+{ord(text[unseen.start()]):04X})", "leave it out")
    return text
