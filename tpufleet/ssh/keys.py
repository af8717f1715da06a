"""Private key files: the fleet's own (ed25519, made on first use), and what any of OpenSSH's says of itself.

Made with `cryptography` (it comes with paramiko), so that no program has to be on the machine. The public half is
read from the private file, where OpenSSH keeps it in the clear: one file, so the two halves can't disagree.
"""

from __future__ import annotations

import base64
import binascii
import shlex
from pathlib import Path
from typing import NamedTuple

from tpufleet.errors import StateError, UsageError
from tpufleet.paths import write_atomically, writing
from tpufleet.publickey import PublicKeyLine, parse_public_key

COMMENT = "tpufleet"
MAGIC = b"openssh-key-v1\0"


class KeyFile(NamedTuple):
    """What a private key file shows without its passphrase."""

    public: PublicKeyLine
    encrypted: bool


def ensure_key(path: Path) -> str:
    """The fleet's public key line (with the comment `tpufleet`); makes the key (0600) when there is none.

    Two that come at once get one key. Raises StateError when the file can't be read, made or understood.
    """
    try:
        if not path.exists():
            with writing(path):
                _make(path)
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        return f"{read_key_file(path).public} {COMMENT}"
    except (OSError, ValueError) as error:
        raise StateError(
            f"the fleet's key can't be used: {error}",
            where=str(path),
            hint="a new key is made when the file is gone; nodes made with the old one have to be made anew",
        ) from error


def public_line(path: Path) -> str:
    """The public key line of a person's own private key; raises UsageError when the file can't be understood."""
    return f"{own_key(path).public} {COMMENT}"


def own_key(path: Path) -> KeyFile:
    """What a person's own key file shows; raises UsageError when it can't be understood."""
    try:
        if path.stat().st_mode & 0o077:  # OpenSSH refuses it, so it would work in some commands only
            raise UsageError(
                "the key can be read by others", where=str(path), hint=shlex.join(["chmod", "600", str(path)])
            )
        return read_key_file(path)
    except OSError as error:
        raise UsageError(f"the key can't be read: {error.strerror or error}", where=str(path)) from error
    except ValueError as error:
        raise UsageError(
            f"the key can't be used: {error}",
            where=str(path),
            hint=f"{shlex.join(['ssh-keygen', '-p', '-f', str(path)])} writes an older private key in OpenSSH's format",
        ) from error


def _make(path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    data = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(path, data, once=True)  # the first one wins and is never replaced


def read_key_file(path: Path) -> KeyFile:
    """A private key file of OpenSSH's format (PROTOCOL.key); ValueError if it is none, or of a type not used here."""
    lines = path.read_bytes().decode("ascii").splitlines()
    try:
        data = base64.b64decode("".join(line for line in lines if not line.startswith("-----")))
    except binascii.Error as error:
        raise ValueError("it is no private key of OpenSSH's format") from error
    if not data.startswith(MAGIC):
        raise ValueError("it is no private key of OpenSSH's format")
    cipher, rest = _string(data[len(MAGIC) :])
    for _ in ("kdf", "kdf options"):
        _, rest = _string(rest)
    blob, _ = _string(rest[4:])  # after the number of keys
    kind = _string(blob)[0].decode("ascii")
    return KeyFile(parse_public_key(f"{kind} {base64.b64encode(blob).decode()}"), encrypted=cipher != b"none")


def _string(data: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(data[:4], "big")
    return data[4 : 4 + size], data[4 + size :]
