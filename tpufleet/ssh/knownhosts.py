"""The person's own trust: the host keys that their OpenSSH knows.

OpenSSH's `ssh-keygen -F` reads its files (hashed names, patterns, revocations), so nothing of that is done here.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tpufleet.publickey import ECDSA_POINT_BYTES, ED25519, RSA, PublicKeyLine, parse_public_key

BEST_FIRST = (ED25519, *ECDSA_POINT_BYTES, RSA)


def usual_files() -> tuple[Path, ...]:
    """Where OpenSSH looks by default: the person's file, then the machine's."""
    return Path.home() / ".ssh" / "known_hosts", Path("/etc/ssh/ssh_known_hosts")


def known_key(address: str, port: int, files: Sequence[Path] | None = None) -> str | None:
    """The best host key known for `address` (`ssh-ed25519 AAAA…`); None when there is none that isn't revoked."""
    name = address.lower() if port == 22 else f"[{address.lower()}]:{port}"
    for file in usual_files() if files is None else files:
        lines = _lines_about(name, file)
        revoked = {key.blob for key in _keys(lines, marker="@revoked")}
        keys = [key for key in _keys(lines) if key.blob not in revoked]
        if keys:
            return str(min(keys, key=lambda key: BEST_FIRST.index(key.kind)))
    return None


def _lines_about(name: str, file: Path) -> list[str]:
    if not file.is_file():
        return []
    try:
        found = subprocess.run(
            ["ssh-keygen", "-F", name, "-f", str(file)], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except FileNotFoundError:  # without OpenSSH there is nobody's trust to go by
        return []
    return found.stdout.decode(errors="replace").splitlines()


def _keys(lines: Sequence[str], *, marker: str | None = None) -> Iterator[PublicKeyLine]:
    """The keys of the lines with that marker (`@revoked`), or of those that have none."""
    for line in lines:
        words = line.split()
        if marker and words[:1] == [marker]:
            words = words[1:]
        elif marker or line.startswith(("#", "@")):
            continue
        with contextlib.suppress(ValueError):
            yield parse_public_key(" ".join(words[1:3]))
