"""The command line of a process that kills itself at a named point: `python -m tests.faults.doomed WORDS…`.

`DOOMED_AT` names the point (`cloud.create:sent`, or `cloud.create:sent#2` for the second time it is passed);
`DOOMED_LOG` is a file that every point is written to as it is passed. Neither reaches a child process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Doom:
    """Where this process ends, and what it passes before. Used from any thread."""

    at: str = ""
    passing: int = 1
    log: int | None = None
    _passed: Counter[str] = field(default_factory=Counter[str])
    _counting: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def from_environment(cls) -> Doom:
        at, _, passing = os.environ.pop("DOOMED_AT", "").partition("#")
        log = os.environ.pop("DOOMED_LOG", None)
        descriptor = log and os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return cls(at, int(passing or 1), descriptor or None)

    def reach(self, point: str, last_deed: Callable[[], None] | None = None) -> None:
        """This is `point`: the end, if it is the one; `last_deed` makes what a kill in the middle would have left."""
        if self.log is not None:
            os.write(self.log, f"{point}\n".encode())
        with self._counting:
            self._passed[point] += 1
            doomed = (point, self._passed[point]) == (self.at, self.passing)
        if doomed:
            if last_deed:
                last_deed()
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    doom = Doom.from_environment()
    os.environ.pop("PYTHONPATH", None)  # it was for this module alone

    from tests.faults import points
    from tpufleet.__main__ import run

    points.install(doom)
    code = run(sys.argv[1:])
    doom.reach("command:end")
    return code


if __name__ == "__main__":
    sys.exit(main())
