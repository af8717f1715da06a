"""Faults of the API itself: calls that are answered with an error, late, or not at all, before any route sees them.

Texts are Google's: 401, 500 and 503 those of every Google API (https://cloud.google.com/apis/design/errors), 403
as the TPU API says it (tensorflow/tpu #296) with the detail that all of Google's services send, 429 as users of the
TPU API quote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tpufleet.emulator.clock import Clock
from tpufleet.emulator.wire import ApiError, Json

LOST = "LOST"  # instead of an error's status: the call is carried out and its answer never comes
# What a person may call an error by besides google.rpc.Code's name.
STATUS_OF_HTTP = {
    "400": "INVALID_ARGUMENT",
    "401": "UNAUTHENTICATED",
    "403": "PERMISSION_DENIED",
    "404": "NOT_FOUND",
    "409": "ABORTED",
    "429": "RESOURCE_EXHAUSTED",
    "500": "INTERNAL",
    "503": "UNAVAILABLE",
    "504": "DEADLINE_EXCEEDED",
}
TEXTS = {
    "UNAUTHENTICATED": "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or"
    " other valid authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project.",
    "PERMISSION_DENIED": "Permission '{permission}' denied on '{resource}'",
    "NOT_FOUND": "Resource '{resource}' was not found",
    "ALREADY_EXISTS": "Resource '{resource}' already exists",
    "ABORTED": "The operation was aborted.",
    "RESOURCE_EXHAUSTED": "Quota exceeded for {method} requests per minute.",
    "INTERNAL": "Internal error encountered.",
    "UNAVAILABLE": "The service is currently unavailable.",
    "DEADLINE_EXCEEDED": "Deadline expired before operation could complete.",
}
RESOURCE = re.compile(r"projects/[^/:]+(/locations/[^/:]+(/[a-zA-Z]+/[^/:]+)?)?")


@dataclass
class Rule:
    """The `left` calls of `method` (None: of any) after the next `skip` ones are answered so."""

    status: str
    text: str
    method: str | None
    skip: int
    left: int
    retry_after: int | None

    def takes(self, method: str) -> bool:
        """Whether this call is one of those; counts it."""
        if self.left == 0 or self.method not in (None, method):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.left -= 1
        return True


class Interference:
    """What is done to the API's calls now."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.delay_s = 0.0

    def rule_for(self, method: str) -> Rule | None:
        """What befalls this call of `method`; every rule counts it, the oldest that is due is applied."""
        due = [rule for rule in self.rules if rule.takes(method)]
        self.rules = [rule for rule in self.rules if rule.left]
        return due[0] if due else None


class Interfered:
    """The API with its faults; the emulator's own routes (/emulator/) have none."""

    def __init__(
        self,
        inner: ASGIApp,
        routes: Sequence[BaseRoute],
        interference: Interference,
        *,
        clock: Clock,
        called: Callable[[str], None],
        cut: Callable[[tuple[str, int]], None],
    ) -> None:
        """`called` is told of calls that no route sees; `cut` ends the connection of a client."""
        self._inner = inner
        self._routes = routes
        self._interference = interference
        self._clock = clock
        self._called = called
        self._cut = cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = None if str(scope["path"]).startswith("/emulator/") else self._method(scope)
        if method is None:
            await self._inner(scope, receive, send)
            return
        if self._interference.delay_s:
            await self._clock.sleep(self._interference.delay_s)
        rule = self._interference.rule_for(method)
        if rule is None:
            await self._inner(scope, receive, send)
        elif rule.status == LOST:
            await self._lose_answer(scope, receive)
        else:
            self._called(method)
            await _answer(rule, method, str(scope["path"]))(scope, receive, send)

    def _method(self, scope: Scope) -> str | None:
        """The API method that is called, by the name of its route."""
        matches = (route for route in self._routes if route.matches(scope)[0] is Match.FULL)
        route = next(matches, None)
        return route.name if isinstance(route, Route) else None

    async def _lose_answer(self, scope: Scope, receive: Receive) -> None:
        async def nowhere(_: object) -> None:
            pass

        await self._inner(scope, receive, nowhere)
        self._cut(cast("tuple[str, int]", tuple(scope["client"])))
        while (await receive())["type"] != "http.disconnect":
            pass


def _answer(rule: Rule, method: str, path: str) -> JSONResponse:
    found = RESOURCE.search(path)
    facts = {"method": method, "resource": found[0] if found else path, "permission": _permission(method)}
    text = rule.text or TEXTS.get(rule.status, "The rehearsal cloud was told to say so.").format(**facts)
    details: list[Json] = []
    if rule.status == "PERMISSION_DENIED":
        details = [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "IAM_PERMISSION_DENIED",
                "domain": "tpu.googleapis.com",
                "metadata": {"permission": facts["permission"], "resource": facts["resource"]},
            }
        ]
    error = ApiError(rule.status, text, details)
    headers = {"Retry-After": str(rule.retry_after)} if rule.retry_after is not None else None
    return JSONResponse(error.envelope(), error.http_status, headers)


def _permission(method: str) -> str:
    """CreateNode -> `tpu.nodes.create`, ListAcceleratorTypes -> `tpu.acceleratortypes.list`."""
    verb, thing = re.findall(r"[A-Z][a-z]+", method)[0], re.sub(r"^[A-Z][a-z]+", "", method).lower()
    if thing == "guestattributes":
        return "tpu.nodes.getGuestAttributes"
    return f"tpu.{thing.rstrip('s')}s.{verb.lower()}"
