"""YAML as a fleet file may use it: text -> plain data, and for each key and value the place where it stands.

The part of YAML that reads as it looks is accepted: mappings, lists, text, numbers, true and false. What hides
something (aliases, merge keys, tags, several documents, control characters) or is read differently than it looks
(`010`, `1:30`, `.nan`, a number as a key) is refused, each with its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import yaml

from tpufleet.config.scalars import UNSEEN, Refused, key, scalar

MAX_DEPTH = 20
Path = tuple[str | int, ...]  # the keys and indices that lead to a value


class Mark(NamedTuple):
    """A place in the file, both numbers from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Problem:
    """Something wrong: where, what in a sentence, perhaps how to mend it, and the value that it is about."""

    mark: Mark
    sentence: str
    hint: str | None = None
    path: Path | None = None


@dataclass(frozen=True)
class Finding:
    """Something wrong with the value at `path`, or with its key: a Problem that doesn't know its place yet."""

    path: Path
    sentence: str
    hint: str | None = None
    at_key: bool = False


class Unreadable(Exception):
    """The text is no YAML that can be used; holds the one problem that can be told."""

    def __init__(self, mark: Mark, sentence: str, hint: str | None = None) -> None:
        super().__init__(sentence)
        self.problem = Problem(mark, sentence, hint)


@dataclass
class Document:
    """A file's plain data; a value that was refused is None, and there is a problem about it.

    `written` has the numbers, true and false as the file has them.
    """

    data: Any = None
    written: dict[Path, str] = field(default_factory=dict[Path, str])
    keys: dict[Path, Mark] = field(default_factory=dict[Path, Mark])
    values: dict[Path, Mark] = field(default_factory=dict[Path, Mark])
    problems: list[Problem] = field(default_factory=list[Problem])

    def mark(self, path: Path, *, key: bool = False) -> Mark:
        """Where the value at `path` stands, or its key; for a path that isn't in the file, where its parent stands."""
        if key and path in self.keys:
            return self.keys[path]
        while path not in self.values:
            path = path[:-1]
        return self.values[path]

    def place(self, finding: Finding) -> Problem:
        """The finding with the place it belongs to."""
        mark = self.mark(finding.path, key=finding.at_key)
        return Problem(mark, finding.sentence, finding.hint, finding.path)


def parse(text: str) -> Document:
    """The one document in `text`; raises Unreadable when the text can't be read at all."""
    refuse_unseen(text)
    reader = _Reader(text)
    try:
        reader.read()
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error) from error
    except (ValueError, OverflowError) as error:  # PyYAML's own, for "\Uffffffff" and a %YAML line with huge numbers
        raise Unreadable(_mark(reader.event.end_mark), "what follows can't be read as YAML") from error
    return reader.document


def refuse_unseen(text: str) -> None:
    """Raises Unreadable for what a terminal or an editor would act on instead of showing it."""
    unseen = UNSEEN.search(text)
    if unseen:
        before = text[: unseen.start()]
        mark = Mark(before.count("\n") + 1, unseen.start() - before.rfind("\n"))
        raise Unreadable(mark, f"a control character (U+{ord(unseen.group()):04X}) can't be in such a file")


def below(key: str, document: Document) -> Document:
    """The document as the value of `key` in a mapping: its paths begin with `key`."""
    return Document(
        data={key: document.data},
        written={(key, *path): text for path, text in document.written.items()},
        keys={(key, *path): mark for path, mark in document.keys.items()},
        values={(): Mark(1, 1)} | {(key, *path): mark for path, mark in document.values.items()},
        problems=[
            replace(problem, path=None if problem.path is None else (key, *problem.path))
            for problem in document.problems
        ],
    )


