"""Before any page: whose browser asks, for which address, and what its answer may do there."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SELF = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
SECURE = {"cross-origin-opener-policy": "same-origin"}  # without https, browsers pass it over with a complaint
HEADERS = {
    "content-security-policy": _SELF + "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "x-robots-tag": "noindex",
}


class Guard:
    """Lets through what is meant for this board and doesn't come from another site's page.

    `names` are the host names it answers to, besides any IP address: to a page that has got its own name to lead here
    (DNS rebinding), it says nothing.
    """

    def __init__(self, inner: ASGIApp, names: Collection[str], *, secure: bool) -> None:
        self._inner = inner
        self._names = names
        self._headers = HEADERS | (SECURE if secure else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                headers.setdefault("referrer-policy", "no-referrer")
            await send(message)

        headers = Headers(scope=scope)
        if not is_ours(headers.get("host", ""), self._names):
            answer = PlainTextResponse("This board has another address.\n", 421)
            await answer(scope, receive, guarded)
        elif scope["method"] not in ("GET", "HEAD") and not is_same_site(headers):
            answer = PlainTextResponse("This came from another site's page.\n", 403)
            await answer(scope, receive, guarded)
        else:
            await self._inner(scope, receive, guarded)


def is_ours(host: str, names: Collection[str]) -> bool:
    """Whether a Host header is an address, or one of `names`; ports don't matter (they may be forwarded)."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_same_site(headers: Mapping[str, str]) -> bool:
    """Whether a form was sent by a page of ours: browsers say so in one of two headers, or both.

    Programs that are no browsers send neither, and carry nobody's cookies.
    """
    fetched = headers.get("sec-fetch-site")
    if fetched is not None:
        return fetched == "same-origin"
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host", "")
