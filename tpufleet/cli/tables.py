"""Tables that fit: on a terminal the least important columns go first and what stays is shortened; a pipe gets all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpufleet.text import clean, counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

GAP = 2  # spaces between two columns
SPARE = 5  # from this rank on a column is shown only where all others are whole beside it
Rows = Sequence[Sequence[object]]


@dataclass(frozen=True)
class Column:
    """A column and what may be done to it where there is little room.

    `rank` 0 stays; of the others the highest goes first. It is not made narrower than `least` (and its heading) as
    long as another can go, and one of rank SPARE or more never makes others narrower. A cell that is too long is cut
    at its end, in the `middle` (ids, whose ends tell them apart), or goes on below where it `wraps`. A `number` is set
    to the right and never cut. `paint` gives a cell's style in rich's words; what the cell says is the same as what
    the colour means.
    """

    name: str
    rank: int = 0
    least: int = 8
    middle: bool = False
    wraps: bool = False
    number: bool = False
    paint: Callable[[str], str] = lambda _cell: ""


def by_word(styles: Mapping[str, str]) -> Callable[[str], str]:
    """A `paint` that goes by the cell's first word."""
    return lambda cell: styles.get(cell.split(" ", 1)[0].rstrip(":,"), "")


def columns_of(names: Sequence[Column | str], numbers: Sequence[str] = ()) -> list[Column]:
    """Columns, some of which are given by their names only: those stay, and what doesn't fit goes on below."""
    return [
        Column(item, wraps=item not in numbers, number=item in numbers) if isinstance(item, str) else item
        for item in names
    ]


def fit(columns: Sequence[Column], natural: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Which columns are shown in `room` characters, and how wide: (index, width) from left to right.

    `natural` is what each column's longest cell needs, 0 for a column without any content, which is left out.
    """
    shown = [index for index, width in enumerate(natural) if width]
    while sum(natural[index] + GAP for index in shown) - GAP > room and any(columns[i].rank >= SPARE for i in shown):
        shown.remove(max(shown, key=lambda index: (columns[index].rank, index)))
    widths = {index: _needed(columns[index], natural[index]) for index in shown}

    def spare() -> int:
        return room - sum(widths.values()) - GAP * max(0, len(widths) - 1)

    while spare() < 0 and any(columns[index].rank for index in widths):
        del widths[max(widths, key=lambda index: (columns[index].rank, index))]
    for index in sorted(widths, key=lambda index: (columns[index].rank, index)):
        widths[index] += max(0, min(spare(), natural[index] - widths[index]))
    while spare() < 0 and max(widths.values()) > 1:
        widths[max(widths, key=lambda index: widths[index])] -= 1
    return sorted(widths.items())


def _needed(column: Column, natural: int) -> int:
    """The width below which it says nothing any more; a number that is cut would say something else."""
    return natural if column.number else min(natural, max(column.least, len(column.name)))


def short(text: str, width: int, *, middle: bool = False) -> str:
    """`text` in `width` characters: `gpt-lr0.00…-seed3` with `middle`, else `queued: no fr…`."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2 if middle else 0
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}" if width > 1 else "…"[:width]


@dataclass(frozen=True)
class Fitted:
    """A table for rich, made for the width that there is at the moment it is drawn: it follows a resize.

    With `beside` (how many lines are needed for other things) it is not higher than the terminal, and says how many
    rows it doesn't show. Cells are text from hosts and people: cleaned, and never markup.
    """

    columns: Sequence[Column]
    rows: Rows
    beside: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.table import Table
        from rich.text import Text

        cells = [[clean(str(cell)) for cell in row] for row in self.rows]
        natural = [_natural(column, [row[index] for row in cells]) for index, column in enumerate(self.columns)]
        chosen = fit(self.columns, natural, options.max_width)
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        for index, width in chosen:
            column = self.columns[index]
            table.add_column(
                short(column.name.upper(), width),
                justify="right" if column.number else "left",
                no_wrap=not column.wraps,
                overflow="fold" if column.wraps else "ellipsis",
                width=width,
            )
        limit = len(cells) if self.beside is None else max(2, options.size.height - self.beside - 2)
        kept = cells if len(cells) <= limit else cells[: limit - 1]
        for row in kept:
            table.add_row(*(_cell(self.columns[index], row[index], width) for index, width in chosen))
        yield table
        if len(kept) < len(cells):
            yield Text(f"… and {counted(len(cells) - len(kept), 'more row')}", "dim")


def _cell(column: Column, text: str, width: int) -> Text:
    from rich.text import Text

    return Text(short(text, width, middle=True) if column.middle else text, column.paint(text))


def _natural(column: Column, cells: Sequence[str]) -> int:
    """The width that the column's longest cell needs; 0 for one without content."""
    from rich.cells import cell_len

    longest = max(map(cell_len, cells), default=0)
    return max(len(column.name), longest) if longest else 0


def plain_lines(columns: Sequence[Column], rows: Rows) -> list[str]:
    """The same for a pipe: aligned, nothing cut, a column for everything."""
    lines = [[column.name.upper() for column in columns], *([clean(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    return [
        (" " * GAP)
        .join(
            cell.rjust(width) if column.number else cell.ljust(width)
            for column, cell, width in zip(columns, line, widths, strict=True)
        )
        .rstrip()
        for line in lines
    ]
