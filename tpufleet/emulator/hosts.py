"""A host of a node: its files, its SSH server, its metadata server, its processes.

`Host` is what the rest of the emulator knows of a host; `ProcessHost` is the kind whose sessions are ordinary
processes of the person who started the emulator. The other kind is in `namespace.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import asyncssh

from tpufleet.emulator import accounts_people, disk, metadata, processes, standins, startup
from tpufleet.emulator.commands import watch_exit
from tpufleet.emulator.network import Link
from tpufleet.emulator.sshd import SshServer

log = logging.getLogger(__name__)

PROCESS, NAMESPACE = "process", "namespace"  # the kinds of hosts
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
DIRECTORIES = {
    "dev": 0o755,
    "home": 0o755,
    "etc": 0o755,
    "etc/skel": 0o755,
    "run": 0o755,
    "tmp": 0o1777,
    "var/lib": 0o755,
    "var/tmp": 0o1777,
    "proc/sys/kernel/random": 0o755,
    "usr/local/bin": 0o755,
}
# /etc/profile of the machine may have set another PATH before this is read.
PROFILE = '. "$TPUFLEET_HOST_ROOT/etc/profile"\n'
# The end of the host's own /etc/profile, as Debian's has it; and the message of the day, which PAM shows on a VM.
PROFILE_D = """\
for part in "$TPUFLEET_HOST_ROOT"/etc/profile.d/*.sh; do
  [ ! -r "$part" ] || . "$part"
done
unset part
case $- in
  *i*) cat "$TPUFLEET_HOST_ROOT"/etc/motd "$TPUFLEET_HOST_ROOT"/etc/motd.d/* 2>/dev/null ;;
esac
"""


@dataclass
class Settings:
    """What can be changed while the emulator runs: directories first on hosts' PATH, the time a node takes."""

    path: Sequence[str] = ()
    create_seconds: float = 1.0
    manual: bool = False  # states advance by the keeper's `step`, not by time
    hosts: str = PROCESS  # the kind of hosts, for the daemon's life
    api_url: str = ""  # http://127.0.0.1:PORT, what hosts call to reach the TPU API; the daemon sets it


@dataclass(frozen=True)
class View:
    """What a host asks the cloud for, at the moment it needs it."""

    users: Callable[[], Mapping[str, set[bytes]]]  # who may log in, with their public keys (SSH's binary form)
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
class FolderHost:
    """What both kinds of hosts are: a folder with files and a host key, and a metadata server beside it."""

    place: Place
    settings: Settings
    view: View
    running: dict[int, subprocess.Popen[bytes]]  # the daemon's children of all hosts that somebody waits for, by pid
    link: Link = field(init=False, default_factory=Link)
    is_full: bool = field(init=False, default=False)
    _metadata: asyncio.Server | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.root = self.place.directory / "root"

    def host_key(self) -> str:
        return self.key().export_public_key("openssh").split()[1].decode()

    def key(self) -> asyncssh.SSHKey:
        path = self.key_file
        return asyncssh.read_private_key(path) if path.exists() else self.new_key()

    @property
    def key_file(self) -> Path:
        return self.place.directory / "ssh_host_ed25519_key"

    def new_key(self) -> asyncssh.SSHKey:
        path = self.key_file
        path.parent.mkdir(parents=True, exist_ok=True)
        key = asyncssh.generate_private_key(  # pyright: ignore[reportUnknownMemberType] - its options have no types
            "ssh-ed25519"
        )
        aside = path.with_suffix(".new")
        aside.touch(0o600)
        aside.write_bytes(key.export_private_key())
        aside.replace(path)
        return key

    async def open_metadata(self) -> None:
        self._metadata = await metadata.serve(self.place.address, self.view.metadata)

    def close_metadata(self) -> None:
        if self._metadata:
            self._metadata.close()
            self._metadata = None

    def startup_script(self) -> str | None:
        script = metadata.lookup(self.view.metadata(), startup.ATTRIBUTE)
        return script if isinstance(script, str) else None

    def make_directories(self, wanted: Mapping[str, int]) -> None:
        """Those `wanted` below the host's root, with their modes; /run and /tmp are empty after a boot."""
        for volatile in ("run", "tmp"):
            remove_tree(self.root / volatile)
        for name, mode in wanted.items():
            directory = self.root / name
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(mode)
        (self.root / "proc/sys/kernel/random/boot_id").write_text(f"{uuid.uuid4()}\n")

    async def wipe(self) -> None:
        gone = self.place.directory.with_name(f".gone-{uuid.uuid4()}")
        with contextlib.suppress(FileNotFoundError):
            self.place.directory.rename(gone)
        try:
            await asyncio.to_thread(remove_tree, gone)
        except OSError as error:  # the next start of the daemon tries again; the host is gone all the same
            log.warning("%s is not removed: %s", gone, error)

    def places(self) -> dict[str, str]:
        """Variables that say where a host finds the cloud."""
        return {
            "GCE_METADATA_HOST": self._metadata_address(),
            # where a host finds the TPU API, as gcloud is told; on a real VM it is Google's
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{self.settings.api_url}/",
        }

    def _metadata_address(self) -> str:
        if not self._metadata:
            return ""
        address, port = self._metadata.sockets[0].getsockname()
        return f"{address}:{port}"

    def started(self, process: subprocess.Popen[bytes]) -> None:
        self.running[process.pid] = process
        self.view.process_started()

    def ended(self, process: subprocess.Popen[bytes]) -> None:
        self.running.pop(process.pid, None)


@dataclass
class ProcessHost(FolderHost):
    """See `Host`; also the `Machine` of its SSH sessions."""

    _ssh: SshServer = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._ssh = SshServer(self, self.link)

    async def boot(self, listening: socket.socket) -> None:
        await asyncio.to_thread(self._lay_out, list(self.view.users()))
        await self.open_metadata()
        await self._ssh.open(listening, self.key())
        if script := self.startup_script():
            startup.run(self, self.root, script)
        log.info("%s is up at %s", self.place.name, self.place.address)

    def _lay_out(self, operators: Sequence[str]) -> None:
        self.make_directories(DIRECTORIES)
        for device in self.place.devices:
            file = self.root / device.lstrip("/")
            file.parent.mkdir(exist_ok=True)
            file.touch()
            file.chmod(0o666)
        (self.root / "etc/hostname").write_text(f"{self.place.name}\n")
        accounts_people.lay_out(self.root, operators)
        standins.install(self.root)
        self.refresh()

    def refresh(self) -> None:
        if self.root.exists():
            quoted = self._path().replace("'", "'\\''")
            (self.root / "etc/profile").write_text(f"export PATH='{quoted}'\n{PROFILE_D}")

    def change_key(self) -> None:
        self._ssh.change_key(self.new_key())

    async def move(self, listening: socket.socket) -> None:
        await self._ssh.close()
        await self._ssh.open(listening, self.key())
        log.info("%s has moved to %s", self.place.name, listening.getsockname()[0])

    def fill_disk(self, full: bool) -> None:
        self.is_full = full
        disk.fill(processes.below(self.root), full)

    async def halt(self) -> None:
        await self._ssh.close()
        self.close_metadata()
        killed = await processes.kill_below(self.root)
        log.info("%s is down, %d processes killed", self.place.name, killed)

    def keys(self, user: str) -> set[bytes]:
        operators = self.view.users()
        return operators[user] if user in operators else accounts_people.keys(self.root, user, time.time())

    def enter(self, user: str, cut: Callable[[], None]) -> Callable[[], None]:
        """See `House`. As with a real sshd, a person's connection is a process of theirs, and ends with it."""
        if not self._is_person(user):
            return lambda: None
        try:
            process = processes.stand_for(f"sshd: {user}", self.root, self._marks(user))
        except OSError as error:
            log.warning("%s can't come in at %s: %s", user, self.place.name, error)
            cut()
            return lambda: None
        self.running[process.pid] = process

        def ended(status: int) -> None:
            del status
            self.ended(process)
            cut()

        watch_exit(process, ended)
        return lambda: process.stdin and process.stdin.close()

    def _is_person(self, user: str) -> bool:
        """Whether `user` isn't the operator (or root, for the startup script), whatever /etc/passwd says by now."""
        return user != "root" and user not in self.view.users()

    def _marks(self, user: str) -> dict[str, str]:
        """Variables by which the processes of a host, and of a person, are found again."""
        person = {"TPUFLEET_PERSON": user} if self._is_person(user) else {}
        return {"TPUFLEET_HOST_ROOT": str(self.root), **person}

    def home(self, user: str) -> Path:
        home = self.root / "home" / user
        if not home.exists() and not self._is_person(user):
            home.mkdir(0o750)
            (home / ".ssh").mkdir(0o700)
            (home / ".profile").write_text(PROFILE)
        return home

    def environment(self, user: str, connection: str, wished: Mapping[str, str]) -> dict[str, str]:
        allowed = {name: value for name, value in wished.items() if name in ("LANG", "TERM") or name[:3] == "LC_"}
        person = accounts_people.account(self.root, user)
        return {
            "LANG": "C.UTF-8",
            **allowed,
            **{name: os.environ[name] for name in ("TZ",) if name in os.environ},
            "HOME": str(self.home(user)),
            "USER": user,
            "LOGNAME": user,
            "SHELL": _shell(person.shell if person else "/bin/bash"),
            "PATH": self._path(),
            "TMPDIR": str(self.root / "tmp"),
            **_way_in(connection),
            **self._marks(user),
            **self.places(),
        }

    def _path(self) -> str:
        return ":".join((str(self.root / "usr/local/bin"), *self.settings.path, SYSTEM_PATH))

    def argv(self, wanted: Sequence[str]) -> list[str]:
        return disk.starting(wanted) if self.is_full else list(wanted)

    def inside(self, path: Path) -> Path:
        return path


def _way_in(connection: str) -> dict[str, str]:
    """What sshd says of a connection ("" for none); with SSH_CLIENT, bash reads ~/.bashrc for a command as well."""
    if not connection:
        return {}
    peer, its_port, _, port = connection.split()
    return {"SSH_CONNECTION": connection, "SSH_CLIENT": f"{peer} {its_port} {port}"}


def _shell(wanted: str) -> str:
    return wanted if Path(wanted).exists() else "/bin/sh"


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
