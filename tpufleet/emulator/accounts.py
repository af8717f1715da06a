"""Who may log in to a node's hosts: `ssh-keys` of its metadata and its project's, as Google's guest agent reads them.

Lines are `USER:TYPE BASE64 COMMENT`, or `USER:TYPE BASE64 google-ssh {"userName": …, "expireOn": …}`; a line
that can't be read, or whose key has expired, gives no access. `block-project-ssh-keys` of the node leaves only its own.
Source: https://cloud.google.com/compute/docs/connect/add-ssh-keys and restrict-ssh-keys.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from tpufleet.emulator.clock import parse_rfc3339

USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


def users(node: Mapping[str, str], project: Mapping[str, str], now: datetime) -> dict[str, set[bytes]]:
    """Everybody who may log in at the moment `now`, with their public keys (SSH's binary form)."""
    blocked = node.get("block-project-ssh-keys", "").lower() == "true"
    sources = (node,) if blocked else (node, project)
    lines = [line for source in sources for line in source.get("ssh-keys", "").splitlines()]
    found: dict[str, set[bytes]] = {}
    for name, key in filter(None, (_read(line, now) for line in lines)):
        found.setdefault(name, set()).add(key)
    return found


def _read(line: str, now: datetime) -> tuple[str, bytes] | None:
    user, _, rest = line.strip().partition(":")
    fields = rest.split(None, 3)
    if not USER.fullmatch(user) or len(fields) < 2:
        return None
    if len(fields) > 3 and fields[2] == "google-ssh" and not _is_valid(fields[3], now):
        return None
    try:
        return user, base64.b64decode(fields[1], validate=True)
    except binascii.Error:
        return None


def _is_valid(note: str, now: datetime) -> bool:
    try:
        parsed: Any = json.loads(note)
        if not isinstance(parsed, dict):
            return False
        expires: Any = cast(dict[str, Any], parsed).get("expireOn")
        return expires is None or parse_rfc3339(str(expires)) > now
    except ValueError:
        return False
