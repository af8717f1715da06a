"""A planned run and its code as the journal keeps them, so that the run can be sent again exactly as it was planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tpufleet.model import Code, RunSpec
from tpufleet.state.store import Placement


def stored_run(run: RunSpec) -> dict[str, Any]:
    """Nothing of it is a secret: a RunSpec holds their names only."""
    return asdict(run)


def stored_code(code: Code) -> dict[str, Any]:
    return {**asdict(code), "directory": str(code.directory) if code.directory else None}


def planned(placement: Placement) -> tuple[RunSpec, Code] | None:
    """The run and its code as they were planned; None when the journal doesn't know (an older tpufleet's)."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(RunSpec).validate_python(placement.spec), _code(placement.code or {})
    except (ValidationError, KeyError, TypeError):
        return None


def _code(stored: Mapping[str, Any]) -> Code:
    directory = stored["directory"]
    return Code(
        repo_id=str(stored["repo_id"]),
        commit=str(stored["commit"]),
        setup=tuple(stored["setup"]),
        url=stored["url"],
        directory=Path(directory) if directory else None,
        shallow=tuple(stored["shallow"]),
    )
