"""Live views on a terminal (rich): imported only when there is one."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tpufleet.cli.render import MARKS
from tpufleet.model import Event
from tpufleet.text import clean, lasted

MAX_LINES = 30
SHOWN_AFTER_S = 3.0
STYLES = {"info": "dim", "done": "green", "failed": "red"}


@contextlib.contextmanager
def moving(console: Console, draw: Callable[[bool], Any]) -> Generator[Callable[[], None]]:
    """A picture that is drawn in place a few times a second, and at once by what this gives; it follows a resize.

    `draw(whole)` makes it: no higher than the terminal while it moves, and whole for the last time, when it stays.
    """
    ended = False
    with Live(get_renderable=lambda: draw(ended), console=console, refresh_per_second=4) as live:
        try:
            yield live.refresh
        finally:
            ended = True


class EventBoard:
    """One line per subject, replaced by each newer event about it; what is done stays on the screen.

    It appears with the first event, so that commands without any may use the terminal as they like.
    """

    def __init__(self, console: Console) -> None:
        self._events: dict[str, tuple[Event, float]] = {}  # by subject, and when it came
        self._changing = threading.Lock()
        self._spinner = Spinner("dots")
        self._live = Live(
            get_renderable=self._draw,
            console=console,
            refresh_per_second=10,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def tell(self, event: Event) -> None:
        with self._changing:
            self._events[event.subject] = (event, time.monotonic())
        if not self._live.is_started:
            self._live.start()

    def _draw(self) -> Any:
        with self._changing:
            events = list(self._events.values())[-MAX_LINES:]
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column(width=1)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for event, since in events:
            mark = self._spinner if event.state == "info" else Text(MARKS[event.state], STYLES[event.state])
            table.add_row(mark, Text(clean(event.subject)), Text(clean(event.text) + _ageing(event, since)))
        return table if events else Group()


def _ageing(event: Event, since: float) -> str:
    """How long nothing has happened, beside what goes on: a wait that is seen to be one."""
    seconds = time.monotonic() - since
    return f"  ({lasted(seconds)})" if event.state == "info" and seconds >= SHOWN_AFTER_S else ""
