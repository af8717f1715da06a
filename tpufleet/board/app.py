"""The board's routes: what is asked for, who may, and which page answers."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tpufleet.board.board_page import board_page
from tpufleet.board.files import FILES, file
from tpufleet.board.guard import Guard
from tpufleet.board.host_page import Guests, host_page
from tpufleet.board.live import Live
from tpufleet.board.logs import Logs
from tpufleet.board.pages import join_page, leading_page, said_page, visit_page
from tpufleet.board.poll import Poll
from tpufleet.board.reception import Reception
from tpufleet.board.scene import Scene
from tpufleet.board.signup import Form, same
from tpufleet.board.wall_page import wall_page
from tpufleet.errors import TpufleetError
from tpufleet.troubles import find

LARGEST_FORM = 400_000  # of 100 kB, with each byte as %XX
FORM_S = 20.0
UNSEEN = ("Not here", "Open the link to the board that you were given.")
FIELDS = 600  # the host's page names everybody who waits
# With no-referrer, browsers send forms with `Origin: null`, which tells nothing; to our own pages only, it is as good.
FORMS = {"referrer-policy": "same-origin"}


@dataclass(frozen=True)
class Door:
    """By which addresses and secrets the board is entered.

    `names`: host names it answers to. `viewer`: the token that lets people look, None where everybody who can reach the
    board may. `secure`: it is reached by https. `mark` keeps the cookies of two boards on one machine apart.
    """

    names: frozenset[str]
    url: str
    host: str
    viewer: str | None = None
    secure: bool = False
    mark: str = ""

    @property
    def board(self) -> str:
        return f"{self.url}/view/{self.viewer}" if self.viewer else f"{self.url}/"

    @property
    def hosts_page(self) -> str:
        return f"{self.url}/host/{self.host}"

    def invitation(self, code: str) -> str:
        return f"{self.url}/join?code={code}"


class Board:
    """The pages, over what stands behind them."""

    def __init__(self, fleet: str, reception: Reception, poll: Poll, door: Door) -> None:
        self._fleet = fleet
        self._reception = reception
        self._poll = poll
        self._door = door
        self._live = Live(poll.feed, poll.touch)
        self._logs = Logs(poll.log)
        self._pages: dict[Callable[[str, Scene], str], tuple[Scene, str]] = {}

    def app(self) -> ASGIApp:
        pages: list[tuple[str, str, Callable[[Request], Response]]] = [
            ("/", "GET", self._board),
            ("/wall", "GET", self._wall),
            ("/view/{token}", "GET", self._viewer),
            ("/join", "GET", self._join),
            ("/card/{token}", "GET", self._card),
            ("/host", "GET", self._host),
            ("/host/{token}", "GET", self._enter),
        ]
        routes = [Route(path, page, methods=[method]) for path, method, page in pages]
        routes += [Route("/live", self._stream, methods=["GET"]), Route("/log/{run}", self._log, methods=["GET"])]
        routes += [Route("/join", self._joined, methods=["POST"]), Route("/host", self._decided, methods=["POST"])]
        routes += [Route(path, _file, methods=["GET"]) for path in FILES]
        handlers = {HTTPException: _no_page, TpufleetError: _trouble, Exception: _broken}
        return Guard(Starlette(routes=routes, exception_handlers=handlers), self._door.names, secure=self._door.secure)

    # --------------------------------------------------------------------------------------------------- the board

    def _board(self, request: Request) -> Response:
        self._only_viewers(request)
        return _unless_known(request, self._drawn(board_page))

    def _wall(self, request: Request) -> Response:
        self._only_viewers(request)
        return _unless_known(request, self._drawn(wall_page))

    def _drawn(self, page: Callable[[str, Scene], str]) -> str:
        """A page of the newest scene, made once for all who ask for it until there is a newer one."""
        scene = self._poll.latest()
        drawn = self._pages.get(page)
        if drawn is None or drawn[0] is not scene:
            drawn = self._pages[page] = scene, page(self._fleet, scene)
        return drawn[1]

    async def _stream(self, request: Request) -> Response:
        self._only_viewers(request)
        return self._live.answer(request)

    async def _log(self, request: Request) -> Response:
        self._only_viewers(request)
        text = await self._logs.tail(request.path_params["run"])
        if text is None:
            raise HTTPException(404)
        answer = _unless_known(request, text, kind="text/plain")
        if known := find(text)[:1]:
            answer.headers["x-tpufleet-meaning"] = known[0].sentence
        return answer

    def _viewer(self, request: Request) -> Response:
        viewer = self._door.viewer
        if viewer is None or not same(request.path_params["token"], viewer):
            raise HTTPException(404)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self._cookie("view"), viewer, httponly=True, samesite="lax", secure=self._door.secure)
        return answer

    def _only_viewers(self, request: Request) -> None:
        viewer = self._door.viewer
        shown = request.cookies.get(self._cookie("view"), "")
        if not (viewer is None or same(shown, viewer) or self._is_host(request)):
            raise HTTPException(403, UNSEEN[1])

    # ----------------------------------------------------------------------------------------------- signing up

    def _join(self, request: Request) -> Response:
        if self._reception.invitation is None:
            return HTMLResponse(said_page("Closed", "Nobody can sign up here now: ask who invited you."), 404)
        typed = Form(code=request.query_params.get("code", ""))
        return HTMLResponse(join_page(self._fleet, typed, {}), headers=FORMS)

    async def _joined(self, request: Request) -> Response:
        fields = dict(await _fields(request))
        return await run_in_threadpool(self._answer, Form.of(fields), _address(request))

    def _answer(self, form: Form, address: str) -> Response:
        answer = self._reception.join(form, address)
        if answer.wait_s:
            minutes = math.ceil(answer.wait_s / 60)
            text = f"There were too many tries from here. Try again in {minutes} min; nothing is lost."
            page = said_page("A moment, please", text, home=True)
            return HTMLResponse(page, 429, headers={"retry-after": str(math.ceil(answer.wait_s))})
        if answer.token is None:
            _, key, _ = form.read()
            return HTMLResponse(
                join_page(self._fleet, form, answer.wrong, key=str(key) if key else ""), 422, headers=FORMS
            )
        return RedirectResponse(f"/card/{answer.token}", 303)

    def _card(self, request: Request) -> Response:
        visit = self._reception.visit(request.path_params["token"])
        if visit is None:
            raise HTTPException(404)
        return HTMLResponse(visit_page(self._fleet, visit))

    # ------------------------------------------------------------------------------------------- the host of it all

    def _host(self, request: Request) -> Response:
        self._only_host(request)
        visits, others = self._reception.visits()
        invitation = self._reception.invitation
        link = self._door.invitation(invitation.code) if invitation else ""
        guests = Guests(visits, others, self._reception.admission.problems())
        shown = host_page(self._fleet, invitation, link, guests)
        return _unless_known(request, shown, FORMS)

    def _enter(self, request: Request) -> Response:
        if not same(request.path_params["token"], self._door.host):
            raise HTTPException(404)
        answer = HTMLResponse(leading_page("/host"))
        secure = self._door.secure
        answer.set_cookie(self._cookie("host"), self._door.host, httponly=True, samesite="strict", secure=secure)
        return answer

    async def _decided(self, request: Request) -> Response:
        self._only_host(request)
        fields = await _fields(request)
        names = [value for name, value in fields if name == "name"]
        word = dict(fields).get("word")
        if word not in ("welcome", "refuse"):
            raise HTTPException(400)
        await run_in_threadpool(self._reception.decide, names, welcome=word == "welcome")
        return RedirectResponse("/host", 303)

    def _only_host(self, request: Request) -> None:
        if not self._is_host(request):
            raise HTTPException(403)

    def _is_host(self, request: Request) -> bool:
        return same(request.cookies.get(self._cookie("host"), ""), self._door.host)

    def _cookie(self, role: str) -> str:
        return f"tpufleet-{role}{self._door.mark}"


# ---------------------------------------------------------------------------------------------- what came, what goes


async def _fields(request: Request) -> list[tuple[str, str]]:
    """The fields of a form, in order. Bytes that aren't UTF-8 stay what they are: refused in a name, and in a key."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415)
    body = bytearray()
    try:
        async with asyncio.timeout(FORM_S):
            async for part in request.stream():
                body += part
                if len(body) > LARGEST_FORM:
                    raise HTTPException(413)
    except TimeoutError:
        raise HTTPException(408) from None
    except ClientDisconnect:
        raise HTTPException(400) from None
    try:
        text = body.decode("ascii")
        return parse_qsl(text, keep_blank_values=True, errors="surrogateescape", max_num_fields=FIELDS)
    except ValueError:  # not a form's alphabet, or too many fields
        raise HTTPException(400) from None


