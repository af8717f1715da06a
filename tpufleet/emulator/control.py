"""The emulator's own routes below /emulator/: what it is, the judge's book, settings, faults, stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tpufleet.emulator import schema
from tpufleet.emulator.hosts import Settings
from tpufleet.emulator.keeper import Keeper
from tpufleet.emulator.wire import ApiError, Json, not_found

SETTINGS: Json = {"path": (str,), "createSeconds": float}


def routes(keeper: Keeper, facts: Json, stop: Callable[[], None]) -> list[Route]:
    """`facts` is what `info` says besides the settings; `stop` asks the daemon to end."""

    async def info(_: Request) -> JSONResponse:
        return JSONResponse(facts | {"settings": _settings(keeper.settings)})

    async def book(_: Request) -> JSONResponse:
        return JSONResponse(keeper.book.wire(keeper.clock.now()))

    async def settings(request: Request) -> JSONResponse:
        keeper.change_settings(await _wanted(request, keeper.settings))
        return JSONResponse(_settings(keeper.settings))

    async def fault(request: Request) -> JSONResponse:
        await _fault(keeper, request.path_params["kind"], request.path_params["target"])
        return JSONResponse({})

    async def end(_: Request) -> JSONResponse:
        stop()
        return JSONResponse({})

    return [
        Route("/emulator/info", info, methods=["GET"]),
        Route("/emulator/book", book, methods=["GET"]),
        Route("/emulator/settings", settings, methods=["PUT"]),
        Route("/emulator/faults/{kind}/{target:path}", fault, methods=["POST"]),
        Route("/emulator/stop", end, methods=["POST"]),
    ]


async def _fault(keeper: Keeper, kind: str, target: str) -> None:
    """down, up and reboot take a host (`tpu-0-w0`), preempt a node (its id, or its whole name)."""
    faults: dict[str, Callable[[str], Awaitable[None]]] = {
        "down": keeper.crash,
        "up": keeper.revive,
        "reboot": keeper.revive,
        "preempt": lambda node: keeper.preempt(_full_name(keeper, node)),
    }
    if kind not in faults:
        raise not_found(f"faults/{kind}")
    await faults[kind](target)


def _full_name(keeper: Keeper, node: str) -> str:
    names = [name for name, record in keeper.cloud.nodes.items() if node in (name, record.label)]
    if not names:
        raise not_found(f"nodes/{node}")
    return names[0]


async def _wanted(request: Request, current: Settings) -> Settings:
    try:
        body = await request.json()
    except ValueError as error:
        raise ApiError("INVALID_ARGUMENT", f"Invalid JSON payload received. {error}") from error
    given = schema.check(body, SETTINGS, "")
    return Settings(
        path=given.get("path", current.path), create_seconds=given.get("createSeconds", current.create_seconds)
    )


def _settings(settings: Settings) -> Json:
    return {"path": list(settings.path), "createSeconds": settings.create_seconds}
