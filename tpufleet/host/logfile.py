"""A run's log below its limit: a plain file that the training appends to by itself, out of which the middle is cut.

Whoever reads on in a log counts its bytes as they were written: the *offset* counts what was cut out as well, the
*position* is where that byte lies in the file now. All of this is for whoever holds the run's `scan_lock` (`steady`).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator
from typing import NamedTuple

from tpufleet.host import files, locks
from tpufleet.host.places import RunPlaces

BLOCK = 1 << 20
LONGEST_LINE = 64 << 10
PATIENCE_S = 5.0  # others hold the lock for as long as a scan or a cut takes


class Cut(NamedTuple):
    """What was cut out: after the first `head` bytes there is a note of `note` bytes in place of `gone` ones.

    `before` is set while a cut is under way: the file's size before it, and `tail` where what stays begins in it.
    """

    head: int = 0
    note: int = 0
    gone: int = 0
    before: int | None = None
    tail: int = 0

    def position(self, offset: int) -> int:
        """Where the byte `offset` is; for one that is gone, the note that says so."""
        if offset < self.head + self.gone:
            return min(offset, self.head)
        return offset - self.gone + self.note

    def offset(self, position: int) -> int:
        return position if position <= self.head else max(0, position - self.head - self.note) + self.head + self.gone


@contextlib.contextmanager
def steady(run: RunPlaces) -> Generator[None]:
    """Nobody cuts the log meanwhile."""
    lock = locks.try_lock(run.scan_lock, PATIENCE_S)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def cut_of(run: RunPlaces) -> Cut:
    """What was cut out of the run's log, after finishing a cut that was broken off; nothing for a log begun anew."""
    stored = files.read_json(run.cut)
    if stored is None:
        return Cut()
    cut, size = Cut(**{name: stored[name] for name in Cut._fields}), size_of(run)
    if cut.before is not None:
        return _carry_out(run, cut) if size >= cut.before else _done(run, cut)
    if size < cut.head + cut.note:
        run.cut.unlink(missing_ok=True)
        return Cut()
    return cut


def size_of(run: RunPlaces) -> int:
    """The log's size as a file; 0 where there is none, or something else in its place."""
    try:
        status = run.log.lstat()
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def is_torn(run: RunPlaces) -> bool:
    """Whether the log ends in the middle of a line: what wrote it was killed."""
    return read(run, max(0, size_of(run) - 1), 1) not in (b"", b"\n")


def end_of(run: RunPlaces) -> int:
    """How many bytes were ever written to the log."""
    return cut_of(run).offset(size_of(run))


def tail_of(run: RunPlaces, since: int, most: int) -> bytes:
    """The last bytes that were written from the offset `since` on, at most so many."""
    length = max(0, min(most, end_of(run) - since))
    return read(run, max(0, size_of(run) - length), length)


def read(run: RunPlaces, position: int, size: int) -> bytes:
    try:
        fd = files.open_beneath(run.log.parent, run.log.name)
    except OSError:
        return b""  # the job removed its log, or put something else there
    try:
        return os.pread(fd, size, position)
    finally:
        os.close(fd)


def next_cut(run: RunPlaces, limit: int) -> Cut | None:
    """The cut that brings a log which is larger than `limit` back to half of it: what comes first and last stays."""
    size = size_of(run)
    if size <= limit:
        return None
    now, part = cut_of(run), limit // 4
    head = now.head if now.gone else read(run, 0, part).rfind(b"\n") + 1 or part
    tail = size - part
    tail += read(run, tail, min(part, LONGEST_LINE)).find(b"\n") + 1
    cut = Cut(head, 0, now.offset(tail) - head, before=size, tail=tail)
    return cut._replace(note=len(_note(cut)))


def shorten(run: RunPlaces, cut: Cut) -> None:
    """Carries out a `next_cut`. Killed at any moment, the next reader finishes it (`cut_of`)."""
    files.write_json(run.cut, cut._asdict())
    _carry_out(run, cut)


def _carry_out(run: RunPlaces, cut: Cut) -> Cut:
    """Copies what stays over what goes, and only then ends the file there: the training's descriptor appends, so it
    goes on at the new end. What it writes between the last look and the end, a few microseconds, is lost."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(run.log, flags)
    try:
        note = _note(cut)
        os.pwrite(fd, note, cut.head)
        source, target = cut.tail, cut.head + len(note)
        while block := os.pread(fd, BLOCK, source):
            os.pwrite(fd, block, target)
            source += len(block)
            target += len(block)
        os.ftruncate(fd, target)
    finally:
        os.close(fd)
    return _done(run, cut)


def _done(run: RunPlaces, cut: Cut) -> Cut:
    cut = cut._replace(before=None, tail=0)
    files.write_json(run.cut, cut._asdict())
    return cut


def _note(cut: Cut) -> bytes:
    return b"tpufleet: %d bytes of this log were cut out here, it was larger than log_limit_mb\n" % cut.gone
