"""The Cloud TPU API v2 over HTTP: routes, queries and bodies in, Google's JSON out.

Source: the v2 discovery document and what `google-cloud-tpu`'s REST transport sends. Enums go out by name, which
every client accepts, whatever `$alt` asks for.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tpufleet.accelerators import lookup
from tpufleet.emulator import schema, zones
from tpufleet.emulator.keeper import Keeper
from tpufleet.emulator.wire import ApiError, Json, bad_request, not_found, page

Handler = Callable[[Request], Awaitable[Json]]

PROJECT = "/v2/projects/{project}/locations"
ZONE = PROJECT + "/{zone}"


def routes(keeper: Keeper) -> list[Route]:
    """All methods of the API; each call is written into the judge's book under the method's name."""
    api = Api(keeper)
    table: list[tuple[str, str, str, Handler]] = [
        ("GET", PROJECT, "ListLocations", api.list_locations),
        ("GET", ZONE, "GetLocation", api.get_location),
        ("GET", ZONE + "/nodes", "ListNodes", api.list_nodes),
        ("POST", ZONE + "/nodes", "CreateNode", api.create_node),
        ("POST", ZONE + "/nodes/{node}:stop", "StopNode", api.stop_node),
        ("POST", ZONE + "/nodes/{node}:start", "StartNode", api.start_node),
        ("POST", ZONE + "/nodes/{node}:getGuestAttributes", "GetGuestAttributes", api.guest_attributes),
        ("GET", ZONE + "/nodes/{node}", "GetNode", api.get_node),
        ("DELETE", ZONE + "/nodes/{node}", "DeleteNode", api.delete_node),
        ("PATCH", ZONE + "/nodes/{node}", "UpdateNode", api.update_node),
        ("GET", ZONE + "/operations", "ListOperations", api.list_operations),
        ("POST", ZONE + "/operations/{operation}:cancel", "CancelOperation", api.cancel_operation),
        ("GET", ZONE + "/operations/{operation}", "GetOperation", api.get_operation),
        ("GET", ZONE + "/acceleratorTypes", "ListAcceleratorTypes", api.list_accelerator_types),
        ("GET", ZONE + "/acceleratorTypes/{type}", "GetAcceleratorType", api.get_accelerator_type),
        ("GET", ZONE + "/runtimeVersions", "ListRuntimeVersions", api.list_runtime_versions),
        ("GET", ZONE + "/runtimeVersions/{version}", "GetRuntimeVersion", api.get_runtime_version),
        ("GET", ZONE + "/queuedResources", "ListQueuedResources", api.list_queued_resources),
        ("POST", ZONE + "/queuedResources", "CreateQueuedResource", api.create_queued_resource),
        ("GET", ZONE + "/queuedResources/{name}", "GetQueuedResource", api.no_queued_resource),
        ("DELETE", ZONE + "/queuedResources/{name}", "DeleteQueuedResource", api.no_queued_resource),
    ]
    return [_route(keeper, *line) for line in table]


def _route(keeper: Keeper, verb: str, path: str, method: str, handler: Handler) -> Route:
    async def endpoint(request: Request) -> JSONResponse:
        keeper.book.called(method)
        return JSONResponse(await handler(request))

    return Route(path, endpoint, methods=[verb], name=method)


class Api:
    """One method per API method: takes the request, returns the answer's JSON, raises ApiError."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._cloud = keeper.cloud

    async def list_locations(self, request: Request) -> Json:
        found = [_location(request.path_params["project"], zone) for zone in zones.ALL_ZONES]
        return _page(request, found, "locations")

    async def get_location(self, request: Request) -> Json:
        project, zone = _scope(request)
        zones.check_zone(zone)
        return _location(project, zone)

    async def list_nodes(self, request: Request) -> Json:
        return _page(request, [node.wire() for node in self._cloud.nodes_in(*_scope(request))], "nodes")

    async def get_node(self, request: Request) -> Json:
        return self._cloud.node(_node_name(request)).wire()

    async def create_node(self, request: Request) -> Json:
        node_id = request.query_params.get("nodeId", "")
        return self._keeper.create(*_scope(request), node_id, await _body(request)).wire()

    async def update_node(self, request: Request) -> Json:
        mask = [path for path in request.query_params.get("updateMask", "").split(",") if path]
        return self._keeper.update(_node_name(request), mask, await _body(request)).wire()

    async def delete_node(self, request: Request) -> Json:
        return self._keeper.delete(_node_name(request)).wire()

    async def stop_node(self, request: Request) -> Json:
        schema.check(await _body(request), {}, "")
        return self._keeper.stop(_node_name(request)).wire()

    async def start_node(self, request: Request) -> Json:
        schema.check(await _body(request), {}, "")
        return self._keeper.start(_node_name(request)).wire()

    async def guest_attributes(self, request: Request) -> Json:
        asked = schema.check(await _body(request), schema.GUEST_ATTRIBUTES, "")
        keys = self._keeper.host_keys(_node_name(request))
        chosen = [keys[worker] for worker in _workers(asked.get("workerIds", []), len(keys))]
        return {"guestAttributes": [_attributes(asked.get("queryPath", ""), key) for key in chosen]}

    async def list_operations(self, request: Request) -> Json:
        found = [operation.wire() for operation in self._cloud.operations_in(*_scope(request))]
        return _page(request, found, "operations")

    async def get_operation(self, request: Request) -> Json:
        return self._cloud.operation(_operation_name(request)).wire()

    async def cancel_operation(self, request: Request) -> Json:
        """Notes the wish, as Google's best effort allows; nothing here is slow enough to be worth a cancel."""
        self._cloud.operation(_operation_name(request)).cancel_requested = True
        return {}

    async def list_accelerator_types(self, request: Request) -> Json:
        project, zone = _scope(request)
        zones.check_zone(zone)
        found = [_accelerator(project, zone, name) for name in zones.types_in(zone)]
        return _page(request, found, "acceleratorTypes")

    async def get_accelerator_type(self, request: Request) -> Json:
        project, zone = _scope(request)
        zones.check_zone(zone)
        if request.path_params["type"] not in zones.types_in(zone):
            raise not_found(f"projects/{project}/locations/{zone}/acceleratorTypes/{request.path_params['type']}")
        return _accelerator(project, zone, request.path_params["type"])

    async def list_runtime_versions(self, request: Request) -> Json:
        project, zone = _scope(request)
        zones.check_zone(zone)
        return _page(request, [_runtime(project, zone, name) for name in zones.RUNTIMES], "runtimeVersions")

    async def get_runtime_version(self, request: Request) -> Json:
        project, zone = _scope(request)
        zones.check_zone(zone)
        runtime = _runtime(project, zone, request.path_params["version"])
        if runtime["version"] not in zones.RUNTIMES:
            raise not_found(runtime["name"])
        return runtime

    async def list_queued_resources(self, request: Request) -> Json:
        _, zone = _scope(request)
        if zone != "-":
            zones.check_zone(zone)
        return {}

    async def create_queued_resource(self, request: Request) -> Json:
        del request
        raise ApiError("UNIMPLEMENTED", "The rehearsal cloud has no queued resources yet; create a node instead.")

    async def no_queued_resource(self, request: Request) -> Json:
        project, zone = _scope(request)
        raise not_found(f"projects/{project}/locations/{zone}/queuedResources/{request.path_params['name']}")


