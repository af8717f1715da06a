"""How a board is opened: by which addresses it is reached, which secrets open it, which invitation is in force."""

from __future__ import annotations

import ipaddress
import re
import socket
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from tpufleet.board.app import Door
from tpufleet.board.signup import Invitation, new_code, new_token, plain
from tpufleet.errors import UsageError

LISTEN = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[A-Za-z0-9.-]+)):(?P<port>[0-9]{1,5})")
SECONDS = 3 * 3600.0
LONGEST = 30 * 86400.0


def place(listen: str) -> tuple[str, int]:
    """`127.0.0.1:8042` or `[::]:8042` as an address and a port; raises UsageError."""
    found = LISTEN.fullmatch(listen)
    if found is None or int(found["port"]) > 65535:
        raise UsageError("--listen must be an address and a port", hint="--listen 127.0.0.1:8042")
    return found["six"] or found["host"], int(found["port"])


def door(host: str, bound_to: tuple[str, int], url: str | None, viewer: str) -> Door:
    """The door of a board that was told to listen on `host` and does so at that address and port.

    Raises UsageError for an impossible `url`. Only a board that nobody but this machine can reach is open for
    whoever does: elsewhere `viewer` lets people look.
    """
    bound, port = ipaddress.ip_address(bound_to[0].partition("%")[0]), bound_to[1]
    name = socket.gethostname().lower()
    names = {"localhost", name, f"{name}.local", host.lower()}
    if url is not None:
        names.add(_name_in(url))
    else:
        shown = _own_address(bound) if bound.is_unspecified else host
        url = f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
    return Door(
        names=frozenset(names),
        url=url.rstrip("/"),
        host=new_token(),
        viewer=None if bound.is_loopback and url.startswith("http://") and _is_near(url) else viewer,
        secure=url.startswith("https:"),
        mark=f"-{port}",
    )


def invitation(kept: Invitation | None, code: str | None, seconds: float | None) -> Invitation:
    """The invitation to be in force: a new one, or the one from before while it isn't over. Raises UsageError."""
    now = datetime.now(UTC).replace(microsecond=0)
    if code is not None and not 6 <= len(plain(code)) <= 32:
        raise UsageError("--code must have 6 to 32 letters and digits", hint="leave it out for a random one")
    if seconds is not None and seconds > LONGEST:
        raise UsageError("--for must be 30 days or less", hint="--for 3h")
    if kept is not None and kept.until > now and code in (None, kept.code):
        return kept if seconds is None else Invitation(kept.code, now + timedelta(seconds=seconds))
    return Invitation(code or new_code(), now + timedelta(seconds=seconds or SECONDS))


def _name_in(url: str) -> str:
    """The host's name in `url`, which must have nothing behind it but a port; raises UsageError."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise UsageError("--url must be an address without a path", hint="--url https://board.example.org")
    return parts.hostname


def _is_near(url: str) -> bool:
    """Whether an address means this machine alone."""
    name = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _own_address(bound: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """The address by which others most likely reach this machine; nothing is sent to find it out."""
    family, elsewhere = (socket.AF_INET, "192.0.2.1") if bound.version == 4 else (socket.AF_INET6, "2001:db8::1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((elsewhere, 9))
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])
