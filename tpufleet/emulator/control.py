"""The emulator's own routes below /emulator/: what it is, the judge's book, settings, steps, faults, stop.

A fault begins with POST /emulator/faults/KIND/TARGET (its options as a JSON object, or no body) and ends with DELETE;
GET /emulator/faults lists what is in force, DELETE /emulator/faults ends it all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tpufleet.emulator import schema
from tpufleet.emulator.faults import Faults
from tpufleet.emulator.hosts import Settings
from tpufleet.emulator.keeper import Keeper
from tpufleet.emulator.wire import ApiError, Json

SETTINGS: Json = {"path": (str,), "createSeconds": float, "manual": bool}


def routes(keeper: Keeper, faults: Faults, facts: Json, stop: Callable[[], None]) -> list[Route]:
    """`facts` is what `info` says besides the settings; `stop` asks the daemon to end."""

    async def info(_: Request) -> JSONResponse:
        return JSONResponse(facts | {"settings": _settings(keeper.settings)})

    async def book(_: Request) -> JSONResponse:
        return JSONResponse(keeper.book.wire(keeper.clock.now()))

    async def settings(request: Request) -> JSONResponse:
        keeper.change_settings(_wanted(await _body(request), keeper.settings))
        return JSONResponse(_settings(keeper.settings))

    async def step(request: Request) -> JSONResponse:
        return JSONResponse({"stepped": keeper.step(faults.full_name(request.path_params["target"]))})

    async def in_force(_: Request) -> JSONResponse:
        return JSONResponse({"faults": faults.in_force()})

    async def clear(_: Request) -> JSONResponse:
        return JSONResponse({"faults": await faults.clear()})

    async def begin(request: Request) -> JSONResponse:
        return JSONResponse(await faults.begin(*_fault(request), await _body(request)))

    async def end(request: Request) -> JSONResponse:
        return JSONResponse(await faults.end(*_fault(request)))

    async def quit_(_: Request) -> JSONResponse:
        stop()
        return JSONResponse({})

    return [
        Route("/emulator/info", info, methods=["GET"]),
        Route("/emulator/book", book, methods=["GET"]),
        Route("/emulator/settings", settings, methods=["PUT"]),
        Route("/emulator/step/{target:path}", step, methods=["POST"]),
        Route("/emulator/faults", in_force, methods=["GET"]),
        Route("/emulator/faults", clear, methods=["DELETE"]),
        Route("/emulator/faults/{kind}/{target:path}", begin, methods=["POST"]),
        Route("/emulator/faults/{kind}/{target:path}", end, methods=["DELETE"]),
        Route("/emulator/stop", quit_, methods=["POST"]),
    ]


def _fault(request: Request) -> tuple[str, str]:
    return request.path_params["kind"], request.path_params["target"]


async def _body(request: Request) -> Any:
    if not await request.body():
        return {}
    try:
        return await request.json()
    except ValueError as error:
        raise ApiError("INVALID_ARGUMENT", f"Invalid JSON payload received. {error}") from error


def _wanted(body: Any, current: Settings) -> Settings:
    given = schema.check(body, SETTINGS, "")
    return Settings(
        path=given.get("path", current.path),
        create_seconds=given.get("createSeconds", current.create_seconds),
        manual=given.get("manual", current.manual),
    )


def _settings(settings: Settings) -> Json:
    return {"path": list(settings.path), "createSeconds": settings.create_seconds, "manual": settings.manual}
