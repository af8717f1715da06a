"""Every local and remote path of tpufleet, in one place."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from tpufleet.errors import DiskFull, StateError

# On a host everything lies below the host's root: `/` on a real VM, a directory on the rehearsal cloud.
REMOTE_BASE = '"${TPUFLEET_HOST_ROOT-}"/var/lib/tpufleet'


ELSEWHERE = "TPUFLEET_EMULATOR"  # names the directory of a rehearsal cloud that isn't this fleet's own


def remote_agent(digest: str) -> str:
    """The agent's directory on a host, as a word for the host's shell."""
    return f"{REMOTE_BASE}/lib/{digest}"


def remote_bundle(repo_id: str, commit: str) -> str:
    """Where a git bundle is put on a host, as a word for the host's shell."""
    return f"{REMOTE_BASE}/code/{repo_id}/bundles/{commit}.bundle"


def remote_staged(run: str, number: int) -> str:
    """Where a file of a run (a RunId) waits for the agent to put it in its place, as a word for the host's shell."""
    return f"{REMOTE_BASE}/restore/{run}/{number}"


class LocalPaths:
    """What lies beside the fleet file: `.tpufleet/` (state) and `artifacts/FLEET/` (what came home)."""

    def __init__(self, config: Path, fleet: str) -> None:
        self.config = config
        self.directory = config.parent
        self.state = self.directory / ".tpufleet"
        self.key = self.state / "key"
        self.journal = self.state / "journal.db"
        self.lock = self.state / "lock"
        self.watch_lock = self.state / "watch.lock"
        self.people = self.state / "people.json"
        self.people_lock = self.state / "people.lock"  # whoever changes the list of people
        self.sign_ups = self.state / "signups.json"
        self.board_lock = self.state / "board.lock"
        self.pins = self.state / "hostkeys.json"
        self.known_hosts = self.state / "known_hosts"
        self.ssh_config = self.state / "ssh_config"
        # another project's, or a test's, may be shared
        self.emulator = Path(os.environ.get(ELSEWHERE) or self.state / "emulator").absolute()
        self.artifacts = self.directory / "artifacts" / fleet
        self.home_lock = self.artifacts / ".lock"  # whoever writes what comes home, be it for another project
        self.runs = self.artifacts / "runs"
        self.report = self.artifacts / "report" / "index.html"
        self.belongings = self.artifacts / "people"  # of people who agreed

    def ensure_state(self) -> Path:
        """Make the state directory (0700, ignored by git) and return it; raises StateError when it can not."""
        try:
            with writing(self.state):
                self.state.mkdir(mode=0o700, exist_ok=True)
                self.state.chmod(0o700)
                ignore = self.state / ".gitignore"
                if not ignore.exists():
                    write_atomically(ignore, b"*\n")
        except OSError as error:
            raise StateError(
                f"the state directory {self.state} can't be made: {error.strerror or error}",
                hint="check who owns the directory of the fleet file",
            ) from error
        return self.state


@contextlib.contextmanager
def writing(path: Path) -> Generator[None]:
    """For what writes at `path`: where the disk has no room for it, DiskFull says so, and where."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DiskFull(error.filename or path) from error


def write_atomically(path: Path, data: bytes, mode: int = 0o600, *, once: bool = False) -> None:
    """Replace `path` by `data` so that a reader, or a crash, sees the old content or the new one, never a part.

    With `once` a `path` that is there already stays as it is. Raises DiskFull, and leaves nothing behind then.
    """
    with replacing(path, mode, once=once) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o600, *, once: bool = False) -> Generator[BinaryIO]:
    """The same for what is written bit by bit: a file that replaces `path` if the block ends well."""
    aside = path.with_name(f".{path.name}.part")
    with writing(path), os.fdopen(_ours_alone(aside, mode), "wb") as file:
        try:
            file.truncate()
            yield file
            file.flush()
            os.fsync(file.fileno())
            if once and path.exists():
                aside.unlink()
            else:
                aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise


def _ours_alone(aside: Path, mode: int) -> int:
    """A descriptor of `aside`, for one writer at a time. All have the same name, so what a killed one left is used."""
    while True:
        try:
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            aside.unlink(missing_ok=True)  # a link would lead elsewhere
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), aside.stat()):
                return descriptor
        os.close(descriptor)  # whoever had it before us has put it in its place
