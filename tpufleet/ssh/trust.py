"""Trust in hosts: which host key belongs to which machine, pinned by node id and worker, never by address.

The keys come from the guest attributes through the authenticated API, or for an inventory from its file or the
person's own known_hosts; they are pinned once. A machine that was made anew has a new identity, so a pinned key never
changes: another key for the same identity is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Generator, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tpufleet.errors import HostFault, HostKeyMismatch, StateError
from tpufleet.model import Host
from tpufleet.paths import write_atomically, writing
from tpufleet.publickey import PublicKeyLine, fingerprint, parse_public_key


class Trust:
    """The pinned host keys in a JSON file, `{identity: {"key", "node", "since"}}`; several processes may use it."""

    def __init__(self, pins_path: Path) -> None:
        self._path = pins_path

    def get(self, identity: str) -> PublicKeyLine | None:
        """The key that is pinned for `identity`; raises StateError when the file can't be understood."""
        pin = self._read().get(identity)
        if pin is None:
            return None
        try:
            return parse_public_key(str(pin["key"]))
        except (ValueError, KeyError, TypeError) as error:
            raise self._unreadable(f"the key of {identity} is none") from error

    def pin(self, identity: str, key_line: str, *, node: str = "") -> PublicKeyLine:
        """Trust `key_line` for `identity` from now on and give the key back.

        Pinning the same key again changes nothing. Raises HostKeyMismatch when another key is pinned, HostFault when
        the line is no sound public key.
        """
        try:
            key = parse_public_key(key_line)
        except ValueError as error:
            raise HostFault(
                f"offers a host key that can't be used: {error}", kind="host-key", where=identity
            ) from error
        with self._writing() as pins:
            known = pins.get(identity)
            if known is None:
                since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
                pins[identity] = {"key": str(key), "node": node, "since": since}
            elif known.get("key") != str(key):
                raise HostKeyMismatch(
                    f"another host key is pinned already ({known.get('since')}); offered now: {fingerprint(key)}",
                    where=identity,
                    hint="if this machine was made anew outside tpufleet: tpufleet delete, then tpufleet create",
                )
        return key

    def forget(self, *identities: str) -> None:
        """Trust no key for these any more (their machines are gone)."""
        with self._writing() as pins:
            for identity in identities:
                pins.pop(identity, None)

    def identities(self) -> tuple[str, ...]:
        """All for which a key is pinned."""
        return tuple(self._read())

    def known_hosts(self, hosts: Iterable[Host]) -> str:
        """The pinned keys of `hosts` as OpenSSH's known_hosts, under their aliases (see `alias`)."""
        keys = ((host, self.get(host.identity)) for host in hosts)
        return "".join(f"{alias(host.identity)} {key}\n" for host, key in keys if key)

    @contextlib.contextmanager
    def _writing(self) -> Generator[dict[str, Any]]:
        """The pins, to be changed: read, changed and replaced under a lock that other processes respect."""
        path = self._path.with_name(f"{self._path.name}.lock")
        with writing(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            pins = self._read()
            before = json.dumps(pins)
            yield pins
            if json.dumps(pins) != before:
                write_atomically(self._path, (json.dumps(pins, indent=2, sort_keys=True) + "\n").encode())
        finally:
            os.close(lock)

    def _read(self) -> dict[str, Any]:
        try:
            pins: Any = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise self._unreadable(str(error)) from error
        if not isinstance(pins, dict):
            raise self._unreadable("it holds no object")
        return pins  # pyright: ignore[reportUnknownVariableType]  # checked where a value is used

    def _unreadable(self, why: str) -> StateError:
        return StateError(
            f"the pinned host keys can't be read: {why}",
            where=str(self._path),
            hint=f"rm '{self._path}'; the keys are then read anew from where they came",
        )


def alias(identity: str) -> str:
    """The name under which OpenSSH knows a host's key: independent of its address."""
    return "tpufleet-" + re.sub(r"[^A-Za-z0-9._-]", "_", identity)
