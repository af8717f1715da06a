"""The entry: the one place that turns an error into a sentence and an exit code."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tpufleet.errors import DiskFull, Interrupted, StateError, TpufleetError, UsageError

# Files that are somebody else's, on a disk that is read-only, or something else than a program expects there.
NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EFBIG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)


def main() -> None:
    """Run the command line of this process and exit with the codes of docs/promises.md."""
    sys.exit(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """Run one command line; returns its exit code and never raises for what a user, a cloud or a host can cause."""
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    _prepare_streams()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        return _run(words)
    except TpufleetError as error:
        return _failed(error, as_json=as_json)
    except Interrupted as interrupted:
        left = "what the cloud and the hosts were asked for goes on"
        print(f"\ninterrupted; {left}. Run the same command again to go on here", file=sys.stderr)
        return 128 + interrupted.signal
    except BrokenPipeError:
        _stop_writing()  # the reader (head, less) has seen enough
        return 0
    except OSError as error:
        return _failed(_of_the_disk(error), as_json=as_json)


def _run(words: list[str]) -> int:
    from typer.exceptions import TyperException

    from tpufleet.cli.app import app
    from tpufleet.cli.arguments import hoisted

    try:
        result = app(args=hoisted(words), prog_name="tpufleet", standalone_mode=False)
    except TyperException as error:
        raise UsageError(error.format_message(), hint="tpufleet --help") from error
    sys.stdout.flush()
    return result if isinstance(result, int) else 0


def _of_the_disk(error: OSError) -> StateError:
    """What a disk that is full, or files that are another's, mean for a person; raises any other error again."""
    where = error.filename or "the output"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        told: StateError = DiskFull(where)
    elif error.errno == errno.EIO or (error.filename and error.errno in NOT_OURS):
        told = StateError(f"{where} can't be written: {error.strerror}", hint="check whose it is, and what is there")
    else:
        raise error
    if error.filename is None:
        _stop_writing()
    return told


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    raise Interrupted(number)


def _prepare_streams() -> None:
    """A caller may have closed a stream (`>&-`), or its encoding may lack a character: neither ends a command."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 (open as long as the process)
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _stop_writing() -> None:
    """Python must not fail once more when it closes a stdout that can't be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(error: TpufleetError, *, as_json: bool = False) -> int:
    from tpufleet.cli.output import json_text
    from tpufleet.text import clean

    if as_json:
        kind = type(error).__name__
        fields = {"kind": kind, "message": error.message, "where": error.where, "hint": error.hint}
        print(json_text({"error": {**fields, "exit_code": error.exit_code}}))
    print(f"error: {clean(str(error), keep_newlines=True)}", file=sys.stderr)
    if error.hint:
        print(f"  → {clean(error.hint, keep_newlines=True)}", file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    main()
