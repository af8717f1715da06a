"""The one error of the host side: a kind for programs, a sentence for people."""

from __future__ import annotations

import errno

BAD_REQUEST = "bad-request"
DISK_FULL = "disk-full"
GIT = "git"
SETUP_FAILED = "setup-failed"
NOT_FOUND = "not-found"
DRIFT = "drift"
INTERNAL = "internal"


class HostError(Exception):
    """Something a host or a person can cause; `kind` is one of this module's constants."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def bad(message: str) -> HostError:
    """The error for a request that asks for something impossible."""
    return HostError(BAD_REQUEST, message)


def from_os(error: OSError) -> HostError:
    """What a failed system call means to a person."""
    if is_disk_full(error):
        return HostError(DISK_FULL, "the host's disk is full")
    where = f": {error.filename}" if error.filename else ""
    return HostError(INTERNAL, f"{error.strerror or error}{where}")


def is_disk_full(error: OSError) -> bool:
    """No room, no quota, or a limit that lets no file grow, which is the rehearsal cloud's full disk."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
