"""The entry: the one place that turns an error into a sentence and an exit code."""

from __future__ import annotations

import os
import sys

from tpufleet.errors import TpufleetError, UsageError


def main() -> None:
    """Run the command line of this process and exit with the codes of docs/promises.md."""
    sys.exit(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """Run one command line; returns its exit code and never raises for what a user, a cloud or a host can cause."""
    from typer.exceptions import TyperException

    from tpufleet.cli.app import app
    from tpufleet.cli.arguments import hoisted

    ours = words[: words.index("--")] if "--" in words else words
    try:
        result = app(args=hoisted(words), prog_name="tpufleet", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except TpufleetError as error:
        return _failed(error, as_json="--json" in ours)
    except TyperException as error:
        return _failed(UsageError(error.format_message(), hint="tpufleet --help"), as_json="--json" in ours)
    except KeyboardInterrupt:
        print("\ninterrupted; run the same command again to go on", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # the reader (head, less) has seen enough; Python must not complain while it closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _failed(error: TpufleetError, *, as_json: bool) -> int:
    from tpufleet.cli.output import error_fields
    from tpufleet.text import clean

    if as_json:
        kind = type(error).__name__
        fields = {"kind": kind, "message": error.message, "where": error.where, "hint": error.hint}
        print(error_fields({**fields, "exit_code": error.exit_code}))
    print(f"error: {clean(str(error), keep_newlines=True)}", file=sys.stderr)
    if error.hint:
        print(f"  → {clean(error.hint, keep_newlines=True)}", file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    main()
