"""`/live`: the feed as server-sent events. Each viewer waits for the next version, and one that is slow or gone waits
alone: what it has missed is sent together when it takes more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Generator
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tpufleet.board.feed import Feed

ALIVE_S = 15.0
ALIVE = b"event: alive\ndata: .\n\n"  # not a comment: scripts don't hear those, and couldn't tell a dead line
MOST_VIEWERS = 200  # of the connections that the server takes (serve.AT_ONCE)
AGAIN_MS = 3_000  # after which a browser that lost the line comes back


class Live:
    """The viewers of a feed; `touch` is called now and then while there are any. For one event loop."""

    def __init__(self, feed: Feed, touch: Callable[[], None]) -> None:
        self._feed = feed
        self._touch = touch
        self._news: asyncio.Event | None = None
        self._viewers = 0

    def answer(self, request: Request) -> Response:
        """The stream, from where the browser's Last-Event-ID says it was cut; a refusal when there are too many."""
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if self._viewers >= MOST_VIEWERS:
            return PlainTextResponse("Too many are looking already.\n", 503, headers={"retry-after": "30"})
        last = request.headers.get("last-event-id", "")
        known = int(last) if last.isdecimal() and last.isascii() and len(last) <= 18 else -1
        return _Stream(self._events(known), self._counted)

    async def _events(self, version: int) -> AsyncIterator[bytes]:
        yield f"retry: {AGAIN_MS}\n\n".encode()
        while not self._feed.is_closed:
            news = self._bell()  # before looking, lest what comes in between be missed
            self._touch()
            found = self._feed.since(version) or await run_in_threadpool(self._feed.whole)
            version, events = found
            if events:
                yield events
                continue
            try:
                async with asyncio.timeout(ALIVE_S):
                    await news.wait()
            except TimeoutError:
                yield ALIVE

    def _bell(self) -> asyncio.Event:
        """What rings when there is something new."""
        if self._news is None:
            self._news = asyncio.Event()
            loop = asyncio.get_running_loop()
            self._feed.listen(partial(loop.call_soon_threadsafe, self._ring))
        return self._news

    def _ring(self) -> None:
        if self._news is not None:
            self._news.set()
        self._news = asyncio.Event()

    @contextlib.contextmanager
    def _counted(self) -> Generator[None]:
        self._viewers += 1
        try:
            yield
        finally:
            self._viewers -= 1


class _Stream(StreamingResponse):
    """Is `counted` while it lasts, however it ends."""

    def __init__(self, events: AsyncIterator[bytes], counted: Callable[[], contextlib.AbstractContextManager[None]]):
        super().__init__(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self._counted = counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._counted():
            await super().__call__(scope, receive, send)
