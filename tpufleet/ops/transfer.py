"""Files from one host, as they are on its disk: written at their byte, hashed while they come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpufleet.errors import HostFault
from tpufleet.ops.home import Wanted
from tpufleet.ops.seals import blocks, seal_of
from tpufleet.paths import writing
from tpufleet.ssh.agent import Agent
from tpufleet.ssh.fanout import gather
from tpufleet.ssh.port import Stream

CHUNK = 1 << 20
LARGE = 4 << 20  # from here on it pays to give a file to another stream
STREAMS = 3  # of one host; sshd's MaxSessions is 10, and a probe or a log may want one as well

Told = Callable[[int, int], None]  # bytes that came, and files that ended


@dataclass
class Received:
    """What became of the files: `arrived` as they should be; `gone` from the host since it listed them; `damaged`:
    not as their manifest says. The others are still to come."""

    arrived: set[Wanted] = field(default_factory=set[Wanted])
    gone: set[Wanted] = field(default_factory=set[Wanted])
    damaged: set[Wanted] = field(default_factory=set[Wanted])

    def answered(self, item: Wanted) -> bool:
        return item in self.arrived or item in self.gone


def fetch(agent: Agent, wanted: Sequence[Wanted], received: Received, told: Told) -> None:
    """Fetch the files, the most urgent first. Raises what ended it; what had come until then is in `received`."""

    def bring(lane: Sequence[Wanted]) -> None:
        asked = [{"run": item.run, "path": item.path, "offset": item.offset, "length": item.left} for item in lane]
        with agent.open("fetch", {"files": asked}) as stream:
            for item in lane:
                with writing(item.part):
                    _receive(stream, item, received, told)

    for outcome in gather(lanes(wanted), bring):
        outcome.unwrap()


def lanes(wanted: Sequence[Wanted]) -> list[list[Wanted]]:
    """The files for each stream, in their order: what is small first, and in the first; each large one where least
    is to be done before it."""
    large = [item for item in wanted if item.left >= LARGE]
    found: list[list[Wanted]] = [[item for item in wanted if item.left < LARGE]]
    found += [[] for _ in range(min(STREAMS, len(large)) - 1)]
    for item in large:
        min(found, key=lambda lane: sum(other.left for other in lane)).append(item)
    return [lane for lane in found if lane]


def _receive(stream: Stream, item: Wanted, received: Received, told: Told) -> None:
    left = _announced(stream, item)
    if left < 0:  # the next collect sees why
        received.gone.add(item)
        return
    item.part.parent.mkdir(parents=True, exist_ok=True)
    if seal_of(item.part) is None:  # a link or a pipe, if anything: what comes is not to go through it
        item.part.unlink(missing_ok=True)
    digest = hashlib.sha256()
    with item.part.open("r+b" if item.part.exists() else "w+b") as file:
        if item.sha256:
            for block in blocks(file, item.offset):
                digest.update(block)
        file.seek(item.offset)
        file.truncate()
        while left:
            chunk = stream.read(min(CHUNK, left))
            if not chunk:
                raise HostFault(f"the transfer of {item.path} was cut", kind="cut", hint="run the same command again")
            file.write(chunk)
            if item.sha256:
                digest.update(chunk)
            left -= len(chunk)
            told(len(chunk), 0)
    told(0, 1)
    if not item.sha256 or digest.hexdigest() == item.sha256:
        received.arrived.add(item)
    else:
        item.part.unlink()
        received.damaged.add(item)


def _announced(stream: Stream, item: Wanted) -> int:
    """How many bytes of the file follow; -1: the host has it no more. Raises HostFault for another file."""
    try:
        header: dict[str, Any] = json.loads(stream.readline(65536))
        if (header["run"], header["path"], header["offset"]) != (item.run, item.path, item.offset):
            raise ValueError
        length = int(header["length"])
        if not -1 <= length <= item.left:
            raise ValueError
    except (ValueError, KeyError, TypeError) as error:
        raise HostFault(f"the host did not send {item.path} as asked", kind="cut", hint="tpufleet doctor") from error
    return length