def _scope(request: Request) -> tuple[str, str]:
    return request.path_params["project"], request.path_params["zone"]


def _node_name(request: Request) -> str:
    project, zone = _scope(request)
    return f"projects/{project}/locations/{zone}/nodes/{request.path_params['node']}"


def _operation_name(request: Request) -> str:
    project, zone = _scope(request)
    return f"projects/{project}/locations/{zone}/operations/{request.path_params['operation']}"


async def _body(request: Request) -> Any:
    text = await request.body()
    try:
        return json.loads(text) if text else {}
    except ValueError as error:
        raise ApiError("INVALID_ARGUMENT", f"Invalid JSON payload received. {error}") from error


def _page(request: Request, items: list[Json], key: str) -> Json:
    size = request.query_params.get("pageSize", "0")
    if not size.isdecimal():
        raise bad_request(f"invalid page size {size!r}")
    return page(items, key, int(size), request.query_params.get("pageToken", ""))


def _workers(ids: list[str], count: int) -> list[int]:
    """Worker indices for `workerIds`; none, or one empty one, means all."""
    if not any(ids):
        return list(range(count))
    for one in ids:
        if not one.isdecimal() or int(one) >= count:
            raise bad_request(f"worker id {one!r} is invalid")
    return [int(one) for one in ids]


def _attributes(query: str, host_key: str | None) -> Json:
    entry = {"namespace": "hostkeys", "key": "ssh-ed25519", "value": host_key}
    matches = host_key is not None and "hostkeys/ssh-ed25519".startswith(query)
    return {"queryPath": query, "queryValue": {"items": [entry] if matches else []}}


def _location(project: str, zone: str) -> Json:
    return {"name": f"projects/{project}/locations/{zone}", "locationId": zone, "displayName": zone}


def _accelerator(project: str, zone: str, name: str) -> Json:
    accelerator = lookup(name)
    kind = zones.CONFIG_TYPES[accelerator.generation.name][0]
    return {
        "name": f"projects/{project}/locations/{zone}/acceleratorTypes/{name}",
        "type": name,
        "acceleratorConfigs": [{"type": kind, "topology": accelerator.topology}],
    }


def _runtime(project: str, zone: str, name: str) -> Json:
    return {"name": f"projects/{project}/locations/{zone}/runtimeVersions/{name}", "version": name}
