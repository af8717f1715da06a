"""What a person types about a person, checked: a name, a key, a time, a seat, a note."""

from __future__ import annotations

import stat
import sys
from datetime import UTC, datetime
from pathlib import Path

from tpufleet.cli.output import Output
from tpufleet.config.people import TIME_HINT, expiry, note_refused
from tpufleet.errors import UsageError
from tpufleet.names import HostName, PersonName, Seat
from tpufleet.personkey import HOW, parse_person_key
from tpufleet.publickey import PublicKeyLine, fingerprint
from tpufleet.text import clean, counted

MAX_BYTES = 64 * 1024  # of what may be a key


def name(text: str) -> PersonName:
    try:
        return PersonName(text)
    except ValueError as error:
        raise UsageError(str(error), hint="tpufleet people add ada KEY") from error


def key(out: Output, word: str | None, github: str | None) -> PublicKeyLine:
    """The key that was given in one of the three ways, or that a GitHub user has."""
    if (word is None) == (github is None):
        raise UsageError("a person needs a key: as text, in a file, from - or by --github USER", hint=HOW)
    if github is not None:
        from tpufleet.ops.github import github_keys

        first, *others = github_keys(github)
        more = f"; {counted(len(others), 'other key')} there left out" if others else ""
        out.note(f"{github} at GitHub: {first.kind} {fingerprint(first)}{more}")
        return first
    try:
        return parse_person_key(_text(word or ""))
    except ValueError as error:
        raise UsageError(str(error), hint=HOW) from error


def expires(text: str | None) -> datetime | None:
    if text is None:
        return None
    now = datetime.now(UTC)
    try:
        moment = expiry(text, now)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--expires: {error}", hint=f"8h, or {TIME_HINT}") from error
    if moment <= now:
        raise UsageError(f"--expires {text} is over already", hint=f"8h, or {TIME_HINT}")
    return moment


def seat(text: str) -> Seat:
    """A seat; of a node with one host the node's name will do."""
    place, colon, chip = text.partition(":")
    try:
        return Seat(text if HostName.pattern.fullmatch(place) else f"{place}-w0{colon}{chip}")
    except ValueError:
        pass
    try:
        return Seat(text)
    except ValueError as error:
        raise UsageError(str(error), hint="tpufleet status shows the chips") from error


def note(text: str) -> str:
    if why := note_refused(text):
        raise UsageError(why, hint="leave it out, or shorten it")
    return text


def _text(word: str) -> str:
    """The text of a key: `word` itself, the file that it names, or standard input for `-`."""
    if word == "-":
        return _decoded(sys.stdin.buffer.read(MAX_BYTES + 1))
    if not word or any(character.isspace() for character in word):
        return word
    try:
        if not stat.S_ISREG(Path(word).expanduser().stat().st_mode):
            raise UsageError("the key's file is no file", hint=HOW)
        with Path(word).expanduser().open("rb") as file:
            return _decoded(file.read(MAX_BYTES + 1))
    except FileNotFoundError:
        if word.endswith(".pub"):
            raise UsageError(f"there is no file {clean(word)[:200]}", hint=HOW) from None
        if "/" in word:
            raise UsageError("there is no file of that name, and a key it isn't", hint=HOW) from None
        return word  # the key's own refusal says more than a missing file; it may be a secret, so it isn't shown
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL, a home that nobody has
        if len(word) > 255:
            return word
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"the key's file can't be read: {why}", hint=HOW) from error


def _decoded(data: bytes) -> str:
    """UTF-8, or UTF-16 as PowerShell's `>` writes it."""
    try:
        return data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError("this is not a public key but something binary", hint=HOW) from None
