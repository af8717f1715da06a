"""What all answers have in common."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Scalar = str | int | float | bool
Time = str  # RFC 3339, UTC


class Part(BaseModel):
    """An object in an answer. Only a field with a default may be missing, and no other field comes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class Answer(Part):
    """One verb's answer; `schema` is the version of all of them."""

    version: Literal[1] = Field(alias="schema")


class Failure(Part):
    kind: str
    """its name in `tpufleet/errors.py`"""
    message: str
    where: str | None
    hint: str | None
    """the next command to type"""
    exit_code: int


class Failed(Answer):
    """What a command that fails prints as its last line."""

    error: Failure


MAYBE: Any = Field(default=None, json_schema_extra={"maybe": True})
"""The default of a field that may be missing."""
