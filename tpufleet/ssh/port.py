"""What the rest of tpufleet knows of SSH: a connection to a host runs commands. No library's types in here."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tpufleet.model import Host


@dataclass(frozen=True)
class Result:
    """What a command came to; a command that was ended by a signal has exit code 255, as with OpenSSH's client."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Stream(Protocol):
    """A command that runs: its output as it comes, its input as it is written.

    Reading raises Unreachable when the connection is lost, so an end (b"") is always the command's own.
    """

    def read(self, size: int) -> bytes:
        """At least one byte and at most `size`, as soon as there are any; b"" at the end."""
        ...

    def read_exactly(self, size: int) -> bytes:
        """Exactly `size` bytes; raises HostFault (`cut`) when the output ends before."""
        ...

    def readline(self, limit: int) -> bytes:
        """A line with its newline, the rest of the output if it has none, b"" at the end.

        Raises HostFault (`too-much`) for a line that is longer than `limit`.
        """
        ...

    def unread(self, data: bytes) -> None:
        """Put `data` back, to be read next."""
        ...

    def write(self, data: bytes) -> None:
        """Write all of `data`; raises HostFault (`cut`) when the command does not take it any more."""
        ...

    def close_stdin(self) -> None: ...

    def stderr(self) -> bytes:
        """What came on stderr so far (its last part, if it is long); all of it after `wait`."""
        ...

    def wait(self) -> int:
        """Drop the output that was not read, wait for the end and give the exit code."""
        ...


class Connection(Protocol):
    """One authenticated connection to one host; any thread may use it. Commands are words for the host's shell."""

    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float | None = 60.0) -> Result:
        """Run `command` to its end; its exit code is the caller's business.

        Raises HostFault (`timeout`) when it isn't over after `timeout_s`, and (`too-much`) when its output is
        larger than an answer can be; Unreachable when the connection is lost.
        """
        ...

    def stream(
        self, command: str, *, stdin: bytes | None = b"", keep_stdin_open: bool = False
    ) -> AbstractContextManager[Stream]:
        """Run `command` and talk to it; `stdin` is sent meanwhile, then stdin is closed unless it is to stay open.

        None keeps stdin open too. Leaving the context hangs up.
        """
        ...

    def send_file(
        self,
        command: str,
        path: Path,
        *,
        progress: Callable[[int], None] | None = None,
        timeout_s: float | None = None,
    ) -> Result:
        """Run `command` with the file as its stdin; `progress` is told how many bytes went out, piece by piece."""
        ...

    def close(self) -> None: ...


class Dialer(Protocol):
    def connect(self, host: Host) -> Connection:
        """The connection to `host`, made if there is none yet.

        Raises Unreachable, HostKeyMismatch or AccessRefused, with `where` the host's name.
        """
        ...


def quote(words: Sequence[str]) -> str:
    """A command line on which the host's shell sees exactly these words; raises ValueError for a NUL in one."""
    if any("\0" in word for word in words):
        raise ValueError("a word of a command can't hold a NUL character")
    return shlex.join(words)
