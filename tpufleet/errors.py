"""Everything that can go wrong, as a tree; each class carries its exit code and whether a retry can help.

    TpufleetError                    1  (only its subclasses are raised)
    ├── UsageError                   2  the command line is wrong
    │   └── ConfigError              2  the fleet file is wrong: says file:line:column
    ├── CloudError                   4  Google (or the rehearsal cloud) said no
    │   ├── CapacityError            3  no chips in the zone now; another zone or a wait may help
    │   ├── QuotaError               4  a limit of the project
    │   ├── PermissionDenied         4  a permission or an API is missing
    │   │   └── ZoneNotGranted       4  the project may not use the zone; another one may do
    │   ├── NotFound                 4
    │   │   └── NotOffered           4  the zone doesn't have the type; another one may
    │   ├── Conflict                 4  the state of a thing doesn't allow what was asked
    │   │   ├── AlreadyExists        4  the name is taken
    │   │   └── Aborted              4  another change was under way at the same moment; retryable
    │   ├── RateLimited              4  too many calls; retryable, after `retry_after_s` if Google said so
    │   ├── StuckOperation           4  what was asked for neither ends nor fails
    │   └── CloudUnreachable         5  nobody answers, or only with errors of its own; retryable
    ├── HostError                    5  a host could not do what it was asked
    │   ├── Unreachable              5  no answer, refused, or cut; retryable
    │   ├── HostKeyMismatch          5  another machine answers than the one we made
    │   ├── AccessRefused            5  the host does not accept the fleet's key
    │   └── HostFault                5  the host answered with an error of its own (`kind` says which)
    ├── CodeError                    2  the training repository can't be read or has no such commit
    ├── PartialFailure               6  some of many failed
    ├── RunFailed                    7  a run failed for good
    └── StateError                   8  local state is locked or unreadable
        └── DiskFull                 8  a disk here has no room for it
            └── NoRoom               8  nor would it have for all that is to come, so that was not begun

An error holds a sentence (what happened), a place (where, if there is one) and a hint (the next command to
type). `tpufleet.__main__` is the only place that turns one into an exit code.
"""

from __future__ import annotations

from typing import ClassVar


class TpufleetError(Exception):
    """Base of the tree.

    `message` is one sentence for a person, `where` a place such as `tpufleet.yaml:4:7`, `hint` the next step.
    """

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class UsageError(TpufleetError):
    exit_code = 2


class ConfigError(UsageError):
    pass


class CodeError(TpufleetError):
    exit_code = 2


class CloudError(TpufleetError):
    """`retry_after_s`: how long Google asked to wait before the next try, where it said so."""

    exit_code = 4

    def __init__(
        self, message: str, *, where: str | None = None, hint: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.retry_after_s = retry_after_s


class CapacityError(CloudError):
    exit_code = 3
    retryable = True


class QuotaError(CloudError):
    pass


class PermissionDenied(CloudError):
    pass


class ZoneNotGranted(PermissionDenied):
    pass


class NotFound(CloudError):
    pass


class NotOffered(NotFound):
    pass


class Conflict(CloudError):
    pass


class AlreadyExists(Conflict):
    pass


class Aborted(Conflict):
    retryable = True


class RateLimited(CloudError):
    retryable = True


class StuckOperation(CloudError):
    pass


class CloudUnreachable(CloudError):
    exit_code = 5
    retryable = True


class HostError(TpufleetError):
    exit_code = 5


class Unreachable(HostError):
    retryable = True


class HostKeyMismatch(HostError):
    pass


class AccessRefused(HostError):
    pass


class HostFault(HostError):
    """The host's own answer; `kind` is the agent's word for it, such as `disk-full` or `setup-failed`."""

    def __init__(self, message: str, *, kind: str, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, where=where, hint=hint)
        self.kind = kind


class PartialFailure(TpufleetError):
    exit_code = 6


class RunFailed(TpufleetError):
    exit_code = 7


class StateError(TpufleetError):
    exit_code = 8


class DiskFull(StateError):
    """Raised for the first `path` that could not be written."""

    def __init__(self, path: object) -> None:
        super().__init__(
            f"the disk is full: no room for {path}", hint="make room there, then run the same command again"
        )


class NoRoom(DiskFull):
    """Raised before the bytes come; `needed` and `free` as a person reads them: `3.2 GB`."""

    def __init__(self, path: object, *, needed: str, free: str) -> None:
        super().__init__(path)
        self.message = f"too little room at {path}: {needed} are to come, and {free} may be used"


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM (exit codes 130, 143). Not of the tree, so that nothing handles it by accident."""

    def __init__(self, number: int = 2) -> None:
        super().__init__(number)
        self.signal = number
