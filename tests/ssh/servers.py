"""SSH servers for the tests, each on a port of its own: OpenSSH's sshd where it is installed, and asyncssh."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import getpass
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import asyncssh

from tpufleet.model import Host
from tpufleet.names import HostName
from tpufleet.ssh.access import Access
from tpufleet.ssh.client import ParamikoDialer
from tpufleet.ssh.keys import ensure_key
from tpufleet.ssh.limits import Limits
from tpufleet.ssh.trust import Trust

T = TypeVar("T")
SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin")
QUICK = Limits(connect_s=5.0, refusing_s=3.0, quiet_s=0.4, probe_s=0.4, tick_s=0.05)
PATIENT = Limits(connect_s=30.0)


class Server:
    """What the tests need of a server: its keys, its address, and a dialer that trusts it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.user = getpass.getuser()
        self.root = directory / "root"
        self.root.mkdir()
        self.key = directory / "key"
        self.host_key = directory / "host_key"
        self.trust = Trust(directory / "pins.json")
        self.public_line = ensure_key(self.key)
        self.authorized = directory / "authorized_keys"
        self.authorized.write_text(self.public_line + "\n")
        self.host_line = ensure_key(self.host_key)
        self.trust.pin("4711-w0", self.host_line)
        self.port = 0

    @property
    def host(self) -> Host:
        return Host(HostName("tpu-0-w0"), "tpu-0", "us-central1-b", 0, "127.0.0.1", self.port, "4711-w0")

    def dialer(self, *, limits: Limits = PATIENT, user: str | None = None, key: Path | None = None) -> ParamikoDialer:
        return ParamikoDialer(self.access(user=user, key=key), self.trust, limits=limits)

    def access(self, **changed: Any) -> Access:
        """How the server is entered by its operator, but for what is `changed`."""
        known = {"user": self.user, "key": self.key}
        return Access(**{**known, **{name: value for name, value in changed.items() if value is not None}})

    def stop(self) -> None:
        raise NotImplementedError


class OpenSsh(Server):
    """OpenSSH's sshd, one process for each connection (`-i`), so that no port is chosen before it is bound."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # what its service does at start
        self.config = directory / "sshd_config"
        self.config.write_text(
            f"HostKey {self.host_key}\nAuthorizedKeysFile {self.authorized}\nStrictModes no\nUsePAM no\n"
            "PermitRootLogin prohibit-password\nPasswordAuthentication no\nPermitUserEnvironment no\n"
            # a home of its own: the start-up files of whoever runs the tests don't matter
            f"SetEnv TPUFLEET_HOST_ROOT={self.root} HOME={self.root}\nPidFile none\nPrintMotd no\n"
        )
        self.hang_up_on = 0  # so many connections are dropped at once, as MaxStartups does
        self.accepted = 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        """Stop sshd without closing anything: the connections are half-open now."""
        self._signal(signal.SIGSTOP)

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def _signal(self, number: int) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            with connection, (self.directory / "sshd.log").open("ab") as log:
                if self.hang_up_on:
                    self.hang_up_on -= 1
                    continue
                self._processes.append(
                    subprocess.Popen(
                        [str(SSHD), "-i", "-e", "-f", str(self.config)],
                        stdin=connection,
                        stdout=connection,
                        stderr=log,
                        start_new_session=True,
                    )
                )


class AsyncSsh(Server):
    """asyncssh's server in a thread; commands are real processes."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._loop = _loop()
        self._acceptor = self._do(self._listen())
        self.port = self._acceptor.get_port()

    def stop(self) -> None:
        self._do(self._close())

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _close(self) -> None:
        self._acceptor.close()
        await self._acceptor.wait_closed()

    async def _listen(self) -> asyncssh.SSHAcceptor:
        return await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[str(self.host_key)],
            authorized_client_keys=str(self.authorized),
            process_factory=self._serve,
            encoding=None,
        )

    async def _serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        child = await asyncio.create_subprocess_shell(
            process.command or "true",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "TPUFLEET_HOST_ROOT": str(self.root)},
        )
        feeding = asyncio.create_task(_pump(process.stdin, child.stdin, last=True))
        await asyncio.gather(_pump(child.stdout, process.stdout), _pump(child.stderr, process.stderr))
        code = await child.wait()
        feeding.cancel()
        if code < 0:
            process.exit_with_signal("KILL")
        else:
            process.exit(code)


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """One loop for all of a process's servers; it ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


async def _pump(source: Any, sink: Any, *, last: bool = False) -> None:
    """Everything from `source` to `sink`, and its end if it is the `last`; a sink that is gone ends it too."""
    with contextlib.suppress(OSError, asyncssh.Error):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    if last:
        with contextlib.suppress(OSError):
            sink.write_eof()


@contextlib.contextmanager
def tcp_server(handle: Callable[[socket.socket], None]) -> Iterator[int]:
    """A TCP listener that does `handle` with each connection in a thread; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=handle, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def eventually(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Wait until `condition` holds; fail after `limit_s` seconds."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)
