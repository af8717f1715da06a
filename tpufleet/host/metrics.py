"""Numbers of a run: its last ones from the tail of metrics.jsonl, and those that patterns find in its log.

What a pattern finds is appended to metrics.jsonl as `{"step": n, name: value}`, each line of the log exactly once: how
far the log was read is kept in `control/RUN/metrics.json`, together with the lines that were about to be appended, so
that whoever goes on after a crash can tell whether they were. A number that the job writes itself is not doubled.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import stat
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

from tpufleet.host import files, locks, logfile
from tpufleet.host.places import RunPlaces

TAIL = 64 << 10
CHUNK = 4 << 20
LONGEST_LINE = 4096
LINE_BREAK = re.compile(rb"[\r\n]+")

# A pattern that needs longer for one line (of 4096 bytes) backtracks without end; it is not used again.
PATTERN_BUDGET_S = 0.25


class Latest(NamedTuple):
    """The last step and the last value of each metric; None for a value that is no finite number."""

    step: int | None
    metrics: dict[str, float | None]


def latest(path: Path) -> Latest:
    """The last numbers in the last 64 KiB of a metrics.jsonl; a half-written line at its end is passed over."""
    return numbers(_tail(path))


def numbers(data: bytes) -> Latest:
    """The last numbers in lines of a metrics.jsonl."""
    step: int | None = None
    metrics: dict[str, float | None] = {}
    for record in _records(data):
        for name, value in record.items():
            if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
                continue
            number = None if value is None else _finite(value)
            if name != "step":
                metrics[name] = number
            elif number is not None:
                step = int(number)
    return Latest(step, metrics)


def begin(run: RunPlaces) -> None:
    """Before a run's first attempt here: what stands in metrics.jsonl came from another host and says nothing about
    what the job writes itself."""
    if not run.scan.exists():
        files.write_json(run.scan, {"metrics_offset": size_of(run.metrics)})


def records_from(path: Path, offset: int) -> tuple[list[files.JsonObject], int]:
    """The records of a metrics.jsonl from `offset` on, a few MiB of them at most, and the offset behind them."""
    offset = offset if offset <= size_of(path) else 0  # the job began it anew
    data = _read_from(path, offset, CHUNK)
    whole = len(data) if len(data) == CHUNK and b"\n" not in data else data.rfind(b"\n") + 1
    return list(_records(data[:whole])), offset + whole


def scan(run: RunPlaces, patterns: dict[str, str], log_limit: int | None = None, *, at_end: bool = False) -> None:
    """Reads on in the run's log and appends what the patterns find; `at_end`: the log will not grow any more.

    A log that is larger than `log_limit` is cut once the part that goes was read. Works at most a few MiB a call
    unless `at_end` or it cuts. Two at once: the second does nothing. Main thread only (SIGALRM).
    """
    if (not patterns and log_limit is None) or not run.log.exists():
        return
    lock = locks.try_lock(run.scan_lock, patience_s=2.0 if at_end else 0.0)
    if lock is None:
        return
    try:
        scanner = _Scanner(run, patterns) if patterns else None
        while scanner is not None and scanner.advance(at_end) and at_end:
            pass
        if log_limit is not None:
            _keep_below(run, log_limit, scanner)
    finally:
        os.close(lock)


def _keep_below(run: RunPlaces, limit: int, scanner: _Scanner | None) -> None:
    """Cuts a log that is too large, but not what was not read yet; twice as large, it is cut all the same."""
    cut = logfile.next_cut(run, limit)
    if cut is None:
        return
    while scanner is not None and scanner.log_offset < cut.head + cut.gone and scanner.advance(at_end=False):
        pass
    if scanner is None or scanner.log_offset >= cut.head + cut.gone or logfile.size_of(run) > 2 * limit:
        logfile.shorten(run, cut)


class _Scanner:
    """One reader of a log, from where the last one stopped."""

    def __init__(self, run: RunPlaces, patterns: dict[str, str]) -> None:
        self.run = run
        self.patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
        kept = files.read_json(run.scan) or {}
        self.log_offset: int = kept.get("log_offset", 0)
        self.metrics_offset: int = kept.get("metrics_offset", 0)
        self.step: int | None = kept.get("step")
        self.counts: dict[str, int] = kept.get("counts", {})
        self.jobs_own: set[str] = set(kept.get("jobs_own", []))
        self.disabled: set[str] = set(kept.get("disabled", []))
        self._append_once(kept.get("pending", ""))

    def advance(self, at_end: bool) -> bool:
        """Reads one chunk; whether it came on."""
        self._note_what_the_job_writes()
        cut = logfile.cut_of(self.run)
        if cut.offset(logfile.size_of(self.run)) < self.log_offset:
            self.log_offset = 0  # the job began its log anew
        position = cut.position(self.log_offset)
        chunk = self._next_chunk(position, at_end)
        if not chunk or not self._can_append(at_end):
            return False
        pending = "".join(self._matches(chunk))
        self.log_offset = cut.offset(position + len(chunk))
        self._save(pending)
        self._append_once(pending)
        return True

    def _next_chunk(self, position: int, at_end: bool) -> bytes:
        """Whole lines of the log; at the end, or where a line never ends, whatever there is."""
        chunk = logfile.read(self.run, position, CHUNK)
        whole = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        endless = not whole and len(chunk) == CHUNK
        return chunk if endless or (at_end and len(chunk) < CHUNK) else chunk[:whole]

    def _matches(self, chunk: bytes) -> Iterator[str]:
        """A line for metrics.jsonl for each number found."""
        for raw in LINE_BREAK.split(chunk):
            if not raw:
                continue
            line = raw[:LONGEST_LINE].decode(errors="replace")
            step = self._number("step", line)
            if step is not None and math.isfinite(step):
                self.step = int(step)
            for name in self.patterns:
                if name == "step" or name in self.jobs_own:
                    continue
                value = self._number(name, line)
                if value is not None:
                    self.counts[name] = self.counts.get(name, 0) + 1
                    step_or_count = self.counts[name] if self.step is None else self.step
                    yield json.dumps({"step": step_or_count, name: _finite(value)}) + "\n"

    def _number(self, name: str, line: str) -> float | None:
        pattern = self.patterns.get(name)
        if pattern is None or name in self.disabled:
            return None
        try:
            with _time_limit(PATTERN_BUDGET_S):
                match = pattern.search(line)
        except TimeoutError:
            self.disabled.add(name)
            return None
        if match is None:
            return None
        try:
            return float(match.group(pattern.groups) or "")
        except ValueError:
            return None

    def _note_what_the_job_writes(self) -> None:
        """Remembers the names in records that the job itself appended since the last look."""
        new = _read_from(self.run.metrics, self.metrics_offset, CHUNK)
        whole = new.rfind(b"\n") + 1
        self._these_are_the_jobs(new[:whole])
        self.metrics_offset += whole

    def _these_are_the_jobs(self, lines: bytes) -> None:
        for record in _records(lines):
            self.jobs_own |= record.keys() - {"step"}

    def _can_append(self, at_end: bool) -> bool:
        """Not into the middle of a line that the job is writing; once it is gone, nobody completes that line."""
        return at_end or _tail(self.run.metrics, 1) in (b"", b"\n")

    def _append_once(self, pending: str) -> None:
        """Appends `pending` unless it stands behind `metrics_offset` already, and steps over it."""
        if not pending:
            return
        blob = pending.encode()
        since = _read_from(self.run.metrics, self.metrics_offset, CHUNK)
        if blob not in since:
            separator = b"" if _tail(self.run.metrics, 1) in (b"", b"\n") else b"\n"
            _append(self.run.metrics, separator + blob)
        self._these_are_the_jobs(since.replace(blob, b"", 1))  # our own lines are no evidence that the job writes them
        self.metrics_offset = size_of(self.run.metrics)
        self._save("")

    def _save(self, pending: str) -> None:
        kept = {
            "log_offset": self.log_offset,
            "metrics_offset": self.metrics_offset,
            "step": self.step,
            "counts": self.counts,
            "jobs_own": sorted(self.jobs_own),
            "disabled": sorted(self.disabled),
            "pending": pending,
        }
        files.write_json(self.run.scan, kept)


@contextlib.contextmanager
def _time_limit(seconds: float) -> Generator[None]:
    """Raises TimeoutError in the middle of a match: Python's `re` looks for signals while it backtracks."""

    def expire(_number: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _tail(path: Path, size: int = TAIL) -> bytes:
    return _read_from(path, max(0, size_of(path) - size), size)


def _read_from(path: Path, offset: int, size: int) -> bytes:
    """Bytes of a regular file; nothing for anything else that the job may have put there (a pipe would hang us)."""
    try:
        fd = files.open_beneath(path.parent, path.name)
    except OSError:
        return b""
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)


def changed(path: Path) -> float:
    """When a file was last written to, in seconds of Unix time; 0 where there is none."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def size_of(path: Path) -> int:
    try:
        status = path.lstat()
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _append(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError), os.fdopen(os.open(path, flags, 0o644), "wb") as file:
        file.write(data)


def _records(data: bytes) -> Iterator[files.JsonObject]:
    for line in data.splitlines():
        try:
            record = files.as_object(json.loads(line))
        except (ValueError, RecursionError):
            continue
        if record is not None:
            yield record


def _finite(value: float) -> float | None:
    """A number that JSON can say, else None (a loss may well become NaN)."""
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
