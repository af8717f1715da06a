"""A command on a terminal of its own: how wide it is, what was seen on it, and what was typed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.project import Project

OURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")  # what rich and we send: colours, cursor movements


@dataclass
class Terminal:
    """stdin, stdout and stderr of `process`."""

    process: subprocess.Popen[bytes]
    master: int
    seen: bytes = field(default=b"")

    @property
    def text(self) -> str:
        """All that was seen, without what only moves or colours."""
        return OURS.sub("", self.seen.decode(errors="replace"))

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def read(self, seconds: float = 0.05) -> bool:
        """Take in what has come; whether the terminal is still open."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        with contextlib.suppress(OSError):  # Linux's way to say that nobody has the terminal open any more
            data = os.read(self.master, 65536)
            self.seen += data
            return bool(data)
        return False

    def until(self, words: str, seconds: float = 30) -> None:
        """Until `words` were seen."""
        end = time.monotonic() + seconds
        while words not in self.text:
            assert time.monotonic() < end, f"not within {seconds} s: {words!r} in\n{self.text[-3000:]}"
            assert self.read(), f"ended without {words!r}:\n{self.text[-3000:]}"

    def end(self, seconds: float = 30) -> int:
        """The exit code, when it has ended and all was read."""
        end = time.monotonic() + seconds
        while self.read():
            assert time.monotonic() < end, f"goes on:\n{self.text[-3000:]}"
        return self.process.wait(seconds)


@contextlib.contextmanager
def on_terminal(project: Project, *words: str, width: int = 80, height: int = 24, **env: str) -> Iterator[Terminal]:
    """`tpufleet WORDS…` on a terminal of that size."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tpufleet", *words],
        cwd=project.directory,
        env={**inherited, **project.env, "TERM": "xterm-256color", **env},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
