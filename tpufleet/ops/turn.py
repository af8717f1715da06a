"""A command's turn at giving runs to hosts: from its look at them until it has sent what it wanted to send.

The lock beside the fleet file does this for commands of one directory. Two people, each with the file on a machine of
their own, have only the hosts in common; so every host that answers is asked (host/turn.py), and a command that does
not get all of them lets go and tries again. Two commands that can reach one host in common take turns.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from tpufleet.errors import HostError, HostFault, StateError
from tpufleet.model import Host, HostView
from tpufleet.names import HostName
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.observe import view_of
from tpufleet.ssh.agent import Bare
from tpufleet.ssh.fanout import gather
from tpufleet.ssh.port import Stream
from tpufleet.text import clean

WAIT_S = 600.0
AGAIN_S = (0.1, 0.6)  # two that let go for each other must not meet again
ALIVE_EVERY_S = 5.0  # a host gives the turn to others after 30 s of silence
LARGEST_PROBE = 64 << 20


@contextlib.contextmanager
def turn(fleet: Fleet, hosts: Sequence[Host], *, wait_s: float = WAIT_S) -> Generator[tuple[HostView, ...]]:
    """What the hosts say now, while no other command gives runs of this fleet to any host that answers.

    Raises StateError, with who has the turn, when it doesn't come within `wait_s` seconds.
    """
    end = time.monotonic() + wait_s
    told = False
    while True:
        with _Attempt(fleet) as attempt:
            views = attempt.ask(hosts)
            if attempt.held_by is None:
                yield views
                return
        if time.monotonic() >= end:
            raise StateError(
                f"another command gives runs to this fleet: {attempt.held_by}",
                hint="wait for it, or end it, and run the same command again",
            )
        if not told:
            fleet.say(fleet.spec.fleet, f"waiting for {attempt.held_by}")
            told = True
        time.sleep(random.uniform(*AGAIN_S))  # noqa: S311 - jitter, no secret


class _Attempt:
    """One try to get the turn on all hosts; what was got is kept until the context is left."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._who = f"tpufleet {fleet.command} (pid {os.getpid()} on {socket.gethostname()})"
        self._kept: dict[HostName, Stream] = {}
        self._stack = contextlib.ExitStack()  # many threads add to it, one after the other leaves it
        self._over = threading.Event()
        self.held_by: str | None = None

    def __enter__(self) -> _Attempt:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._stack.close()

    def ask(self, hosts: Sequence[Host]) -> tuple[HostView, ...]:
        """Every host's probe; `held_by` says whose turn it is where it isn't ours."""
        outcomes = gather(hosts, lambda host: view_of(self._fleet, host, self._take))
        threading.Thread(target=self._stay_alive, name="turn", daemon=True).start()
        return tuple(outcome.unwrap() for outcome in outcomes)

    def _take(self, host: Host) -> Mapping[str, Any]:
        stream = self._open(host)
        try:
            answer: dict[str, Any] = json.loads(stream.readline(LARGEST_PROBE))
        except (ValueError, RecursionError) as error:
            raise HostFault("its agent's answer can't be read", kind="bad-answer", where=host.name) from error
        if "held_by" in answer:
            self.held_by = clean(str(answer["held_by"])) or "another tpufleet"
            return {**answer, "runs": []}
        self._kept[host.name] = stream
        return answer

    def _open(self, host: Host) -> Stream:
        agent = self._fleet.agent(host)
        ask = {"fleet": self._fleet.spec.fleet, "who": self._who}
        try:
            return self._stack.enter_context(agent.open("turn", ask))
        except Bare:
            agent.ship()
            return self._stack.enter_context(agent.open("turn", ask))

    def _stay_alive(self) -> None:
        """A sign of life for the hosts; one that doesn't take it is lost to us, and so to what would be sent there."""
        while not self._over.wait(ALIVE_EVERY_S):
            for name, stream in list(self._kept.items()):
                try:
                    stream.write(b"\n")
                except HostError:
                    del self._kept[name]
