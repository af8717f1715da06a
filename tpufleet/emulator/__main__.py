"""`python -m tpufleet.emulator --dir DIR`: the rehearsal cloud in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tpufleet.errors import StateError


def main() -> int:
    options = _options()

    def say(word: str) -> None:
        """The first word, to who started us; the disk that our stderr goes to may be what is wrong."""
        if options.ready_fd is not None:
            os.write(options.ready_fd, word.encode())
            os.close(options.ready_fd)
            options.ready_fd = None

    try:
        _serve(options, lambda: say("ready\n"))
    except (StateError, OSError, ModuleNotFoundError) as error:
        words = f"{error}: pip install 'tpufleet[emulator]'" if isinstance(error, ModuleNotFoundError) else str(error)
        say(words)
        with contextlib.suppress(OSError):
            print(f"emulator: {words}", file=sys.stderr, flush=True)
        return error.exit_code if isinstance(error, StateError) else 1
    return 0


def _serve(options: argparse.Namespace, ready: Callable[[], None]) -> None:
    """Until the end; imports here, since an import may fail as well (asyncssh's does where no file can be made)."""
    from tpufleet.emulator import server
    from tpufleet.emulator.hosts import Settings

    settings = Settings(
        path=[str(path.absolute()) for path in options.path],
        create_seconds=options.create_seconds,
        hosts=options.hosts,
    )
    server.run(options.dir, settings, ready, options.with_process)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tpufleet.emulator", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="the emulator's own directory")
    parser.add_argument("--path", type=Path, action="append", default=[], help="put first on the hosts' PATH")
    parser.add_argument("--create-seconds", type=float, default=1.0, help="from CREATING to READY")
    parser.add_argument("--hosts", choices=("process", "namespace"), default="process", help="the kind of hosts")
    parser.add_argument("--with-process", type=int, metavar="PID", help="end when that process has ended")
    parser.add_argument("--ready-fd", type=int, help='gets "ready" when the API answers, or what is wrong')
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
