"""The text of the files that a person writes, and the one error for all that is wrong in one."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

from tpufleet.config.marks import Problem
from tpufleet.errors import ConfigError

MAX_BYTES = 1024 * 1024
MORE_SHOWN = 5
EXAMPLE = "tpufleet init --config example.yaml writes a file that works"


def read_text(path: Path, noun: str = "fleet file") -> str:
    """The text of the `noun` at `path`; raises ConfigError."""
    data = _bytes(path, noun)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        before = data[data.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8", errors="replace")
        raise ConfigError(
            "the file is not UTF-8 text", where=f"{path}:{line}:{len(before) + 1}", hint="save it as UTF-8"
        ) from None


def _bytes(path: Path, noun: str) -> bytes:
    """The file's content; only of a regular file, since a pipe or a device may never end."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError("this is not a file" if not path.is_dir() else "this is a directory", where=str(path))
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"there is no {noun} here", where=str(path), hint="`tpufleet init` writes one") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(f"the {noun} can't be read: {why}", where=str(path)) from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"the file is larger than 1 MiB, which no {noun} is", where=str(path))
    return data


def refusal(path: Path, problems: Iterable[Problem], example: str = EXAMPLE) -> ConfigError:
    """One error for all problems, in the file's order; `example` is the hint where the first has none."""
    first, *others = _told_apart(problems)
    lines = [first.sentence]
    for problem in others[:MORE_SHOWN]:
        hint = f" ({problem.hint})" if problem.hint else ""
        lines.append(f"  {_where(path, problem)}: {problem.sentence}{hint}")
    if len(others) > MORE_SHOWN:
        lines.append(f"  … and {len(others) - MORE_SHOWN} more")
    return ConfigError("\n".join(lines), where=_where(path, first), hint=first.hint or example)


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
