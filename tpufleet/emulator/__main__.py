"""`python -m tpufleet.emulator --dir DIR`: the rehearsal cloud in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path

from tpufleet.emulator import server
from tpufleet.emulator.hosts import Settings
from tpufleet.errors import StateError


def main() -> int:
    options = _options()

    def say(word: str) -> None:
        """To who started us; the disk that our stderr goes to may be what is wrong."""
        if options.ready_fd is not None:
            os.write(options.ready_fd, word.encode())
            os.close(options.ready_fd)

    settings = Settings(path=[str(path.absolute()) for path in options.path], create_seconds=options.create_seconds)
    try:
        server.run(options.dir, settings, lambda: say("ready\n"))
    except (StateError, OSError) as error:
        with contextlib.suppress(OSError):  # it was ready before, and this is its end
            say(str(error))
        with contextlib.suppress(OSError):
            print(f"emulator: {error}", file=sys.stderr, flush=True)
        return error.exit_code if isinstance(error, StateError) else 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tpufleet.emulator", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="the emulator's own directory")
    parser.add_argument("--path", type=Path, action="append", default=[], help="put first on the hosts' PATH")
    parser.add_argument("--create-seconds", type=float, default=1.0, help="from CREATING to READY")
    parser.add_argument("--ready-fd", type=int, help='gets "ready" when the API answers, or what is wrong')
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