def _address(request: Request) -> str:
    """Who asks; what a server in front says about that isn't believed, since anybody can say it."""
    return request.client.host if request.client else ""


def _unless_known(
    request: Request, page: str, headers: dict[str, str] | None = None, kind: str = "text/html"
) -> Response:
    """The page, or that it is the one that the browser has: who looks every few seconds mostly sees nothing new."""
    tag = f'"{hashlib.sha256(page.encode()).hexdigest()[:32]}"'
    tagged = {**(headers or {}), "etag": tag, "cache-control": "no-cache, private"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=tagged)
    return Response(page, headers=tagged, media_type=kind)


def _file(request: Request) -> Response:
    text, kind = file(request.url.path)
    return Response(text, media_type=kind, headers={"cache-control": "max-age=3600"})


_SAID = {
    400: ("Not understood", "This form can't be read: go back, and send it again."),
    403: ("Not here", "Open the link to your page that the terminal shows."),
    404: ("No such page", "Nothing is here. Is the link whole?"),
    405: ("Not like this", "This page is only there to be looked at."),
    408: ("Too slow", "The form took too long to arrive: send it again."),
    413: ("Too long", "What was sent is far longer than a name and a public key are."),
    415: ("Not understood", "This form can't be read: go back, and send it again."),
}


async def _no_page(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)  # noqa: S101 - the only type it is registered for
    said = _SAID.get(error.status_code, ("That didn't work", "Go back, and try again."))
    title, text = UNSEEN if error.detail == UNSEEN[1] else said
    return HTMLResponse(said_page(title, text), error.status_code)


async def _trouble(request: Request, error: Exception) -> Response:
    """A list that can't be read, a disk that is full: its own words are for the host's terminal, not for guests."""
    del request, error
    text = "This doesn't work at the moment. Tell the host of the evening, and try again in a minute."
    return HTMLResponse(said_page("That didn't work", text), 503, headers={"retry-after": "60"})


async def _broken(request: Request, error: Exception) -> Response:
    """A bug; Starlette raises the error again, for the log."""
    return await _trouble(request, error)
