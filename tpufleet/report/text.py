"""Text and numbers as the page shows them. Everything here is a pure function."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

# Bidirectional controls of Unicode (UAX #9) let a text show in another order than it is read.
_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_MARKS: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"},  # U+2400: ␀ ␁ …
    0x7F: "␡",
    **dict.fromkeys(range(0x80, 0xA0), "�"),
    **dict.fromkeys(_BIDI, "�"),
    **dict.fromkeys(range(0xD800, 0xE000), "�"),  # lone surrogates, which JSON can hold and UTF-8 cannot
    0xFEFF: "",
}
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")  # SGR: colours and weights carry no text


def clean(text: str) -> str:
    """`text` with visible marks in place of control characters; newline and tab stay, terminal colours go."""
    if text.isascii() and text.isprintable():
        return text
    return _COLOURS.sub("", text.replace("\r\n", "\n")).translate(_MARKS)


def shorten(text: str, limit: int) -> str:
    """`text`, cut in the middle to at most `limit` characters: the ends tell run names apart."""
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def number(value: float) -> str:
    """A measured value with three decimals or so: `1.787`, `23.41`, `1,280`, `3.00e-04`, `NaN`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if value == int(value) and size < 1e7:
        return f"{int(value):,}".replace("-", "−")
    if size >= 1e7 or size < 1e-3:
        return f"{value:.2e}".replace("-", "−")
    decimals = 3 if size < 10 else 2 if size < 100 else 1
    return f"{value:,.{decimals}f}".replace("-", "−")


def measured(value: float) -> str:
    """A metric's value: as `number`, but 2 is `2.000`, so that the values of a column stand below each other."""
    whole = math.isfinite(value) and value == int(value) and 0 < abs(value) < 10
    return f"{value:.3f}".replace("-", "−") if whole else number(value)


def size(count: int) -> str:
    """Bytes for people: `812 B`, `1.4 MB` (powers of ten, as disks and networks are sold)."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def duration(span: timedelta) -> str:
    """A length of time in its two largest units: `48 s`, `4 min 02 s`, `3 h 20 min`, `2 d 4 h`."""
    seconds = max(0, round(span.total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60:02d} min"
    if minutes:
        return f"{minutes} min {seconds % 60:02d} s"
    return f"{seconds} s"


def clock(time: datetime) -> str:
    """A moment in UTC to the second: `2026-11-21 04:08:13`."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def count(amount: int, noun: str, plural: str | None = None) -> str:
    """`1 run`, `8 runs`, `2 entries`."""
    return f"{amount:,} {noun if amount == 1 else plural or noun + 's'}"
