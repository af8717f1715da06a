"""What a person or a program gets to see: data on stdout, progress and notes on stderr.

A terminal gets tables and a live view; a pipe gets plain lines; `--json` gets one documented object.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TextIO

from tpufleet.cli.render import MARKS, PLAIN_MARKS
from tpufleet.cli.tables import Column, Fitted, Rows, columns_of, plain_lines
from tpufleet.errors import UsageError
from tpufleet.model import Event
from tpufleet.text import clean

SCHEMA = 1


class Output:
    """One command's output; `as_json`, `quiet` and `color` are what the person asked for."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False, color: bool = True) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self._color = color and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"

    @property
    def live(self) -> bool:
        """May a moving picture be drawn on stderr?"""
        return sys.stderr.isatty() and not self.quiet and not self.as_json and os.environ.get("TERM") != "dumb"

    @property
    def colors(self) -> bool:
        """May stdout be coloured?"""
        return self._color and sys.stdout.isatty()

    def data(self, **fields: Any) -> None:
        """The command's one JSON object; nothing unless `--json` was given."""
        if self.as_json:
            print(json_text(fields))

    def line(self, text: str = "") -> None:
        """A line of the answer, for people."""
        if not self.as_json:
            print(clean(text))

    def text(self, text: str) -> None:
        """Several lines of the answer."""
        if not self.as_json:
            print(clean(text, keep_newlines=True).rstrip("\n"))

    def note(self, text: str) -> None:
        """Something beside the answer."""
        if not self.quiet:
            print(clean(text), file=sys.stderr, flush=True)

    def table(self, columns: Sequence[Column | str], rows: Rows, *, numbers: Sequence[str] = ()) -> None:
        """Rows under headings, as wide as the terminal; `numbers` names the columns that are set to the right."""
        if self.as_json:
            return
        drawn = columns_of(columns, numbers)
        if sys.stdout.isatty():
            self._console(sys.stdout).print(Fitted(drawn, rows))
        else:
            print("\n".join(plain_lines(drawn, rows)))

    @contextlib.contextmanager
    def progress(self) -> Generator[Callable[[Event], None]]:
        """A listener for events: one line per subject that changes in place, or plain lines as they come."""
        if not self.live:
            yield self._plain_event
            return
        from tpufleet.cli.live import EventBoard

        with EventBoard(self._console(sys.stderr)) as board:
            yield board.tell

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something is lost; without a terminal only `--yes` is an answer. Raises UsageError for a no."""
        if yes:
            return
        if self.as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError(f"{clean(question)} Nobody is here to ask.", hint="say --yes, or look with --dry-run")
        print(f"{clean(question)} [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UsageError("nothing was done")

    def console(self, stream: TextIO | None = None) -> Any:
        """A rich console on `stream`, stderr unless it is given: for live views."""
        return self._console(stream or sys.stderr)

    def _plain_event(self, event: Event) -> None:
        if not self.quiet:
            marks = MARKS if speaks_unicode(sys.stderr) else PLAIN_MARKS
            print(f"{marks[event.state]} {clean(event.subject)}: {clean(event.text)}", file=sys.stderr, flush=True)

    def _console(self, file: Any) -> Any:
        from rich.console import Console

        return Console(file=file, no_color=not self._color, highlight=False, markup=False)


def json_text(fields: Mapping[str, Any]) -> str:
    """One JSON object in one line; plain ASCII for a stdout that can't say more."""
    return json.dumps({"schema": SCHEMA, **fields}, ensure_ascii=not speaks_unicode(sys.stdout))


def speaks_unicode(stream: TextIO) -> bool:
    return "utf" in (stream.encoding or "").lower()
