"""A host of a node: its files, its SSH server, its metadata server, its processes.

`Host` is what the rest of the emulator knows of a host; `ProcessHost` is the kind whose sessions are ordinary
processes of the person who started the emulator.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import asyncssh

from tpufleet.emulator import disk, metadata, processes, standins, startup
from tpufleet.emulator.network import Link
from tpufleet.emulator.sshd import SshServer

log = logging.getLogger(__name__)

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
DIRECTORIES = {
    "dev": 0o755,
    "home": 0o755,
    "etc": 0o755,
    "run": 0o755,
    "tmp": 0o1777,
    "var/lib": 0o755,
    "var/tmp": 0o1777,
    "proc/sys/kernel/random": 0o755,
    "usr/local/bin": 0o755,
}
# /etc/profile of the machine may have set another PATH before this is read.
PROFILE = '. "$TPUFLEET_HOST_ROOT/etc/profile"\n'


@dataclass
class Settings:
    """What can be changed while the emulator runs: directories first on hosts' PATH, the time a node takes."""

    path: Sequence[str] = ()
    create_seconds: float = 1.0
    manual: bool = False  # states advance by the keeper's `step`, not by time
    api_url: str = ""  # http://127.0.0.1:PORT, what hosts call to reach the TPU API; the daemon sets it


@dataclass(frozen=True)
class View:
    """What a host asks the cloud for, at the moment it needs it."""

    keys_of: Callable[[str], set[bytes]]
    metadata: Callable[[], metadata.Tree]
    process_started: Callable[[], None]


@dataclass(frozen=True)
class Place:
    """Which host: its name, directory, address and device files (`/dev/accel0`)."""

    name: str
    directory: Path
    address: str
    devices: tuple[str, ...]


class Host(Protocol):
    """The seam between kinds of hosts."""

    link: Link  # the way to its SSH server

    def host_key(self) -> str:
        """The base64 of the host's public ed25519 key; made on first use, then kept."""
        ...

    async def boot(self, listening: socket.socket) -> None:
        """Comes up with a new boot id, an empty /run and /tmp, and an SSH server on `listening`."""
        ...

    async def halt(self) -> None:
        """Cuts every connection and ends every process; files stay. Does nothing to a host that is down."""
        ...

    async def wipe(self) -> None:
        """Removes the files of a host that was halted."""
        ...

    def refresh(self) -> None:
        """The settings have changed."""
        ...

    def change_key(self) -> None:
        """The SSH server has another host key from now on; open connections go on."""
        ...

    async def move(self, listening: socket.socket) -> None:
        """The SSH server is at another address: open connections are cut, processes go on."""
        ...

    def fill_disk(self, full: bool) -> None:
        """Nothing can be written, or it can be again; holds over a reboot."""
        ...


