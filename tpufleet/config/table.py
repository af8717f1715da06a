"""A table of text as spreadsheets write it (CSV) -> plain data with the place of each cell.

Python's own reader doesn't say where a cell stands, takes a quote in the middle of a cell, and joins lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tpufleet.config.marks import Document, Mark, Unreadable, refuse_unseen

SEPARATORS = ",;\t"  # the second is what spreadsheets write where the comma is in numbers
HEADING = re.compile(r"[a-z]{1,20}")
COMMENT = "#"
QUOTED = re.compile(r' *"((?:[^"]|"")*)" *')


class Cell(NamedTuple):
    """`text` without quotes, and the column (from 1) where it begins."""

    text: str
    column: int


def parse_table(text: str) -> Document:
    """The rows below the line of headings as a list of mappings; empty cells are left out. Raises Unreadable."""
    refuse_unseen(text)
    rows = [(number, line.removesuffix("\r")) for number, line in enumerate(text.split("\n"), 1) if _is_row(line)]
    document = Document(data=[], values={(): Mark(1, 1)})
    if not rows:
        return document
    (first, heading), *rows = rows
    separator = separator_of(heading)
    names = [Cell(cell.text.strip().lower(), cell.column) for cell in cells(first, heading, separator)]
    _check_headings(first, names)
    for index, (number, line) in enumerate(rows):
        document.data.append({})
        document.values[(index,)] = Mark(number, 1)
        found = list(cells(number, line, separator))
        if len(found) > len(names):
            raise Unreadable(
                Mark(number, found[len(names)].column),
                f"this row has {len(found)} cells, and there are {len(names)} headings",
                'put a cell with a comma in it into quotes: "…"',
            )
        for name, cell in zip(names, found, strict=False):
            value = cell.text.strip()
            if value:
                document.data[index][name.text] = value
                document.values[(index, name.text)] = document.keys[(index, name.text)] = Mark(number, cell.column)
    return document


def heading_of(text: str) -> str | None:
    """The line of headings, without its end; None where the table has no content."""
    return next((line.removesuffix("\r") for line in text.split("\n") if _is_row(line)), None)


def names_in(heading: str) -> list[str]:
    """What the columns are called."""
    return [cell.text.strip().lower() for cell in cells(1, heading, separator_of(heading))]


def _is_row(line: str) -> bool:
    return bool(line.strip()) and not line.startswith(COMMENT)


def separator_of(heading: str) -> str:
    """What stands between the cells, by the line of headings."""
    return max(SEPARATORS, key=heading.count)


def cells(number: int, line: str, separator: str) -> Iterator[Cell]:
    """The cells of line `number`; raises Unreadable for quotes that don't fit."""
    at = 0
    while True:
        quoted = QUOTED.match(line, at)
        end = quoted.end() if quoted else line.find(separator, at)
        end = len(line) if end < 0 else end
        if end < len(line) and line[end] != separator:
            raise Unreadable(Mark(number, end + 1), "a separator is missing after this quoted text")
        text = quoted[1].replace('""', '"') if quoted else line[at:end]
        if not quoted and '"' in text:
            column = at + text.index('"') + 1
            raise Unreadable(Mark(number, column), "a quote is here that does not fit", 'a quote within quotes is ""')
        yield Cell(text, at + 1)
        if end >= len(line):
            return
        at = end + 1


def _check_headings(number: int, names: list[Cell]) -> None:
    for index, name in enumerate(names):
        if not HEADING.fullmatch(name.text):
            raise Unreadable(
                Mark(number, name.column), "this is not a heading", "the first line is: name,key,expires,seat,note"
            )
        if name.text in [other.text for other in names[:index]]:
            raise Unreadable(Mark(number, name.column), f"the heading `{name.text}` is here twice")
