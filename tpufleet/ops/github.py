"""The public keys that somebody has at GitHub: https://github.com/USER.keys, which needs no account to read."""

from __future__ import annotations

import http.client
import os
import re
import time
import urllib.error
import urllib.request
from typing import Any

from tpufleet.errors import Unreachable, UsageError
from tpufleet.names import shown
from tpufleet.personkey import HOW, parse_person_key
from tpufleet.publickey import PublicKeyLine

SERVER = "https://github.com"
SERVER_VARIABLE = "GITHUB_SERVER_URL"  # as GitHub's own tools call it; for GitHub Enterprise
USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,38}")
TIMEOUT_S = 5.0
MAX_BYTES = 200_000


def github_keys(user: str) -> tuple[PublicKeyLine, ...]:
    """The keys of `user` at GitHub that may be used here, in GitHub's order.

    Raises UsageError when there is no such user or no such key, Unreachable when GitHub can't be asked.
    """
    if not USER.fullmatch(user):
        raise UsageError(f"{shown(user)} is not the name of a GitHub user", hint="as in https://github.com/USER")
    server = os.environ.get(SERVER_VARIABLE, SERVER).rstrip("/")
    if not re.fullmatch(r"https://[A-Za-z0-9.:-]+|http://127\.[0-9.]+(?::\d+)?", server):
        sentence = f"{SERVER_VARIABLE} must be an https:// address, not {shown(server)}"
        raise UsageError(sentence, hint=f"unset {SERVER_VARIABLE}")
    lines = _fetched(f"{server}/{user}.keys", user).decode("utf-8", errors="replace").splitlines()
    keys = tuple(key for key in map(_usable, lines) if key)
    if not keys:
        why = f"none of the {len(lines)} keys of {user} at GitHub can be used here"
        raise UsageError(why if lines else f"{user} has no key at GitHub", hint=HOW)
    return keys


def _usable(line: str) -> PublicKeyLine | None:
    try:
        return parse_person_key(line)
    except ValueError:
        return None


class _Here(urllib.request.HTTPRedirectHandler):
    """Whoever answers for another address doesn't say whose keys these are."""

    def redirect_request(self, *_arguments: Any, **_more: Any) -> None:
        return None


def _fetched(address: str, user: str) -> bytes:
    deadline = time.monotonic() + TIMEOUT_S
    data = b""
    try:
        with urllib.request.build_opener(_Here).open(address, timeout=TIMEOUT_S) as answer:
            while len(data) <= MAX_BYTES and (part := answer.read1(65536)):
                data += part
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not within {TIMEOUT_S:g} s")
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.NOT_FOUND:
            hint = "ask for the name again, or for the key itself"
            raise UsageError(f"there is no user {user} at GitHub", hint=hint) from None
        raise _offline(f"it answered with {error.code}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise _offline(str(reason) or type(reason).__name__) from error
    if len(data) > MAX_BYTES:
        raise _offline("its answer is too long")
    return data


def _offline(why: str) -> Unreachable:
    return Unreachable(
        f"GitHub could not be asked: {why}", hint="without it: tpufleet people add NAME 'ssh-ed25519 AAAA…'"
    )