class _Reader:
    """Turns PyYAML's events into a Document. (Its nodes come too late: they don't show what was an alias.)"""

    def __init__(self, text: str) -> None:
        self.document = Document()
        self.events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.SafeLoader)
        self.event = yaml.Event()

    def read(self) -> None:
        self.step()  # the stream's start
        self.step()
        if isinstance(self.event, yaml.StreamEndEvent):
            raise Unreadable(Mark(1, 1), "the file is empty", "`tpufleet init` writes one to begin with")
        self.step()
        self.document.data = self.value(())
        self.step()  # the document's end
        self.step()
        if not isinstance(self.event, yaml.StreamEndEvent):
            sentence = "a second document begins here (`---`); only one is allowed"
            raise Unreadable(_mark(self.event.start_mark), sentence)

    def step(self) -> yaml.Event:
        self.event = next(self.events)
        return self.event

    def value(self, path: Path) -> Any:
        """The value that begins with the present event; afterwards the present event is its last."""
        event = self.event
        mark = self.document.values[path] = _mark(event.start_mark)
        if len(path) > MAX_DEPTH:
            raise Unreadable(mark, f"lists and mappings are nested more than {MAX_DEPTH} deep")
        if self.refuse_hidden(event):
            self.skip(path)
            return None
        if isinstance(event, yaml.MappingStartEvent):
            return self.mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(path)
        return self.scalar(path, cast("yaml.ScalarEvent", event))

    def scalar(self, path: Path, event: yaml.ScalarEvent) -> Any:
        try:
            value = scalar(event.value, plain=event.implicit[0])
        except Refused as refused:
            name = f"`{path[-1]}`" if path and isinstance(path[-1], str) else "this"
            finding = Finding(path, f"{name} {refused.sentence}", refused.hint, at_key=not event.value)
            self.document.problems.append(self.document.place(finding))
            return None
        if not isinstance(value, str):
            self.document.written[path] = event.value
        return value

    def mapping(self, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        while not isinstance(self.step(), yaml.MappingEndEvent):
            mark = _mark(self.event.start_mark)
            key = self.key(path)
            self.step()
            if key is None:
                self.skip(path)
            elif key in data:
                first = self.document.keys[(*path, key)].line
                self.problem(mark, f"the key `{key}` is here twice (first in line {first})", "leave one out")
                self.skip(path)
            else:
                self.document.keys[(*path, key)] = mark
                data[key] = self.value((*path, key))
        return data

    def sequence(self, path: Path) -> list[Any]:
        data: list[Any] = []
        while not isinstance(self.step(), yaml.SequenceEndEvent):
            data.append(self.value((*path, len(data))))
        return data

    def key(self, path: Path) -> str | None:
        """The key that the present event begins; None, with a problem written down, when it isn't plain text."""
        event = self.event
        hidden = self.refuse_hidden(event)
        if isinstance(event, yaml.ScalarEvent) and not hidden:
            try:
                return key(event.value, plain=event.implicit[0])
            except Refused as refused:
                self.problem(_mark(event.start_mark), f"this key {refused.sentence}", refused.hint)
                return None
        if not hidden:
            self.problem(_mark(event.start_mark), "a key must be text", "quote it if it begins with a bracket")
        self.skip(path)
        return None

    def skip(self, path: Path) -> None:
        """Pass over the value that begins with the present event; only what hides something in it is told."""
        depth = 0
        while True:
            if isinstance(self.event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(self.event, yaml.CollectionEndEvent):
                depth -= 1
            if depth + len(path) > MAX_DEPTH:
                raise Unreadable(_mark(self.event.start_mark), f"lists and mappings are nested over {MAX_DEPTH} deep")
            if depth == 0:
                return
            self.step()

    def refuse_hidden(self, event: yaml.Event) -> bool:
        """Whether the value is an alias or has an anchor or a tag, which is a problem each."""
        mark = _mark(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            self.problem(mark, "aliases (`*name`) are not allowed", "write the value out, or quote it if it is text")
            return True
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            self.problem(mark, "anchors (`&name`) are not allowed", "leave it out, or quote it if it is text")
            return True
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
            self.problem(mark, "tags (`!name`) are not allowed", "leave it out, or quote it if it is text")
            return True
        return False

    def problem(self, mark: Mark, sentence: str, hint: str | None = None) -> None:
        self.document.problems.append(Problem(mark, sentence, hint))


def _mark(mark: Any) -> Mark:
    """PyYAML's mark (None for an event that has none) as ours."""
    return Mark(mark.line + 1, mark.column + 1) if mark else Mark(1, 1)


# PyYAML's words for the mistakes that people make most -> ours; and whether the place is where the mistake was
# noticed (as PyYAML has it) or where the thing began that it was noticed in.
SYNTAX = (
    (r"found character '\\t' that cannot start any token", False, "a tab can't indent", "use spaces"),
    (r"found character '[@`%]' that cannot start any token", False, "text can't begin so", "quote the text"),
    (
        r"mapping values are not allowed here",
        False,
        "a ':' is not expected here",
        "quote the text if the ':' belongs to it, or mend this line's indentation",
    ),
    (r"could not find expected ':'", True, "this key has no ':'", None),
    (r"found unexpected end of stream", True, "this quoted text does not end", "close it with the same quote"),
    (r"expected alphabetic or numeric character, .*", True, "text can't begin so", "quote the text"),
    (r"expected <block end>, but found '-'", False, "a list is not expected here", "mend the indentation of the '-'"),
    (r"expected <block end>, but found .*", False, "this fits no line above it", "mend the indentation"),
    (r"expected ',' or '[]}]', but got .*", False, "a ',' or a closing bracket is missing before this", None),
)


def _syntax_error(error: yaml.MarkedYAMLError) -> Unreadable:
    noticed = error.problem_mark or error.context_mark
    said = error.problem or error.context or "unknown"
    for pattern, at_beginning, sentence, hint in SYNTAX:
        if re.fullmatch(pattern, said):
            return Unreadable(_mark(error.context_mark if at_beginning else noticed), sentence, hint)
    return Unreadable(_mark(noticed), f"this can't be read as YAML: {said}")
