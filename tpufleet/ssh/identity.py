"""The private key at work: read from its file, or, where a passphrase is on it, used by the ssh-agent that holds it."""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Generator
from pathlib import Path

import paramiko

from tpufleet.errors import StateError, UsageError
from tpufleet.publickey import PublicKeyLine
from tpufleet.ssh.access import Access
from tpufleet.ssh.keys import own_key


class Identity:
    """One key for any number of threads."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._loaded: paramiko.PKey | None = None

    @contextlib.contextmanager
    def signing(self) -> Generator[paramiko.PKey]:
        """The key, for one handshake. Raises UsageError (the person's own) or StateError when it can't be used."""
        file = own_key(self._access.key) if self._access.own_key else None
        if file is None or not file.encrypted:
            yield self._from_file()
            return
        # a connection to the agent takes one question at a time, so each handshake has its own
        agent = self._agent()
        try:
            yield self._held(agent, file.public)
        finally:
            agent.close()

    def _from_file(self) -> paramiko.PKey:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load(self._access.key)
            return self._loaded

    def _load(self, path: Path) -> paramiko.PKey:
        try:
            return paramiko.PKey.from_path(path)
        except (OSError, paramiko.SSHException, ValueError, TypeError) as error:
            if self._access.own_key:
                raise UsageError(f"the key can't be used: {error}", where=str(path)) from error
            raise StateError(f"the fleet's key can't be read: {error}", where=str(path)) from error

    def _agent(self) -> paramiko.Agent:
        try:
            return paramiko.Agent()
        except (OSError, paramiko.SSHException) as error:
            raise self._not_held(f"the ssh-agent gives no answer ({error})") from error

    def _held(self, agent: paramiko.Agent, public: PublicKeyLine) -> paramiko.PKey:
        for key in agent.get_keys():
            if key.asbytes() == public.blob:
                return key
        raise self._not_held("no running ssh-agent holds it")

    def _not_held(self, why: str) -> UsageError:
        path = str(self._access.key)
        add = shlex.join(["ssh-add", path])
        return UsageError(
            f"the key has a passphrase, and {why}", where=path, hint=f"{add}; without an agent first: eval $(ssh-agent)"
        )
