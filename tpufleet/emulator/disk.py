"""A full disk on a process host, as near as a process without privileges comes to one.

The host's files lie on the disk of the person who started the emulator, which is not to be filled. Instead the
host's processes may not let any file grow (RLIMIT_FSIZE 0): reading, deleting, pipes and empty files work, a write to
a file fails. The error is EFBIG ("File too large") where a full disk says ENOSPC, and `df` shows the real disk. A
process that ran before and has not ignored SIGXFSZ (Python does) is ended by its next write.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterable, Sequence

# A shell passes an ignored signal and its limits on to what it becomes.
STARTER = ("/bin/sh", "-c", 'trap "" XFSZ; ulimit -S -f 0; exec "$@"', "sh")


def starting(argv: Sequence[str]) -> list[str]:
    """`argv` as it is started on a host whose disk is full."""
    return [*STARTER, *argv]


def fill(pids: Iterable[int], full: bool) -> None:
    """The processes can't write any more, or can again; only the soft limit changes, which everybody may lift."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if full else hard, hard))


def no_space() -> OSError:
    """What a write says that the emulator itself makes for a person (SFTP)."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
