"""Lines of several runs' logs, whole, each under its run's name; pure."""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Sequence

from tpufleet.cli.tables import short
from tpufleet.text import clean

LONGEST = 16 * 1024  # characters; a line that doesn't end is shown in pieces of that
NAME = 28
COLORS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)  # of a terminal (SGR); red is left to what goes wrong


class WholeLines:
    """Bytes go in as they come, lines come out when they have ended."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""

    def feed(self, data: bytes, *, end: bool = False) -> list[str]:
        """The lines that end in `data`; with `end` also the last one, which has no line break."""
        *lines, self._rest = (self._rest + self._decoder.decode(data, final=end)).split("\n")
        while len(self._rest) > LONGEST:
            lines.append(self._rest[:LONGEST])
            self._rest = self._rest[LONGEST:]
        if end and self._rest:
            lines.append(self._rest)
            self._rest = ""
        return [_last_word(line) for line in lines]


def _last_word(line: str) -> str:
    """What a terminal would show of a line that was written over (as progress bars do): its last state."""
    return next((part for part in reversed(line.split("\r")) if part), "")


class Names:
    """The runs' names before their lines: aligned, and each in a colour that it has in every command."""

    def __init__(self, runs: Sequence[str], *, colors: bool, cut: bool, unicode: bool) -> None:
        names = {run: short(clean(run), NAME, middle=True) if cut else clean(run) for run in runs}
        if len(set(names.values())) < len(names):
            names = {run: clean(run) for run in runs}
        width = max(map(len, names.values()), default=0)
        bar = "│" if unicode else "|"
        chosen = colors_of(runs) if colors else {}
        self._prefixes = {
            run: f"\x1b[{chosen[run]}m{name.ljust(width)} {bar}\x1b[0m "
            if run in chosen
            else f"{name.ljust(width)} {bar} "
            for run, name in names.items()
        }

    def line(self, run: str, text: str) -> str:
        """A line of a run's log, harmless for a terminal."""
        return f"{self._prefixes[run]}{clean(text.expandtabs())}"


def colors_of(runs: Sequence[str]) -> dict[str, int]:
    """A colour for each run: by its name, and the next one that is free where two would have the same."""
    chosen: dict[str, int] = {}
    for run in sorted(runs):
        start = zlib.crc32(run.encode())
        order = [COLORS[(start + step) % len(COLORS)] for step in range(len(COLORS))]
        chosen[run] = next((color for color in order if color not in chosen.values()), order[0])
    return chosen
