"""`python -m tpufleet.emulator --dir DIR`: the rehearsal cloud in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tpufleet.emulator import server
from tpufleet.emulator.hosts import Settings
from tpufleet.errors import StateError


def main() -> int:
    options = _options()

    def ready() -> None:
        if options.ready_fd is not None:
            os.write(options.ready_fd, b"ready\n")
            os.close(options.ready_fd)

    settings = Settings(path=[str(path.absolute()) for path in options.path], create_seconds=options.create_seconds)
    try:
        server.run(options.dir, settings, ready)
    except StateError as error:
        print(f"emulator: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"emulator: {error}", file=sys.stderr)
        return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tpufleet.emulator", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="the emulator's own directory")
    parser.add_argument("--path", type=Path, action="append", default=[], help="put first on the hosts' PATH")
    parser.add_argument("--create-seconds", type=float, default=1.0, help="from CREATING to READY")
    parser.add_argument("--ready-fd", type=int, help='gets "ready" written when the API answers')
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
