"""Public SSH keys as lines of text: parsed strictly, checked field by field, and written anew.

Libraries accept more than they should (a second key after a newline, RSA of 1024 bits), so nothing that was read
is ever copied: what is written is what was parsed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass

ED25519 = "ssh-ed25519"
RSA = "ssh-rsa"
RSA_BITS = range(2048, 16385)

# RFC 5656: an uncompressed point is 0x04 and two coordinates.
ECDSA_POINT_BYTES = {"ecdsa-sha2-nistp256": 65, "ecdsa-sha2-nistp384": 97, "ecdsa-sha2-nistp521": 133}

SECURITY_KEY = "sk-ssh-ed25519@openssh.com"  # on a hardware token; OpenSSH's PROTOCOL.u2f


@dataclass(frozen=True)
class PublicKeyLine:
    """A checked key; as text `ssh-ed25519 AAAA…`, without the comment it may have had."""

    kind: str
    blob: bytes

    def __str__(self) -> str:
        return f"{self.kind} {base64.b64encode(self.blob).decode()}"


def parse_public_key(text: str) -> PublicKeyLine:
    """The key in an OpenSSH public key line (`TYPE BASE64 [COMMENT]`); raises ValueError with a sentence."""
    line = text.strip(" \t\r\n")
    if any(ord(character) < 32 or ord(character) == 127 for character in line.replace("\t", " ")):
        raise ValueError("a public key is one line of text")
    kind, _, rest = line.replace("\t", " ").partition(" ")
    if kind not in (ED25519, RSA, *ECDSA_POINT_BYTES):
        raise ValueError("a public key begins with ssh-ed25519 (or with ecdsa-sha2-nistp…, ssh-rsa)")
    return checked_key(kind, rest.lstrip(" ").partition(" ")[0])


def checked_key(kind: str, body: str, rsa_sizes: range = RSA_BITS) -> PublicKeyLine:
    """The key of a known `kind` whose base64 text is `body`; raises ValueError with a sentence."""
    blob = _decoded(body)
    _check(kind, blob, rsa_sizes)
    return PublicKeyLine(kind, blob)


def rsa_bits(key: PublicKeyLine) -> int:
    """The size of an RSA key's modulus."""
    return int.from_bytes(_fields(key.blob)[2], "big").bit_length()


def ed25519_point(key: PublicKeyLine) -> bytes:
    """The 32 bytes of an ed25519 key, also of one on a security key."""
    return _fields(key.blob)[1]


def signature_algorithms(key: PublicKeyLine) -> tuple[str, ...]:
    """By which algorithms the holder of `key` may prove that it is (RFC 8332: for RSA no longer with SHA-1)."""
    return ("rsa-sha2-512", "rsa-sha2-256") if key.kind == RSA else (key.kind,)


def fingerprint(key: PublicKeyLine | bytes) -> str:
    """`SHA256:…` as OpenSSH shows it, of a key or of its blob."""
    blob = key if isinstance(key, bytes) else key.blob
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    try:
        blob = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        blob = b""
    if not blob or base64.b64encode(blob).decode() != text:
        raise ValueError("the public key's second word is not its base64 text, whole")
    return blob


def _check(kind: str, blob: bytes, rsa_sizes: range) -> None:
    fields = _fields(blob)
    if fields[0] != kind.encode():
        raise ValueError("the public key says one type in front and another one inside")
    if kind == ED25519:
        good = len(fields) == 2 and len(fields[1]) == 32
    elif kind == SECURITY_KEY:
        good = len(fields) == 3 and len(fields[1]) == 32 and re.fullmatch(rb"ssh:[!-~]{0,200}", fields[2]) is not None
    elif kind == RSA:
        good = len(fields) == 3 and _good_rsa(fields[1], fields[2], rsa_sizes)
    else:
        curve = kind.removeprefix("ecdsa-sha2-").encode()
        size = ECDSA_POINT_BYTES[kind]
        good = len(fields) == 3 and fields[1] == curve and len(fields[2]) == size and fields[2][0] == 4
    if not good:
        raise ValueError(f"the public key is no {kind} key that may be used here")


def _fields(blob: bytes) -> list[bytes]:
    """RFC 4251 strings one after the other, nothing behind the last."""
    fields: list[bytes] = []
    while blob:
        size = int.from_bytes(blob[:4], "big")
        if len(blob) < 4 + size:
            raise ValueError("the public key is cut short")
        fields.append(blob[4 : 4 + size])
        blob = blob[4 + size :]
    return fields


def _good_rsa(exponent: bytes, modulus: bytes, sizes: range) -> bool:
    """Positive, minimal mpints (RFC 4251); an odd exponent, and a modulus of an allowed size."""
    if not all(_is_minimal_positive(number) for number in (exponent, modulus)):
        return False
    e, n = int.from_bytes(exponent, "big"), int.from_bytes(modulus, "big")
    return e >= 3 and e % 2 == 1 and e.bit_length() <= 64 and n % 2 == 1 and n.bit_length() in sizes


def _is_minimal_positive(number: bytes) -> bool:
    if not number or number[0] & 0x80:
        return False
    return number[0] != 0 or (len(number) > 1 and bool(number[1] & 0x80))
