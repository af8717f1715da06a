"""How far a collect is: bytes, files, rate and time left, of each host and of all together."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tpufleet.text import counted, lasted, size

WINDOW_S = 8.0  # what is said of the rate goes by the last so many seconds
ALL = "all hosts"


@dataclass
class Tally:
    """What is to come and what has come: of one host, or of all. `now` is a monotonic time, in seconds."""

    all_bytes: int = 0
    all_files: int = 0
    bytes: int = 0
    files: int = 0
    _seen: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])

    def came(self, count: int, now: float) -> None:
        if not self._seen:
            self._seen.append((now, self.bytes))
        self.bytes += count
        self._seen.append((now, self.bytes))
        while len(self._seen) > 2 and now - self._seen[1][0] > WINDOW_S:
            self._seen.popleft()

    def rate(self, now: float) -> float:
        """Bytes per second of late; 0 while nothing can be said."""
        if not self._seen or now <= self._seen[0][0]:
            return 0.0
        return (self.bytes - self._seen[0][1]) / (now - self._seen[0][0])

    def text(self, now: float) -> str:
        """`1.2 GB of 3.4 GB (35 %), 12 of 34 files, 45.2 MB/s, 48 s left`."""
        percent = f" ({100 * self.bytes // self.all_bytes} %)" if self.all_bytes else ""
        parts = [f"{size(self.bytes)} of {size(self.all_bytes)}{percent}", f"{self.files:,} of "]
        parts[1] += counted(self.all_files, "file")
        if rate := self.rate(now):
            parts += [f"{size(int(rate))}/s", f"{lasted(max(0, self.all_bytes - self.bytes) / rate)} left"]
        return ", ".join(parts)


class Progress:
    """Tells `say(subject, text)` of each host and of all hosts, at most once in `every_s` seconds."""

    def __init__(
        self, say: Callable[[str, str], None], *, every_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._every_s = every_s
        self._clock = clock
        self._hosts: defaultdict[str, Tally] = defaultdict(Tally)
        self._all = Tally()
        self._said = clock()
        self._counting = threading.Lock()

    def expect(self, host: str, count: int, files: int) -> None:
        """So many bytes and files will come from the host; below zero: they come no more."""
        with self._counting:
            for tally in (self._hosts[host], self._all):
                tally.all_bytes += count
                tally.all_files += files

    def came(self, host: str, count: int, *, files: int = 0) -> None:
        """So many bytes have come, and with them the ends of so many files."""
        with self._counting:
            now = self._clock()
            for tally in (self._hosts[host], self._all):
                tally.came(count, now)
                tally.files += files
            if now - self._said < self._every_s:
                return
            self._said = now
            lines = {name: tally.text(now) for name, tally in self._hosts.items() if tally.bytes < tally.all_bytes}
            if len(self._hosts) > 1:
                lines[ALL] = self._all.text(now)
        for subject, text in lines.items():
            self._say(subject, text)
