"""Pure: small changes to a list of people as text, YAML or CSV; all that a person wrote around them stays.

Each takes the text and its document and gives the new text. They know the ways in which such lists are mostly
written; what comes of another way is found out by `config.roster.edited`, which reads the result again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from tpufleet.config.marks import Document, Mark, Path
from tpufleet.config.table import cells, heading_of, names_in, separator_of
from tpufleet.config.words import PEOPLE
from tpufleet.model import Person

FIELDS = ("name", "key", "expires", "seat", "note", "share")
SCALAR = re.compile(r"""(?P<quote>["']?)[\w:-]*(?P=quote)""")


def fields_of(person: Person) -> dict[str, str]:
    """What a list says of a person, in its order, without what is not set."""
    expires = person.expires and rfc3339(person.expires)
    values = (str(person.name), str(person.key), expires, person.seat, person.note, "yes" if person.share else "")
    return {field: value for field, value in zip(FIELDS, values, strict=True) if value}


def rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# ------------------------------------------------------------------------------------------------------------ YAML


def entry(person: Person, indent: str = "") -> str:
    """A person as an item of a YAML list."""
    lines = [f"{name}: {_word(value)}" for name, value in fields_of(person).items()]
    return f"{indent}- " + f"\n{indent}  ".join(lines) + "\n"


def added(text: str, document: Document, person: Person) -> str:
    """The list with `person` at its end, indented as the items before."""
    first = document.values.get((PEOPLE, 0))
    dash = _line(text, first).find("-") if first else -1
    return _ended(text) + entry(person, " " * max(dash, 0))


def removed(text: str, document: Document, index: int) -> str:
    """The list without its item `index`; comments before the next one are that one's and stay."""
    lines = text.splitlines(keepends=True)
    marks = [mark for path, mark in document.values.items() if path[:2] == (PEOPLE, index)]
    first, last = min(marks).line, max(marks).line
    return "".join(lines[: first - 1] + lines[last:])


def seated(text: str, document: Document, index: int, seat: str | None) -> str:
    """The list with another seat, or none, for its item `index`."""
    path: Path = (PEOPLE, index)
    present = document.values.get((*path, "seat"))
    if present and seat:
        return _replaced(text, present, SCALAR, seat)
    flow = _line(text, document.values[path])[document.values[path].column - 1 :].startswith("{")
    if present:
        key = document.keys[(*path, "seat")]
        pattern = rf"seat\s*:\s*{SCALAR.pattern}(?:,\s*)?" if flow else rf"seat\s*:\s*{SCALAR.pattern}[^\n]*"
        return _without_empty_line(_replaced(text, key, re.compile(pattern), ""), key.line)
    if seat is None:
        return text
    name = document.keys[(*path, "name")]
    if flow:
        return _replaced(text, name, re.compile(""), f"seat: {seat}, ")
    lines = text.splitlines(keepends=True)
    lines[name.line - 1] = _ended(lines[name.line - 1])
    lines.insert(name.line, " " * (name.column - 1) + f"seat: {seat}\n")
    return "".join(lines)


def _word(value: str) -> str:
    """A value as YAML text: plain where that is plainly text, in quotes elsewhere."""
    plain = re.fullmatch(r"[a-z0-9@.:+/=-]+(?: [A-Za-z0-9@.:+/=-]+)*", value)
    plainly = plain and not re.search(r":(?: |$)| #", value) and value[0].isalpha() and value not in ("no", "yes", "on")
    return value if plainly else json.dumps(value, ensure_ascii=False)


def _line(text: str, mark: Mark) -> str:
    return text.splitlines()[mark.line - 1]


def _replaced(text: str, mark: Mark, pattern: re.Pattern[str], new: str) -> str:
    """`text` with what `pattern` finds at `mark` replaced."""
    lines = text.splitlines(keepends=True)
    line = lines[mark.line - 1]
    found = pattern.match(line, mark.column - 1)
    if found:
        lines[mark.line - 1] = line[: found.start()] + new + line[found.end() :]
    return "".join(lines)


def _without_empty_line(text: str, number: int) -> str:
    lines = text.splitlines(keepends=True)
    return text if lines[number - 1].strip() else "".join(lines[: number - 1] + lines[number:])


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


# ------------------------------------------------------------------------------------------------------------- CSV


def row_added(text: str, person: Person) -> str:
    """The table with `person` in its last row; a table with nothing in it gets all headings."""
    values = fields_of(person)
    heading = heading_of(text)
    if heading is None:
        return _ended(text) + ",".join(FIELDS) + "\n" + _row([values.get(name, "") for name in FIELDS], ",") + "\n"
    separator = separator_of(heading)
    names = names_in(heading)
    end = "\r\n" if "\r\n" in text else "\n"
    before = text if text.endswith("\n") else text + end
    return before + _row([values.get(name, "") for name in names], separator) + end


def row_removed(text: str, document: Document, index: int) -> str:
    """The table without its row `index`."""
    lines = text.splitlines(keepends=True)
    del lines[document.values[(PEOPLE, index)].line - 1]
    return "".join(lines)


def row_changed(text: str, document: Document, index: int, change: Mapping[str, str | None]) -> str:
    """The table with other values in some cells of its row `index`; all other rows stay as they are."""
    heading = heading_of(text) or ""
    separator = separator_of(heading)
    names = names_in(heading)
    lines = text.splitlines(keepends=True)
    at = document.values[(PEOPLE, index)].line - 1
    line = lines[at].rstrip("\r\n")
    values = [cell.text for cell in cells(at + 1, line, separator)]
    values += [""] * (len(names) - len(values))
    new = [(change[name] or "") if name in change else value for name, value in zip(names, values, strict=True)]
    lines[at] = _row(new, separator) + lines[at][len(line) :]
    return "".join(lines)


def _row(values: Sequence[str], separator: str) -> str:
    return separator.join(_cell(value, separator) for value in values)


def _cell(value: str, separator: str) -> str:
    if separator in value or '"' in value:
        return '"' + value.replace('"', '""') + '"'
    return value
