"""Text from hosts, logs and people, made harmless for a terminal.

One convention: a terminal's formatting sequences (CSI: colours, cursor movements) are left out; every other
character that could act on a terminal, or on how the text around it reads, is shown as a Python escape (`\\x1b`,
`\\u202e`). So nothing that is said is lost, and cleaning what is clean changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# CSI in both its forms (ECMA-48, 5.4): parameter bytes, intermediate bytes, one final byte.
_CSI = r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"

# C0, DEL and C1; the bidi marks, embeddings, overrides and isolates; line and paragraph separator; surrogates.
_ACTING = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"

_SPECIAL = re.compile(f"{_CSI}|\r\n|{_ACTING}")


def clean(text: str, *, keep_newlines: bool = False) -> str:
    """`text` for a terminal, on one line; with `keep_newlines` newlines and tabs stay, and a carriage return (as
    progress bars send them) begins a new line."""
    return _SPECIAL.sub(_kept if keep_newlines else _shown, text)


def clean_bytes(data: bytes, *, keep_newlines: bool = False) -> str:
    """The same for bytes that should be UTF-8; a byte that is not is shown as `\\xff`."""
    return clean(data.decode("utf-8", errors="backslashreplace"), keep_newlines=keep_newlines)


def _kept(match: re.Match[str]) -> str:
    found = match.group()
    if found in ("\n", "\t"):
        return found
    return "\n" if found in ("\r\n", "\r") else _shown(match)


def _shown(match: re.Match[str]) -> str:
    found = match.group()
    if len(found) > 1 and found != "\r\n":
        return ""
    return found.encode("unicode_escape").decode("ascii")


def size(count: int) -> str:
    """Bytes for people: `3.2 GB`."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 node`, `2 nodes`; `plural` where it isn't `noun` with an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural or noun + 's'}"


def listed(names: Sequence[str], limit: int = 10) -> str:
    """`tpu-0, tpu-1`; of a long list the first few, and how many more there are."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more:,} more" if more > 0 else "")


def lasted(seconds: float) -> str:
    """A length of time for people: `8 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if minutes == 0:
        return f"{seconds:.0f} s"
    if hours == 0:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A sort key: `tpu-2` before `tpu-10`, `lr0.001-seed9` before `lr0.001-seed10`."""
    parts = re.split(r"([0-9]{1,100})", name)  # longer ones are no numbers; to Python "²" is a digit, too
    return tuple((int(part), "") if n % 2 else (-1, part) for n, part in enumerate(parts))
