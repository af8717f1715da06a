"""Hosts that are machines of their own as far as Linux lets them be: OpenSSH's sshd in its own mount, pid, UTS and IPC
namespaces, so that accounts, sudo, file modes, /tmp and pids are real. They need Linux and root.

A host's first process dies with the daemon, however that ends, and all processes and mounts of the host with it. The
network is the machine's: connections come through the daemon, where faults can act on them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tpufleet.emulator import disk, namespace_files, namespace_init, startup
from tpufleet.emulator.commands import watch_exit
from tpufleet.emulator.hosts import SYSTEM_PATH, FolderHost
from tpufleet.emulator.namespace_door import Door
from tpufleet.emulator.namespace_files import HOST_KEY, KEYS, SSHD_PID
from tpufleet.emulator.namespace_guest import Guest
from tpufleet.emulator.wire import ApiError

log = logging.getLogger(__name__)

NEW = ("--mount", "--pid", "--uts", "--ipc")
ROOTS_PATH = f"/usr/local/sbin:/usr/sbin:/sbin:{SYSTEM_PATH}"
PROGRAMS = ("unshare", "nsenter", "setpriv", "sshd", "useradd", "gpasswd", "su", "runuser", "bash")
MODES = {"home": 0o755, "run/sshd": 0o755, "tmp": 0o1777, "var/tmp": 0o1777}
BOOT_S = 20
LOOK_S = 0.01


def why_not(directory: Path) -> str | None:
    """What is in the way of namespace hosts with their files in `directory`; None when nothing is."""
    if sys.platform != "linux" or os.geteuid():
        return "namespace hosts need Linux and root"
    missing = [program for program in PROGRAMS if not shutil.which(program, path=ROOTS_PATH)]
    if missing:
        return f"namespace hosts need {', '.join(missing)}, which this machine doesn't have"
    without = set(namespace_init.LAYERED) - {"opt", "root", "srv"} - set(namespace_init.layered(directory.resolve()))
    if without:
        return f"namespace hosts can't have their files in {directory}: take one that isn't below /{without.pop()}"
    tried = subprocess.run(["unshare", *NEW, "--fork", "true"], capture_output=True, text=True, check=False)
    return f"namespace hosts can't be had here: {tried.stderr.strip()}" if tried.returncode else None


@dataclass
class NamespaceHost(FolderHost):
    """See `hosts.Host`; also what `startup.run` needs of a machine."""

    _door: Door = field(init=False)
    _life: subprocess.Popen[bytes] | None = field(init=False, default=None)  # its one child is the first process
    _died: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _guest: Guest = field(init=False)
    _guarding: asyncio.Task[None] | None = field(init=False, default=None)
    _sshd: tuple[str, int] = field(init=False, default=("", 0))

    def __post_init__(self) -> None:
        super().__post_init__()
        self._door = Door(self.link, self.view.process_started)
        self._guest = Guest(self.view.users, self.root / KEYS.lstrip("/"), self._as_root)

    @property
    def key_file(self) -> Path:
        return self.root / HOST_KEY.lstrip("/")

    async def boot(self, listening: socket.socket) -> None:
        try:
            await self.open_metadata()
            self._sshd = (self.place.address, _free_port(self.place.address))
            await asyncio.to_thread(self._lay_out)
            self._live()
            async with asyncio.timeout(BOOT_S):
                await self._listens()
            if self.is_full:
                self.fill_disk(True)
            await self._guest.begin()
        except (OSError, TimeoutError) as error:
            await self.halt()
            listening.close()
            raise ApiError("INTERNAL", f"{self.place.name} does not come up: {error or 'too slow'}") from error
        self._guarding = asyncio.create_task(self._guest.go_on())
        await self._door.open(listening, self._sshd)
        if script := self.startup_script():
            startup.run(self, self.root, script)
        log.info("%s is up at %s", self.place.name, self.place.address)

    def _lay_out(self) -> None:
        own = dict.fromkeys((*namespace_init.OWN, "proc/sys/kernel/random", KEYS.lstrip("/")), 0o755)
        self.make_directories(own | MODES)
        for name in namespace_init.LAYERED:
            for below in ("layers", "work"):
                (self.place.directory / below / name).mkdir(parents=True, exist_ok=True)
        self.key()
        namespace_files.lay_out(self.place.directory / "layers", self.place.name, self._sshd, self._variables())

    def _variables(self) -> dict[str, str]:
        return {"PATH": ":".join((*self.settings.path, SYSTEM_PATH)), **self.places()}

    def _live(self) -> None:
        """Starts the first process. Both links of the chain to it hold for a daemon that is killed as well."""
        plan = {
            "name": self.place.name,
            "devices": self.place.devices,
            "shown": sorted(_seen(self.settings.path)),
            "environment": {"PATH": ROOTS_PATH, "LANG": "C.UTF-8"},
            "command": [shutil.which("sshd", path=ROOTS_PATH), "-D", "-e"],
        }
        program = [sys.executable, "-IS", namespace_init.__file__, json.dumps(plan)]
        self._died = asyncio.Event()
        self._log.unlink(missing_ok=True)
        with self._log.open("ab") as said:
            self._life = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--kill-child=KILL", "--fork", *NEW, *program],
                stdin=subprocess.PIPE,  # nothing is ever written: it ends with us
                stdout=said,
                stderr=said,
                cwd=self.place.directory,
                # the mark by which `processes.below` finds it and all below it; the host's own don't inherit it
                env={"PATH": ROOTS_PATH, "TPUFLEET_HOST_ROOT": str(self.root)},
                start_new_session=True,
            )
        self.running[self._life.pid] = self._life
        watch_exit(self._life, self._over)

    @property
    def _log(self) -> Path:
        return self.place.directory / "sshd.log"

    def _over(self, status: int) -> None:
        if self._life:
            self._life.communicate()  # closes the pipe
            self.ended(self._life)
            log.info("%s has ended with status %d", self.place.name, status)
        self._life = None
        self._died.set()

    async def _listens(self) -> None:
        """Returns when sshd does; raises OSError with the host's last words."""
        while not (self.root / SSHD_PID).exists():
            if self._life is None:
                raise OSError(self._log.read_text(errors="replace").strip().rpartition("\n")[2])
            await asyncio.sleep(LOOK_S)

    async def _as_root(self, script: str, words: Iterable[str]) -> None:
        """Runs a shell script on the host, to its end."""
        ended = asyncio.Event()
        with self._log.open("ab") as said:
            process = subprocess.Popen(
                self._entering(["/bin/sh", "-c", script, "sh", *words]),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={"PATH": ROOTS_PATH},
            )
        self.running[process.pid] = process

        def over(status: int) -> None:
            self.ended(process)
            ended.set()
            if status:
                log.warning("%s: accounts: status %d, see %s", self.place.name, status, self._log)

        watch_exit(process, over)
        await ended.wait()

    def _entering(self, argv: Sequence[str]) -> list[str]:
        return ["nsenter", f"--target={self._first()}", *NEW, "--wd=/", "--", *argv]

    def _first(self) -> int:
        """The first process of the host, as the machine sees it; raises OSError when the host is down."""
        if self._life is None:
            raise ProcessLookupError(f"{self.place.name} is down")
        children = Path(f"/proc/{self._life.pid}/task/{self._life.pid}/children").read_text().split()
        if not children:
            raise ProcessLookupError(f"{self.place.name} is going down")
        return int(children[0])

    # The rest of `Host`, and of a machine that a startup script runs on.

    def refresh(self) -> None:
        """A host sees other directories of `path` at its next boot."""

    def change_key(self) -> None:
        self.new_key()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._first(), signal.SIGHUP)

    async def move(self, listening: socket.socket) -> None:
        self._door.close()
        await self._door.open(listening, self._sshd)
        log.info("%s has moved to %s", self.place.name, listening.getsockname()[0])

    def fill_disk(self, full: bool) -> None:
        self.is_full = full
        with contextlib.suppress(ProcessLookupError):
            disk.fill(_members(self._first()), full)

    async def halt(self) -> None:
        self._door.close()
        self.close_metadata()
        if self._guarding:
            self._guarding.cancel()
            self._guarding = None
        if self._life:
            try:
                os.kill(self._first(), signal.SIGKILL)
            except ProcessLookupError:
                self._life.kill()  # it has no child yet, or none any more
            await self._died.wait()  # the kernel lets the first process go when all others are gone

    def environment(self, user: str, connection: str, wished: Mapping[str, str]) -> dict[str, str]:
        del user, connection, wished  # root's: sshd gives everybody else theirs
        variables = self._variables() | {"PATH": ":".join((*self.settings.path, ROOTS_PATH))}
        return {"LANG": "C.UTF-8", "HOME": "/root", "USER": "root", "LOGNAME": "root", **variables}

    def argv(self, wanted: Sequence[str]) -> list[str]:
        return self._entering(disk.starting(wanted) if self.is_full else wanted)

    def inside(self, path: Path) -> Path:
        return Path("/") / path.relative_to(self.root)


def _free_port(address: str) -> int:
    """A port of the host's own address, for its sshd; nobody else listens on that address."""
    with socket.socket() as free:
        free.bind((address, 0))
        return int(free.getsockname()[1])


def _seen(path: Iterable[str]) -> set[str]:
    """Of the directories of `path`, and the Python installations that they are of, those that would be hidden."""
    found: set[Path] = set()
    for directory in map(Path, path):
        environment = directory.parent
        found.add(environment if (environment / "pyvenv.cfg").exists() else directory)
        if (directory / "python3").exists():
            found.add((directory / "python3").resolve().parents[1])
    own = [Path("/", name) for name in namespace_init.OWN]
    return {str(one) for one in found if any(hidden in one.parents for hidden in own)}


def _members(first: int) -> list[int]:
    """All processes of the host with that first process, as the machine numbers them; raises OSError."""
    namespace = Path(f"/proc/{first}/ns/pid").readlink()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "ns/pid").readlink() == namespace:
                found.append(int(entry.name))
    return found
