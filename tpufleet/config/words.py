"""What pydantic says about a fleet file's form, in a person's words; and the keys that a file may have."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tpufleet.config.marks import Document, Finding, Path
from tpufleet.model import CloudSpec, CodeSpec, EmulatorSpec, InventoryHost, JobSpec, NodePool, Spec, SshSpec
from tpufleet.names import PersonName, shown

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


PEOPLE = "people"


@dataclasses.dataclass(frozen=True)
class PersonEntry:
    """A person as the list has them."""

    name: PersonName
    key: str
    expires: str | None = None
    seat: str | None = None
    note: str = ""
    share: str | bool = False


class Section(NamedTuple):
    """A part of the file that has keys of its own; `*` in its path stands for any name or number."""

    path: tuple[str, ...]
    noun: str
    kind: type
    later: frozenset[str] = frozenset()  # keys that the design has and this version hasn't

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(field.name for field in dataclasses.fields(self.kind))


SECTIONS = (
    Section((), "the fleet file", Spec),
    Section(("cloud",), "`cloud`", CloudSpec),
    Section(("cloud", "emulator"), "`cloud.emulator`", EmulatorSpec),
    Section(("nodes", "*"), "a node pool", NodePool),
    Section(("cloud", "hosts", "*"), "a host of `cloud.hosts`", InventoryHost),
    Section(("ssh",), "`ssh`", SshSpec),
    Section(("code",), "`code`", CodeSpec),
    Section(("jobs", "*"), "a job", JobSpec, frozenset({"engine"})),
    Section((PEOPLE, "*"), "a person", PersonEntry),
)

EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "mapping_type": "a mapping (`name: value`)",
    "dict_type": "a mapping (`name: value`)",
    "dataclass_type": "a mapping (`name: value`)",
    "dataclass_exact_type": "a mapping (`name: value`)",
}
# what was quoted, and would be right without
QUOTABLE = {"a whole number": r"[-+]?\d{1,18}", "a number": r"[-+]?\d{1,18}(\.\d+)?", "true or false": r"true|false"}
SCALAR_BRANCHES = frozenset({"str", "int", "float", "bool"})  # how pydantic names the branches of model.Scalar


def finding_from(detail: ErrorDetails, document: Document) -> Finding | None:
    """pydantic's error as a finding; None when it is about a value that was refused before."""
    kind = detail["type"]
    path: Path = detail["loc"][1:]  # the first is the tuple that config wraps the file in
    if kind == "unexpected_keyword_argument":
        return _unknown_key(path)
    if kind == "missing":
        return Finding(path, f"{_section(path[:-1]).noun} needs `{path[-1]}`")
    return None if detail["input"] is None else _wrong_value(path, detail, document)


def _wrong_value(path: Path, detail: ErrorDetails, document: Document) -> Finding:
    kind, value = detail["type"], detail["input"]
    if path and path[-1] == "[key]":
        return Finding(path[:-1], f"{_name(path[:-2])}: {_said(detail)}", at_key=True)
    if path and path[-1] in SCALAR_BRANCHES and path not in document.values:
        return _wrong_type(path[:-1], value, "text, a number, or true or false", document)
    if kind == "enum":
        return _wrong_choice(path, value, detail)
    if kind == "value_error" and isinstance(value, str):
        return Finding(path, f"{_name(path)}: {_said(detail)}")
    return _wrong_type(path, value, EXPECTED.get(kind, "text"), document)


def closest(word: str, known: Iterable[str]) -> str | None:
    """A hint that names the known word that was probably meant."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else None


def _section(path: Path) -> Section:
    for section in SECTIONS:
        if len(section.path) == len(path) and all(
            want in ("*", got) for want, got in zip(section.path, path, strict=True)
        ):
            return section
    raise LookupError(path)  # SECTIONS names every dataclass of Spec


def _unknown_key(path: Path) -> Finding:
    section, key = _section(path[:-1]), str(path[-1])
    if key in section.later:
        return Finding(path, f"`{key}` is not supported yet", "leave it out, until a later version has it", at_key=True)
    elsewhere = next((other for other in SECTIONS if key in other.keys), None)
    hint = closest(key, section.keys)
    if not hint and elsewhere:
        hint = f"`{key}` is a key of {elsewhere.noun}"
    return Finding(
        path, f"`{key}` is not a key of {section.noun}", hint or f"it has {', '.join(section.keys)}", at_key=True
    )


def _wrong_choice(path: Path, value: Any, detail: ErrorDetails) -> Finding:
    choices = str(detail.get("ctx", {}).get("expected", "")).replace("'", "")
    hint = closest(value, re.findall(r"\w+", choices)) if isinstance(value, str) else None
    return Finding(path, f"{_name(path)} must be {choices}, not {_described(value)}", hint)


def _wrong_type(path: Path, value: Any, expected: str, document: Document) -> Finding:
    written = document.written.get(path, "")
    return Finding(
        path, f"{_name(path)} must be {expected}, not {_described(value, written)}", _mend(value, expected, written)
    )


def _mend(value: Any, expected: str, written: str) -> str | None:
    """How the value would be right, where that can be told."""
    if expected == "text" and written:
        return f'quote it: "{written}"'
    if expected == "text" and isinstance(value, dict):
        keys = list(cast("dict[str, object]", value))
        return f'quote it: "{{{keys[0]}}}"' if len(keys) == 1 else None  # {lr}, meant as "{lr}"
    if expected == "a list" and isinstance(value, str | int | float):
        return "put it into brackets: [ ]"
    if expected in QUOTABLE and isinstance(value, str) and re.fullmatch(QUOTABLE[expected], value):
        return f"write {value} without quotes"
    return None


def _described(value: Any, written: str = "") -> str:
    if isinstance(value, str):
        return f"the text {shown(value)}"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    return written or str(value)


def _name(path: Path) -> str:
    """What a value is called: `count`, or for an item of a list `an item of `command``."""
    if not path:
        return "the fleet file"
    if isinstance(path[-1], str):
        return f"`{path[-1]}`"
    return f"an item of {_name(path[:-1])}"


def _said(detail: ErrorDetails) -> str:
    """The sentence that a class of `names` raised."""
    return str(detail.get("ctx", {}).get("error", detail["msg"]))
