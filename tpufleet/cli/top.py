"""`tpufleet top`: all chips of the fleet, as nvidia-smi shows those of one machine; it moves until `q`."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpufleet.cli import top_view
from tpufleet.cli.arguments import session
from tpufleet.cli.output import Output, speaks_unicode
from tpufleet.cli.pace import Pace
from tpufleet.cli.tables import Fitted
from tpufleet.errors import Interrupted
from tpufleet.text import clean

if TYPE_CHECKING:
    from tpufleet.cli.looks import Looks

PATIENCE_S = 5.0  # one picture waits as long as that for all hosts
QUIT = ("q", "Q", "\x04")


def top(
    context: typer.Context,
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.5, help="How often to look.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="One picture, as into a pipe.")] = False,
) -> None:
    """Show every chip of the fleet: who is on it, memory, how busy, step, time left; until q or Ctrl-C.

    Example: tpufleet top --every 5

    Example: tpufleet --json top
    """
    from tpufleet.cli.looks import Looks

    this = session(context)
    with this.fleet("top") as fleet, Looks(fleet, every) as looks:
        picture = _Picture(str(fleet.spec.fleet), looks, every)
        if once or not (this.out.live and sys.stdout.isatty()):
            looks.wait(PATIENCE_S)
            picture.look()
            picture.print(this.out)
        else:
            _move(this.out, picture, every)


def _move(out: Output, picture: _Picture, every: float) -> None:
    """Until q or Ctrl-C: this command changes nothing, so that both are its good end."""
    from tpufleet.cli.live import moving

    try:
        with _keys() as pressed, moving(out.console(sys.stdout), picture.draw):
            while not pressed(min(every, 0.5)):
                picture.look()
    except Interrupted as interrupted:
        if interrupted.signal != signal.SIGINT:
            raise


class _Picture:
    """What is shown: drawn anew from what the hosts said last."""

    def __init__(self, fleet: str, looks: Looks, every: float) -> None:
        self._fleet, self._looks, self._every = fleet, looks, every
        self._pace = Pace()
        self._unicode = speaks_unicode(sys.stdout)

    def look(self) -> None:
        """Note the runs' steps: their rate comes from several of these."""
        self._pace.look(top_view.runs_of(self._looks.all()), time.monotonic())

    def draw(self, whole: bool) -> Any:
        from rich.console import Group
        from rich.text import Text

        hosts = Fitted(top_view.HOST_COLUMNS, self._hosts())
        chips = Fitted(*self._chips(), beside=None if whole else len(self._looks.all()) + 5)
        clock = time.strftime("%H:%M:%S UTC", time.gmtime())
        head = Text(clean(self._head()), "bold", no_wrap=True, overflow="ellipsis")
        end = Text(clock if whole else f"{clock}, every {self._every:g} s; q ends", "dim")
        return Group(head, hosts, Text(""), chips, end)

    def print(self, out: Output) -> None:
        """Once, into whatever stdout is."""
        out.line(self._head())
        out.table(top_view.HOST_COLUMNS, self._hosts())
        out.line()
        out.table(*self._chips())
        now = time.monotonic()
        out.data(fleet=self._fleet, hosts=top_view.fields(self._looks.all(), self._pace, now, self._every))

    def _head(self) -> str:
        looks = self._looks
        return top_view.head(self._fleet, looks.all(), looks.nodes, time.monotonic(), self._every)

    def _hosts(self) -> list[tuple[str, ...]]:
        return top_view.host_rows(self._looks.all(), time.monotonic(), self._every, unicode=self._unicode)

    def _chips(self) -> Any:
        looks = self._looks.all()
        return top_view.chip_table(looks, self._pace, time.monotonic(), self._every, unicode=self._unicode)


@contextlib.contextmanager
def _keys() -> Generator[Callable[[float], bool | None]]:
    """Gives a function that waits so many seconds and says whether the person wants to end: q, or end of input."""
    if not sys.stdin.isatty():
        yield time.sleep
        return
    import termios
    import tty

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)

    def pressed(seconds: float) -> bool:
        if not select.select([stdin], [], [], seconds)[0]:
            return False
        typed = b""
        with contextlib.suppress(OSError):  # Linux's way to say that the terminal is gone
            typed = os.read(stdin, 4096)  # all of it, of any bytes: a paste may hold what is no text
        return not typed or any(key.encode() in typed for key in QUIT)

    tty.setcbreak(stdin)
    try:
        yield pressed
    finally:
        with contextlib.suppress(termios.error):  # there is nothing to be set right then
            termios.tcsetattr(stdin, termios.TCSADRAIN, before)
