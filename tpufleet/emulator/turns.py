"""Work on nodes and queued resources: on each of them in the order in which it was asked for."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

log = logging.getLogger(__name__)


class Turns:
    """Tasks by the name of what they work on."""

    def __init__(self) -> None:
        self._tasks: defaultdict[str, set[asyncio.Task[None]]] = defaultdict(set)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def do(self, name: str, work: Callable[..., Awaitable[None]], *args: Any) -> asyncio.Task[None]:
        """Starts `work(*args)` on `name`, after what is being done to it."""
        task = asyncio.create_task(self._in_turn(name, work, *args))
        self._tasks[name].add(task)
        task.add_done_callback(lambda done: self._done(name, done))
        return task

    async def _in_turn(self, name: str, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        async with self._locks[name]:
            await work(*args)

    def _done(self, name: str, task: asyncio.Task[None]) -> None:
        self._tasks[name].discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("work on %s failed", name, exc_info=error)

    def interrupt(self, name: str) -> None:
        """Cancels what is being done, or waits to be done, to `name`."""
        for task in self._tasks[name]:
            task.cancel()

    async def settled(self, name: str) -> None:
        """Until nothing of what was asked for by now is being done to `name`."""
        await asyncio.gather(*self._tasks[name], return_exceptions=True)

    async def end(self) -> None:
        """Cancels everything, and waits for its end."""
        tasks = [task for tasks in self._tasks.values() for task in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def together(works: Iterable[Awaitable[None]]) -> None:
    """Awaits all of `works` to their ends, then raises the first error among them."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if result is not None:
            raise result
