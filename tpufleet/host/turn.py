"""The verb `turn`: one command at a time gives a fleet's runs to its hosts, on whichever machine it was typed.

Two commands that look at the same time see the same free chips, and might send one run to two hosts. So each of them
asks every host for its turn before it looks. The lock lives as long as the process of this verb: until stdin ends, or
nothing has come from there for a while, since the command, or its line, may have died without a word.
"""

from __future__ import annotations

import json
import os
import select
import sys

from tpufleet.host import locks
from tpufleet.host.errors import bad
from tpufleet.host.files import JsonObject
from tpufleet.host.places import Places
from tpufleet.host.probe import probe

SILENT_S = 30.0
PATIENCE_S = 0.2  # the one before may be about to leave
LONGEST_NAME = 200


def take_turn(places: Places, request: JsonObject) -> None:
    """Writes the host's probe to stdout once the turn of `fleet` is ours, and keeps it; else `{"held_by": WHO}`."""
    fleet, who = request.get("fleet"), request.get("who")
    if not isinstance(fleet, str) or not isinstance(who, str):
        raise bad("turn needs a fleet and who asks")
    path = places.turn(fleet)
    places.prepare()
    lock = locks.try_lock(path, PATIENCE_S)
    if lock is None:
        _say({"held_by": path.read_text(errors="replace")[:LONGEST_NAME]})
        return
    os.ftruncate(lock, 0)
    os.pwrite(lock, who[:LONGEST_NAME].encode(), 0)
    _say(probe(places))
    while select.select([0], [], [], SILENT_S)[0] and os.read(0, 4096):
        pass


def _say(answer: JsonObject) -> None:
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()
