"""What Google's guest agent does on a namespace host: whoever is in the metadata's `ssh-keys` has an account, may use
sudo, and has those keys; who is there no more loses keys and sudo, and keeps the account.

The keys lie in a directory of root's that sshd reads, not in homes, whose owners could lead a writer astray by links.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from tpufleet.emulator.namespace_files import SUDOERS
from tpufleet.paths import write_atomically

LOOK_S = 0.5
KEY_TYPE = re.compile(r"[a-z0-9@.-]+")
# As with Google's own, a user who is called like a group of the system gets no account (`admin`: kops #16175).
ADMIT = f"""
for user; do
  if ! id -u "$user" >/dev/null 2>&1; then
    useradd --create-home --shell /bin/bash --password '*' "$user" || continue
  fi
  id -nG "$user" | grep -qw {SUDOERS} || gpasswd --add "$user" {SUDOERS}
done
"""
DISMISS = f'for user; do gpasswd --delete "$user" {SUDOERS}; done'

RunAsRoot = Callable[[str, Iterable[str]], Awaitable[None]]  # a shell script with its words, on the host, to its end


class Guest:
    """`users` says who may log in, with their public keys; `keys` is the directory with a file for each of them."""

    def __init__(self, users: Callable[[], Mapping[str, set[bytes]]], keys: Path, run: RunAsRoot) -> None:
        self._users = users
        self._keys = keys
        self._run = run
        self._known: dict[str, set[bytes]] = {}

    async def begin(self) -> None:
        """At boot: makes everything right, whoever came or went meanwhile."""
        self._known = {file.name: set() for file in self._keys.iterdir()}
        await self._make_equal()

    async def go_on(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._users() != self._known:
                await self._make_equal()

    async def _make_equal(self) -> None:
        wanted = {user: set(keys) for user, keys in self._users().items()}
        gone = self._known.keys() - wanted.keys()
        for user in gone:
            (self._keys / user).unlink(missing_ok=True)
        if gone:
            await self._run(DISMISS, sorted(gone))
        if wanted:
            await self._run(ADMIT, sorted(wanted))
        for user, keys in wanted.items():
            write_atomically(self._keys / user, "".join(map(_line, sorted(keys))).encode(), 0o644)
        self._known = wanted


def _line(key: bytes) -> str:
    """A public key (SSH's binary form, which begins with the length and text of its type) for authorized_keys."""
    kind = key[4 : 4 + int.from_bytes(key[:4])].decode("ascii", "replace")
    return f"{kind} {base64.b64encode(key).decode()}\n" if KEY_TYPE.fullmatch(kind) else ""
