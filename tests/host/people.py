"""People who are to have accounts on a host of our own: what home sends of them, with useradd's stand-ins in place."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from tpufleet.emulator import standins

from .harness import Host

FIRST_UID = 20_000
NAMES = ("ada", "bob", "cyd", "dan", "eve")


def key_of(name: str) -> str:
    """A public key that nobody has the other half of."""
    parts = (b"ssh-ed25519", hashlib.sha256(name.encode()).digest())
    return "ssh-ed25519 " + base64.b64encode(b"".join(len(p).to_bytes(4, "big") + p for p in parts)).decode()


def person(name: str, *seat: int, **fields: Any) -> dict[str, Any]:
    """An entry of the request."""
    uid = FIRST_UID + (NAMES.index(name) if name in NAMES else 900)
    entry = {"name": name, "uid": uid, "key": key_of(name), "expires": None, "seat": list(seat), "share": False}
    return entry | {"clone": None} | fields


def request(*people: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"fleet": "sherlock", "host": "tpu-0-w0", "people": list(people), "hosts": [], "visitor": None} | fields


def furnish(host: Host) -> Host:
    """Gives a host what the rehearsal cloud's hosts have for accounts."""
    for directory in ("usr/local/bin", "etc/skel"):
        (host.root / directory).mkdir(parents=True)
    host.base.mkdir(parents=True)
    standins.install(host.root)
    host.env["PATH"] = f"{host.root}/usr/local/bin:{os.environ['PATH']}"
    return host


def apply(host: Host, *people: dict[str, Any], **fields: Any) -> dict[str, str]:
    """Makes the accounts equal; the state of each by name."""
    return {entry["name"]: entry["state"] for entry in told(host, *people, **fields).values()}


def told(host: Host, *people: dict[str, Any], **fields: Any) -> dict[str, dict[str, Any]]:
    """The same with all that is said, by name."""
    return {entry["name"]: entry for entry in host.call("accounts", **request(*people, **fields))["accounts"]}


def home(host: Host, name: str) -> Path:
    return host.root / "home" / name


def keys(host: Host, name: str) -> str | None:
    path = home(host, name) / ".ssh/authorized_keys"
    return path.read_text() if path.exists() else None


def written(host: Host) -> dict[str, dict[str, Any]]:
    """What people.json says, by name."""
    return {entry["name"]: entry for entry in json.loads((host.base / "people.json").read_text())["people"]}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def line_of(host: Host, database: str, name: str) -> list[str] | None:
    """The fields of an account's line in passwd or shadow."""
    path = host.root / "etc" / database
    lines = [line.split(":") for line in path.read_text().splitlines()] if path.exists() else []
    return next((fields for fields in lines if fields[0] == name), None)
