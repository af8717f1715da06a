"""The fleet file: YAML -> Spec, or a ConfigError that says at which line and column what is wrong.

Three sieves, each seeing what the one before let through: the text as YAML (`marks`), its form against the
dataclasses of `model` (pydantic; `words` puts what it finds into sentences), and its meaning (`checks`).
What a sieve finds is told at once, the first in full and a few more below it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError

from tpufleet.config.checks import findings_about
from tpufleet.config.marks import Document, Finding, Problem, Unreadable, parse
from tpufleet.config.scopes import DEFAULT as DEFAULT_SCOPE, full_scope
from tpufleet.config.words import finding_from
from tpufleet.errors import ConfigError
from tpufleet.model import CloudSpec, NodePool, Provider, Spec
from tpufleet.names import ProjectId, Zone, shown

MAX_BYTES = 1024 * 1024
MORE_SHOWN = 5
EXAMPLE = "tpufleet init --config example.yaml writes a file that works"
MAX_SCRIPT_BYTES = 256 * 1024  # of one metadata value (Compute Engine's documentation of metadata)
REHEARSAL_PROJECT = ProjectId("rehearsal")


class NoZone(Zone):
    """Where hosts are that are in no cloud's zone; it is what people see in the column `zone`."""

    __slots__ = ()
    pattern = re.compile("inventory")


INVENTORY_ZONE = NoZone("inventory")


def load(path: Path) -> Spec:
    """The fleet that the file at `path` describes, defaults filled in; raises ConfigError for everything else."""
    try:
        document = parse(_text(path))
    except Unreadable as unreadable:
        raise _refusal(path, [unreadable.problem]) from None
    spec = _spec(path, document)
    found = list(findings_about(spec)) or list(_missing_scripts(path.parent, spec.nodes))
    problems = [document.place(finding) for finding in found]
    if problems:
        raise _refusal(path, problems)
    return dataclasses.replace(spec, cloud=_with_defaults(spec.cloud, spec.nodes))


def _text(path: Path) -> str:
    data = _bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        before = data[data.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8", errors="replace")
        raise ConfigError(
            "the file is not UTF-8 text", where=f"{path}:{line}:{len(before) + 1}", hint="save it as UTF-8"
        ) from None


def _bytes(path: Path) -> bytes:
    """The file's content; only of a regular file, since a pipe or a device may never end."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError("this is not a file" if not path.is_dir() else "this is a directory", where=str(path))
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError("there is no fleet file here", where=str(path), hint="`tpufleet init` writes one") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(f"the fleet file can't be read: {why}", where=str(path)) from error
    if len(data) > MAX_BYTES:
        raise ConfigError("the file is larger than 1 MiB, which no fleet file is", where=str(path))
    return data


def _spec(path: Path, document: Document) -> Spec:
    try:
        # through JSON, since pydantic's strict mode then takes lists for tuples and words for enums, but no "2" for 2
        (spec,) = _adapter().validate_json(json.dumps([document.data]))
    except ValidationError as error:
        # what is missing comes last: a misspelt key stands at the same place, and is the reason more often than not
        details = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] == "missing")
        found = [finding_from(detail, document) for detail in details]
        problems = [document.place(finding) for finding in found if finding]
        raise _refusal(path, problems + document.problems) from None
    if document.problems:
        raise _refusal(path, document.problems)
    return spec


@functools.cache
def _adapter() -> TypeAdapter[tuple[Spec]]:
    # a plain dataclass can't be given pydantic's settings from outside; wrapped in a tuple it takes them over
    return TypeAdapter(tuple[Spec], config=ConfigDict(extra="forbid", strict=True))


def _with_defaults(cloud: CloudSpec, pools: Iterable[NodePool]) -> CloudSpec:
    """The rehearsal cloud needs no project, and every type is somewhere by itself; an inventory is in no zone."""
    if cloud.provider is Provider.INVENTORY:
        return dataclasses.replace(cloud, zones=(INVENTORY_ZONE,))
    cloud = dataclasses.replace(cloud, scopes=tuple(map(full_scope, cloud.scopes)) or (DEFAULT_SCOPE,))
    if cloud.provider is Provider.GCP:
        return cloud
    zones = cloud.zones or tuple(dict.fromkeys(Zone(pool.type.zones[0]) for pool in pools))
    return dataclasses.replace(cloud, project=cloud.project or REHEARSAL_PROJECT, zones=zones)


def _missing_scripts(directory: Path, pools: Sequence[NodePool]) -> Iterator[Finding]:
    """The start-up scripts that can't be sent: what they name is not there, lies elsewhere, or is too large."""
    for index, pool in enumerate(pools):
        if pool.startup_script is None:
            continue
        why = _script_refused(directory, pool.startup_script)
        if why:
            yield Finding(("nodes", index, "startup_script"), f"{shown(pool.startup_script)} {why}")


def _script_refused(directory: Path, script: str) -> str | None:
    path = directory / script
    try:
        if not path.resolve().is_relative_to(directory.resolve()):
            return "leads out of the fleet file's directory"
        if not path.is_file():
            return "is not there" if not path.exists() else "is not a file"
        data = path.read_bytes() if path.stat().st_size <= MAX_SCRIPT_BYTES else None
    except OSError as error:
        return f"can't be read: {error.strerror or error}"
    if data is None:
        return "is larger than 256 KiB, which a node's metadata can't hold"
    try:
        data.decode()
    except UnicodeDecodeError:
        return "is not UTF-8 text"
    return None


def _refusal(path: Path, problems: Iterable[Problem]) -> ConfigError:
    """One error for all problems, in the file's order."""
    first, *others = _told_apart(problems)
    lines = [first.sentence]
    for problem in others[:MORE_SHOWN]:
        hint = f" ({problem.hint})" if problem.hint else ""
        lines.append(f"  {_where(path, problem)}: {problem.sentence}{hint}")
    if len(others) > MORE_SHOWN:
        lines.append(f"  … and {len(others) - MORE_SHOWN} more")
    return ConfigError("\n".join(lines), where=_where(path, first), hint=first.hint or EXAMPLE)


def _told_apart(problems: Iterable[Problem]) -> list[Problem]:
    """In the file's order, one for each value, and none about a part of what is wrong as a whole."""
    ordered = sorted(problems, key=lambda problem: problem.mark)
    wrong = {problem.path for problem in ordered if problem.path is not None}
    kept: dict[object, Problem] = {}
    for problem in ordered:
        path = problem.path or ()
        if not any(path[:length] in wrong for length in range(len(path))):
            kept.setdefault(problem.mark if problem.path is None else path, problem)
    return list(kept.values())


def _where(path: Path, problem: Problem) -> str:
    return f"{path}:{problem.mark.line}:{problem.mark.column}"
