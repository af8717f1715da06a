"""The fleet's own key: ed25519, made on first use, in one file.

Made with `cryptography` (it comes with paramiko), so that no program has to be on the machine. The public half is
read from the private file, where OpenSSH keeps it in the clear: one file, so the two halves can't disagree.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

from tpufleet.errors import StateError
from tpufleet.ssh.publickey import ED25519, PublicKeyLine, parse_public_key

COMMENT = "tpufleet"
MAGIC = b"openssh-key-v1\0"


def ensure_key(path: Path) -> str:
    """The fleet's public key line (with the comment `tpufleet`); makes the key (0600) when there is none.

    Two that come at once get one key. Raises StateError when the file can't be read, made or understood.
    """
    try:
        if not path.exists():
            _make(path)
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        return f"{_public_half(path.read_bytes())} {COMMENT}"
    except (OSError, ValueError) as error:
        raise StateError(
            f"the fleet's key can't be used: {error}",
            where=str(path),
            hint="a new key is made when the file is gone; nodes made with the old one have to be made anew",
        ) from error


def _make(path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    data = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(aside)  # fails where a key is already: the first one wins and is never replaced
    except FileExistsError:
        pass
    finally:
        aside.unlink()


def _public_half(private: bytes) -> PublicKeyLine:
    """The public key inside a private key file of OpenSSH's format (PROTOCOL.key); ValueError if it is none."""
    lines = private.decode("ascii").splitlines()
    try:
        data = base64.b64decode("".join(line for line in lines if not line.startswith("-----")))
    except binascii.Error as error:
        raise ValueError("it is no key of OpenSSH's format") from error
    if not data.startswith(MAGIC):
        raise ValueError("it is no key of OpenSSH's format")
    rest = data[len(MAGIC) :]
    for _ in ("cipher", "kdf", "kdf options"):
        _, rest = _string(rest)
    blob, _ = _string(rest[4:])  # after the number of keys
    return parse_public_key(f"{ED25519} {base64.b64encode(blob).decode()}")


def _string(data: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(data[:4], "big")
    return data[4 : 4 + size], data[4 + size :]