@dataclass
class ProcessHost:
    """See `Host`; also the `Machine` of its SSH sessions."""

    place: Place
    settings: Settings
    view: View
    running: dict[int, subprocess.Popen[bytes]]  # session processes of all hosts, by pid
    link: Link = field(init=False, default_factory=Link)
    is_full: bool = field(init=False, default=False)
    _ssh: SshServer = field(init=False)
    _metadata: asyncio.Server | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.root = self.place.directory / "root"
        self._ssh = SshServer(self, self.view.keys_of, self.link)

    def host_key(self) -> str:
        return self._key().export_public_key("openssh").split()[1].decode()

    def _key(self) -> asyncssh.SSHKey:
        path = self._key_file
        return asyncssh.read_private_key(path) if path.exists() else self._new_key()

    @property
    def _key_file(self) -> Path:
        return self.place.directory / "ssh_host_ed25519_key"

    def _new_key(self) -> asyncssh.SSHKey:
        path = self._key_file
        self.place.directory.mkdir(parents=True, exist_ok=True)
        key = asyncssh.generate_private_key(  # pyright: ignore[reportUnknownMemberType] - its options have no types
            "ssh-ed25519"
        )
        aside = path.with_suffix(".new")
        aside.touch(0o600)
        aside.write_bytes(key.export_private_key())
        aside.replace(path)
        return key

    async def boot(self, listening: socket.socket) -> None:
        await asyncio.to_thread(self._lay_out)
        self._metadata = await metadata.serve(self.place.address, self.view.metadata)
        await self._ssh.open(listening, self._key())
        script = metadata.lookup(self.view.metadata(), startup.ATTRIBUTE)
        if isinstance(script, str):
            startup.run(self, self.root, script)
        log.info("%s is up at %s", self.place.name, self.place.address)

    def _lay_out(self) -> None:
        for volatile in ("run", "tmp"):
            remove_tree(self.root / volatile)
        for name, mode in DIRECTORIES.items():
            directory = self.root / name
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(mode)
        for device in self.place.devices:
            file = self.root / device.lstrip("/")
            file.parent.mkdir(exist_ok=True)
            file.touch()
            file.chmod(0o666)
        (self.root / "proc/sys/kernel/random/boot_id").write_text(f"{uuid.uuid4()}\n")
        (self.root / "etc/hostname").write_text(f"{self.place.name}\n")
        standins.install(self.root / "usr/local/bin")
        self.refresh()

    def refresh(self) -> None:
        if self.root.exists():
            quoted = self._path().replace("'", "'\\''")
            (self.root / "etc/profile").write_text(f"export PATH='{quoted}'\n")

    def change_key(self) -> None:
        self._ssh.change_key(self._new_key())

    async def move(self, listening: socket.socket) -> None:
        await self._ssh.close()
        await self._ssh.open(listening, self._key())
        log.info("%s has moved to %s", self.place.name, listening.getsockname()[0])

    def fill_disk(self, full: bool) -> None:
        self.is_full = full
        disk.fill(processes.below(self.root), full)

    async def halt(self) -> None:
        await self._ssh.close()
        if self._metadata:
            self._metadata.close()
            self._metadata = None
        killed = await processes.kill_below(self.root)
        log.info("%s is down, %d processes killed", self.place.name, killed)

    async def wipe(self) -> None:
        gone = self.place.directory.with_name(f".gone-{uuid.uuid4()}")
        with contextlib.suppress(FileNotFoundError):
            self.place.directory.rename(gone)
        try:
            await asyncio.to_thread(remove_tree, gone)
        except OSError as error:  # the next start of the daemon tries again; the host is gone all the same
            log.warning("%s is not removed: %s", gone, error)

    def home(self, user: str) -> Path:
        home = self.root / "home" / user
        if not home.exists():
            home.mkdir(0o750)
            (home / ".ssh").mkdir(0o700)
            (home / ".profile").write_text(PROFILE)
        return home

    def environment(self, user: str, connection: str, wished: Mapping[str, str]) -> dict[str, str]:
        allowed = {name: value for name, value in wished.items() if name in ("LANG", "TERM") or name[:3] == "LC_"}
        return {
            "LANG": "C.UTF-8",
            **allowed,
            "HOME": str(self.home(user)),
            "USER": user,
            "LOGNAME": user,
            "SHELL": "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh",
            "PATH": self._path(),
            "TMPDIR": str(self.root / "tmp"),
            "SSH_CONNECTION": connection,
            "TPUFLEET_HOST_ROOT": str(self.root),
            "GCE_METADATA_HOST": self._metadata_address(),
            # where a host finds the TPU API, as gcloud is told; on a real VM it is Google's
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{self.settings.api_url}/",
        }

    def _path(self) -> str:
        return ":".join((str(self.root / "usr/local/bin"), *self.settings.path, SYSTEM_PATH))

    def _metadata_address(self) -> str:
        if not self._metadata:
            return ""
        address, port = self._metadata.sockets[0].getsockname()
        return f"{address}:{port}"

    def argv(self, wanted: Sequence[str]) -> list[str]:
        return disk.starting(wanted) if self.is_full else list(wanted)

    def started(self, process: subprocess.Popen[bytes]) -> None:
        self.running[process.pid] = process
        self.view.process_started()

    def ended(self, process: subprocess.Popen[bytes]) -> None:
        self.running.pop(process.pid, None)


def remove_tree(directory: Path) -> None:
    """Removes `directory` and all below it, also directories that their owner made read-only; never follows links."""
    if not directory.is_dir() or directory.is_symlink():
        directory.unlink(missing_ok=True)
        return
    directory.chmod(0o700)
    for parent, names, _ in os.walk(directory):
        for below in (Path(parent, name) for name in names):
            if not below.is_symlink():
                below.chmod(0o700)
    shutil.rmtree(directory)
