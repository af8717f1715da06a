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
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from tpufleet.config.checks import findings_about
from tpufleet.config.marks import Document, Finding, Unreadable, parse
from tpufleet.config.reading import read_text, refusal
from tpufleet.config.roster import Roster, people_named, roster_of
from tpufleet.config.scopes import DEFAULT as DEFAULT_SCOPE, full_scope
from tpufleet.config.words import PEOPLE, finding_from
from tpufleet.model import CloudSpec, NodePool, Provider, Spec
from tpufleet.names import ProjectId, Zone, shown

MAX_SCRIPT_BYTES = 256 * 1024  # of one metadata value (Compute Engine's documentation of metadata)
REHEARSAL_PROJECT = ProjectId("rehearsal")


class NoZone(Zone):
    """Where hosts are that are in no cloud's zone; it is what people see in the column `zone`."""

    __slots__ = ()
    pattern = re.compile("inventory")


INVENTORY_ZONE = NoZone("inventory")


def load(path: Path) -> Spec:
    """The fleet that the file at `path` describes, defaults filled in; raises ConfigError for everything else."""
    spec, document = _read(path)
    roster = roster_of(path, document, operator=spec.ssh.user)
    return dataclasses.replace(spec, people=roster.persons if roster else ())


def load_with_people(path: Path) -> tuple[Spec, Roster]:
    """The same, and where its people are listed: a list that is still to be made is an empty one."""
    spec, document = _read(path)
    roster = roster_of(path, document, operator=spec.ssh.user, made=True)
    return dataclasses.replace(spec, people=roster.persons), roster


def _read(path: Path) -> tuple[Spec, Document]:
    """The fleet without its people."""
    try:
        document = parse(read_text(path))
    except Unreadable as unreadable:
        raise refusal(path, [unreadable.problem]) from None
    spec = _spec(path, document)
    found = [*findings_about(spec), *people_named(document)] or list(_missing_scripts(path.parent, spec.nodes))
    problems = [document.place(finding) for finding in found]
    if problems:
        raise refusal(path, problems)
    return dataclasses.replace(spec, cloud=_with_defaults(spec.cloud, spec.nodes)), document


def _spec(path: Path, document: Document) -> Spec:
    try:
        # through JSON, since pydantic's strict mode then takes lists for tuples and words for enums, but no "2" for 2
        (spec,) = _adapter().validate_json(json.dumps([_without_people(document.data)]))
    except ValidationError as error:
        # what is missing comes last: a misspelt key stands at the same place, and is the reason more often than not
        details = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] == "missing")
        found = [finding_from(detail, document) for detail in details]
        problems = [document.place(finding) for finding in found if finding]
        raise refusal(path, problems + document.problems) from None
    if document.problems:
        raise refusal(path, document.problems)
    return spec


def _without_people(data: Any) -> Any:
    """They may be in a file of their own, so they are checked apart (config.people)."""
    if not isinstance(data, dict):
        return data
    return {key: value for key, value in cast("dict[str, Any]", data).items() if key != PEOPLE}


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
