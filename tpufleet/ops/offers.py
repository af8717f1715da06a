"""What a host says that its runs left, looked at before anything is made of it: kinds and sizes, and whose they are."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, cast

from tpufleet.errors import HostFault
from tpufleet.host.checkpoints import NAME, SHA256
from tpufleet.names import shown
from tpufleet.restart import State

STATES = frozenset(state.value for state in State)
LARGEST = 1 << 62  # bytes
ANY = re.compile(r"(?s).*")


def offers(answer: Mapping[str, Any], asked: Collection[str]) -> list[dict[str, Any]]:
    """The runs in an answer to `manifest`: those that were `asked` for, each once. Raises HostFault for anything else.

    Names of files are looked at where paths are made of them.
    """
    try:
        found = [cast("dict[str, Any]", _of(dict, run)) for run in _of(list, answer["runs"])]
        for run in found:
            _look_at(run)
        ids = [run["state"]["id"] for run in found]
        if len(ids) != len(asked) or set(ids) != set(asked):
            raise ValueError("other runs than were asked for")
    except KeyError as error:
        raise _fault(f"{error} is missing") from error
    except (TypeError, ValueError) as error:
        raise _fault(str(error)) from error
    return found


def _fault(why: str) -> HostFault:
    return HostFault(f"its list of what runs left makes no sense: {why}", kind="bad-answer", hint="tpufleet doctor")


def _look_at(run: Mapping[str, Any]) -> None:
    state = _of(dict, run["state"])
    _text(state["id"])
    if _text(state["state"]) not in STATES:
        raise ValueError(f"a run's state is {shown(state['state'])}")
    for attempt in _of(list, state["attempts"]):
        _text(_of(dict, attempt)["started"])
    _size(run.get("log_cut") or 0)
    for entry in _of(list, run["files"]):
        _file(entry, digest="sha256" in _of(dict, entry))
        _of(int, entry["mtime_ns"])
    for point in _of(list, run["checkpoints"]):
        _text(_of(dict, point)["name"], NAME)
        _of(int, point["step"])
        _of(bool, point["verified"])
        for entry in _of(list, point["files"]):
            _file(entry, digest=True)


def _file(entry: object, *, digest: bool) -> None:
    fields = _of(dict, entry)
    _text(fields["path"])
    _size(fields["size"])
    if digest:
        _text(fields["sha256"], SHA256)


def _of(kind: type[Any], value: object) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{type(value).__name__} in place of {kind.__name__}")
    return value


def _text(value: object, pattern: re.Pattern[str] = ANY) -> str:
    text = str(_of(str, value))
    if not pattern.fullmatch(text):
        raise ValueError(f"{shown(text)} is none of its kind")
    return text


def _size(value: object) -> None:
    if not 0 <= _of(int, value) <= LARGEST:
        raise ValueError("a size that there can't be")
