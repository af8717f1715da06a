"""The tables of docs/json.md, made of the types in tpufleet/cli/answers; `python -m tests.json_doc` writes them."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from tpufleet.cli.answers import ANSWERS
from tpufleet.cli.answers.base import Answer, Failed, Part

DOC = Path(__file__).parents[1] / "docs" / "json.md"
BEGIN, END = "<!-- made by python -m tests.json_doc -->", "<!-- to here -->"
WORDS = {str: "text", int: "int", float: "number", bool: "bool", types.NoneType: "null", typing.Any: "anything"}


def tables() -> str:
    """Both tables: the verbs, and the objects in their answers."""
    verbs = [f"| {_verbs(kinds)} | {'; or '.join(map(_fields, kinds))} |" for kinds in _answers()]
    parts = [f"| **{part.__name__}** | {_about(part)}{_fields(part)} |" for part in _parts()]
    return "\n".join(
        [BEGIN, "", "| verb | answer |", "|---|---|", *verbs, "", "| object | fields |", "|---|---|", *parts, "", END]
    )


def written(doc: str) -> str:
    """The document with the tables as they should be."""
    before, _, rest = doc.partition(BEGIN)
    return before + tables() + rest.partition(END)[2]


def _answers() -> list[tuple[type[Answer], ...]]:
    return list(dict.fromkeys(tuple(kinds) for kinds in ANSWERS.values()))


def _verbs(kinds: tuple[type[Answer], ...]) -> str:
    return ", ".join(f"`{verb}`" for verb, found in ANSWERS.items() if tuple(found) == kinds)


def _about(part: type[Part]) -> str:
    words = " ".join((part.__doc__ or "").split())
    return f"{words} " if words and part.__doc__ != Part.__doc__ else ""


def _fields(part: type[Part]) -> str:
    about = ""
    words = _about(part).rstrip(" .")
    if words and issubclass(part, Answer) and part.__doc__ != Answer.__doc__:
        about = f"({words[:1].lower()}{words[1:]}) "
    fields = [_field(field.alias or name, field) for name, field in part.model_fields.items() if name != "version"]
    return about + ", ".join(fields)


def _field(name: str, field: FieldInfo) -> str:
    note = f" ({' '.join(field.description.split())})" if field.description else ""
    return f"`{name}{'' if field.is_required() else '?'}`: {_type(field.annotation)}{note}"


def _type(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " ".join(f"*{argument}*" for argument in arguments)
    if origin is list:
        return f"[{_type(arguments[0])}]"
    if origin is dict:
        return f"{{name: {_type(arguments[1])}}}"
    if arguments:
        return " or ".join(map(_type, arguments))
    return WORDS.get(kind) or f"**{kind.__name__}**"


def _parts() -> Iterator[type[Part]]:
    """The objects that occur in answers, each once, the outer ones first."""
    waiting: list[Any] = [kind for kinds in _answers() for kind in kinds] + [Failed]
    seen: set[Any] = set()
    while waiting:
        kind = waiting.pop(0)
        for field in kind.model_fields.values():
            for inner in _models(field.annotation):
                if inner not in seen:
                    seen.add(inner)
                    waiting.append(inner)
                    yield inner


def _models(kind: Any) -> Iterator[type[Part]]:
    if isinstance(kind, type) and issubclass(kind, Part):
        yield kind
    for argument in typing.get_args(kind):
        yield from _models(argument)


if __name__ == "__main__":
    DOC.write_text(written(DOC.read_text()))
