"""`python -m tests.bench`: how fast things are here, as ratios between two ways to do the same.

Nothing here passes or fails: a shared machine is too unsteady for tests of time. docs/speed.md says what it means.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.bench import board, hosts, hundred, startup, transfer
from tests.bench.measure import Row, Skipped, table
from tests.bench.rig import where_possible
from tests.project import missing


class Part(NamedTuple):
    name: str
    needs: tuple[str, ...]
    run: Callable[[Path], Sequence[Row | Skipped]]


PARTS = (
    Part("start-up", (), startup.run),
    Part("twenty hosts", ("git",), hosts.run),
    Part("a hundred nodes", ("git",), hundred.run),
    Part("board", (), board.run),
    Part("transfer", ("git", "ssh", "scp"), transfer.run),
)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the rehearsal clouds are stopped then, too
    begin = time.monotonic()
    print(_machine(), end="\n\n", flush=True)
    lines: list[Row | Skipped] = []
    for part in PARTS:
        print(f"{part.name} …", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="tpufleet-bench-") as place:
            lines += where_possible(part.name, part.needs, partial(part.run, Path(place)))
    rows = [line for line in lines if isinstance(line, Row)]
    print(table(rows), end="\n\n")
    for row in rows:
        if row.note:
            print(f"{row.what}: {row.note}")
    for line in lines:
        if isinstance(line, Skipped):
            print(f"skipped: {line.what} ({line.reason})")
    print(f"all of it took {time.monotonic() - begin:.0f} s")


def _machine() -> str:
    """What is measured on, and whether it was busy with something else: then the figures are worth less."""
    busy = os.getloadavg()[0]
    words = [f"{os.cpu_count()} cores", f"Python {platform.python_version()}"]
    if not missing("ssh"):
        words.append(subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=True).stderr.split(",")[0])
    return ", ".join([*words, f"load {busy:.1f} before"])


if __name__ == "__main__":
    main()
