"""Starting our own long-lived processes: from the same shipped directory, in sessions of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tpufleet.host.places import Places

LIBRARY = Path(__file__).resolve().parents[2]
LARGEST_LOG = 1 << 20


def start(places: Places, verb: str, words: Sequence[str], keep: Sequence[int]) -> subprocess.Popen[bytes]:
    """Runs `verb` of this agent apart from us: it inherits the descriptors `keep`, and outlives us and the connection.

    What it says goes to the queue's log.
    """
    with _log(places) as log:
        return subprocess.Popen(
            [sys.executable, "-ES", str(LIBRARY), verb, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=keep,
            cwd="/",
        )


def _log(places: Places) -> IO[bytes]:
    """The queue's log, begun anew when it has grown large."""
    log = places.queue_log.open("ab")
    if os.fstat(log.fileno()).st_size > LARGEST_LOG:
        log.truncate(0)
    return log
