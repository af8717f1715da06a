"""The keys that people may have on the hosts: stricter than an operator's own, with sentences for who sends them.

A key arrives pasted into a chat, a form or a list, so what was meant is told from what was sent: a private key, a
certificate, a key with options, two keys in one. Nothing of the text is ever shown: it may be a secret.
"""

from __future__ import annotations

import re

from tpufleet.publickey import (
    ECDSA_POINT_BYTES,
    ED25519,
    RSA,
    RSA_BITS,
    SECURITY_KEY,
    PublicKeyLine,
    checked_key,
    ed25519_point,
    rsa_bits,
)

ECDSA = "ecdsa-sha2-nistp256"
TAKEN = (ED25519, SECURITY_KEY, ECDSA, RSA)
RSA_LEAST = 3072
MAX_CHARACTERS = 8_000  # RSA of 16384 bits is 2.8 kB
HOW = "make one with: ssh-keygen -t ed25519   and send the one line of the file whose name ends in .pub"

# What a private key's text holds: PEM and OpenSSH's armour, PuTTY's files, and the body of an OpenSSH one alone
# ("openssh-key-v1" in base64).
PRIVATE = re.compile(r"PRIVATE[ -]KEY|PuTTY-User-Key-File|Private-(?:Lines|MAC)|b3BlbnNzaC1rZXkt", re.IGNORECASE)
OTHER_FORMATS = re.compile(r"BEGIN [A-Z0-9 ]*(?:PUBLIC KEY|CERTIFICATE)|AGE1|untrusted comment:", re.IGNORECASE)
KIND = re.compile(r"(?:sk-)?(?:ssh|ecdsa)-[a-z0-9-]+(?:@openssh\.com)?")

# The y of ed25519's points of small order (order 1, 2, 4, 8): with one as a key, anybody can sign.
PRIME = 2**255 - 19
EIGHTH = 2707385501144840649318225287225658788936804267575313519463743609750303402022
SMALL_ORDER = frozenset((0, 1, PRIME - 1, EIGHTH, PRIME - EIGHTH))


def parse_person_key(text: str) -> PublicKeyLine:
    """The one key in `text`, as a line of OpenSSH's `TYPE BASE64 [COMMENT]`; raises ValueError with a sentence."""
    refuse_private(text)
    if len(text) > MAX_CHARACTERS:
        raise ValueError("this is far longer than a public key is")
    line = text.strip(" \t\r\n")
    if not line:
        raise ValueError("there is no key in it")
    if OTHER_FORMATS.search(line):
        raise ValueError("this is a key in another format than OpenSSH's: send the line that begins with ssh-ed25519")
    if "\n" in line or "\r" in line:
        raise ValueError("this is more than one line, and a public key is one: send one key, and nothing else")
    words = line.replace("\t", " ").split(" ")
    if not all(word.isprintable() for word in words):
        raise ValueError("there are invisible characters in it: copy the line again, from the .pub file itself")
    kind, body, comment = words[0], *_two([word for word in words[1:] if word])
    _check_kind(kind, words)
    if any(word in TAKEN or re.match(r"AAAA[A-Za-z0-9+/]{40}", word) for word in comment):
        raise ValueError("there are two keys in one line: send one")
    return _allowed(checked_key(kind, body, range(RSA_BITS.stop)))  # too short a key is told by its size


def refuse_private(text: str) -> None:
    """Raises ValueError when there is a private key in `text`, or a part of one."""
    if PRIVATE.search(text):
        raise ValueError(
            "THIS IS A PRIVATE KEY, which nobody but its owner may ever see: it must now be thrown away. Delete it, "
            "remove its public half wherever it opens a door, and make a new one"
        )


def _two(words: list[str]) -> tuple[str, list[str]]:
    """The key's body, and the words of its comment."""
    return (words[0], words[1:]) if words else ("", [])


def _check_kind(kind: str, words: list[str]) -> None:
    if kind in TAKEN:
        return
    if kind.endswith("-cert-v01@openssh.com"):
        raise ValueError("this is a certificate: send the key itself, from the .pub file without -cert in its name")
    if kind == "ssh-dss":
        raise ValueError("this is a DSA key, which OpenSSH itself refuses today")
    if kind in ECDSA_POINT_BYTES or kind.startswith("sk-ecdsa-"):
        raise ValueError(f"an {kind} key is not taken here, of ECDSA only {ECDSA}")
    if any(word.strip('"') in TAKEN for word in words[1:]):
        raise ValueError(f"options before a key are not taken: send only what begins with {_first(words)}")
    if KIND.fullmatch(kind):
        raise ValueError("this is a key of a type that is not taken here")
    raise ValueError(
        "a public key begins with ssh-ed25519 (or sk-ssh-ed25519@openssh.com, ssh-rsa, ecdsa-sha2-nistp256)"
    )


def _first(words: list[str]) -> str:
    return next(word.strip('"') for word in words if word.strip('"') in TAKEN)


def _allowed(key: PublicKeyLine) -> PublicKeyLine:
    if key.kind == RSA and (bits := rsa_bits(key)) < RSA_LEAST:
        raise ValueError(f"this RSA key has {bits} bits, which is too few: at least {RSA_LEAST}")
    if key.kind in (ED25519, SECURITY_KEY):
        number = int.from_bytes(ed25519_point(key), "little") & (2**255 - 1)
        if number >= PRIME or number in SMALL_ORDER:
            raise ValueError("this is no real key: anybody could log in with it")
    return key
