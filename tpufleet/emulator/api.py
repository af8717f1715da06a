"""The Cloud TPU API over HTTP, in the versions that Google's clients use: one table of routes, and their door.

Sources: the discovery documents of v1, v2 and v2alpha1, what `google-cloud-tpu`'s REST transport sends, and gcloud's
own definitions. Enums go out by name, which every client accepts, whatever `$alt` asks for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tpufleet.emulator.api_catalog import Catalog
from tpufleet.emulator.api_nodes import Nodes
from tpufleet.emulator.api_queued import QueuedResources
from tpufleet.emulator.calls import Call
from tpufleet.emulator.compute import Projects
from tpufleet.emulator.identity import TOKEN_PREFIX, token_of
from tpufleet.emulator.keeper import Keeper
from tpufleet.emulator.legacy import LegacyNodes
from tpufleet.emulator.wire import RPC_TYPES, ApiError, Json

Handler = Callable[[Call], Awaitable[Json]]


class Line(NamedTuple):
    """A line of the table: which versions have it, where, the method's name, and the query parameters it takes."""

    versions: str
    verb: str
    path: str
    method: str
    handler: Handler
    query: str = ""


PROJECT = "/projects/{project}/locations"
ZONE = PROJECT + "/{zone}"
NODE = ZONE + "/nodes/{id}"
QUEUED = ZONE + "/queuedResources/{id}"
OPERATIONS = ZONE + "/operations"
OPERATION = OPERATIONS + "/{id}"
COMPUTE = "/projects/{project}"

PAGES = "pageSize pageToken"
LISTS = PAGES + " filter orderBy"
CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"


def routes(keeper: Keeper) -> list[Route]:
    """All methods; each call is written into the judge's book under the method's name."""
    nodes, queued, catalog = Nodes(keeper), QueuedResources(keeper), Catalog(keeper)
    v1, projects = LegacyNodes(keeper), Projects(keeper)
    both, alpha, all_three, gce = "v2 v2alpha1", "v2alpha1", "v1 v2 v2alpha1", "compute/v1"
    table = (
        Line(all_three, "GET", PROJECT, "ListLocations", catalog.list_locations, f"{PAGES} filter extraLocationTypes"),
        Line(all_three, "GET", ZONE, "GetLocation", catalog.get_location),
        Line(both, "POST", ZONE + ":generateServiceIdentity", "GenerateServiceIdentity", catalog.service_identity),
        Line(both, "GET", ZONE + "/nodes", "ListNodes", nodes.list, PAGES),
        Line("v2", "POST", ZONE + "/nodes", "CreateNode", nodes.create, "nodeId"),
        Line(alpha, "POST", ZONE + "/nodes", "CreateNode", nodes.create, "nodeId requestId"),
        Line(all_three, "POST", NODE + ":stop", "StopNode", nodes.stop),
        Line(all_three, "POST", NODE + ":start", "StartNode", nodes.start),
        Line(both, "POST", NODE + ":getGuestAttributes", "GetGuestAttributes", nodes.guest_attributes),
        Line(alpha, "POST", NODE + ":simulateMaintenanceEvent", "SimulateMaintenanceEvent", nodes.simulate_maintenance),
        Line(both, "GET", NODE, "GetNode", nodes.get),
        Line("v1 v2", "DELETE", NODE, "DeleteNode", nodes.delete),
        Line(alpha, "DELETE", NODE, "DeleteNode", nodes.delete, "requestId"),
        Line(both, "PATCH", NODE, "UpdateNode", nodes.update, "updateMask"),
        Line("v1", "GET", ZONE + "/nodes", "ListNodes", v1.list, PAGES),
        Line("v1", "GET", NODE, "GetNode", v1.get),
        Line("v1", "POST", ZONE + "/nodes", "CreateNode", v1.create, "nodeId"),
        Line(both, "GET", ZONE + "/queuedResources", "ListQueuedResources", queued.list, PAGES),
        Line(
            both, "POST", ZONE + "/queuedResources", "CreateQueuedResource", queued.create, "queuedResourceId requestId"
        ),
        Line(both, "POST", QUEUED + ":reset", "ResetQueuedResource", queued.reset),
        Line(both, "GET", QUEUED, "GetQueuedResource", queued.get),
        Line(both, "DELETE", QUEUED, "DeleteQueuedResource", queued.delete, "force requestId"),
        Line(all_three, "GET", OPERATIONS, "ListOperations", catalog.list_operations, f"{LISTS} returnPartialSuccess"),
        Line(all_three, "POST", OPERATION + ":cancel", "CancelOperation", catalog.cancel_operation),
        Line(all_three, "GET", OPERATION, "GetOperation", catalog.get_operation),
        Line(all_three, "DELETE", OPERATION, "DeleteOperation", catalog.delete_operation),
        Line(
            all_three, "GET", ZONE + "/acceleratorTypes", "ListAcceleratorTypes", catalog.list_accelerator_types, LISTS
        ),
        Line(all_three, "GET", ZONE + "/acceleratorTypes/{id}", "GetAcceleratorType", catalog.get_accelerator_type),
        Line(both, "GET", ZONE + "/runtimeVersions", "ListRuntimeVersions", catalog.list_runtime_versions, LISTS),
        Line(both, "GET", ZONE + "/runtimeVersions/{id}", "GetRuntimeVersion", catalog.get_runtime_version),
        Line(
            "v1", "GET", ZONE + "/tensorflowVersions", "ListTensorFlowVersions", catalog.list_tensorflow_versions, LISTS
        ),
        Line("v1", "GET", ZONE + "/tensorflowVersions/{id}", "GetTensorFlowVersion", catalog.get_tensorflow_version),
        Line(alpha, "GET", ZONE + "/reservations", "ListReservations", catalog.no_reservations, PAGES),
        Line(gce, "GET", COMPUTE, "compute.GetProject", projects.get),
        Line(
            gce,
            "POST",
            COMPUTE + "/setCommonInstanceMetadata",
            "compute.SetMetadata",
            projects.set_metadata,
            "requestId",
        ),
        Line(gce, "GET", COMPUTE + "/global/operations/{id}", "compute.GetOperation", projects.get_operation),
        Line(
            *("compute/v1", "POST", COMPUTE + "/global/operations/{id}/wait"),
            *("compute.WaitOperation", projects.get_operation),
        ),
    )
    return [_route(keeper, version, line) for line in table for version in line.versions.split()]


def _route(keeper: Keeper, version: str, line: Line) -> Route:
    parameters = frozenset(line.query.split())

    async def endpoint(request: Request) -> JSONResponse:
        keeper.book.called(line.method)
        call = Call(request, version)
        _check_token(keeper, request)
        call.check_query(parameters)
        return JSONResponse(await line.handler(call))

    return Route(f"/{version}{line.path}", endpoint, methods=[line.verb], name=line.method)


def _check_token(keeper: Keeper, request: Request) -> None:
    """Refuses a host whose node's scopes don't reach the API; what else callers bring is not looked at.

    Source of the text: https://cloud.google.com/docs/authentication/troubleshoot-adc, insufficient scopes.
    """
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    if not token.startswith(TOKEN_PREFIX):
        return
    callers = [node for node in keeper.cloud.nodes.values() if token_of(node) == token]
    if not callers:
        raise ApiError("UNAUTHENTICATED", "Request had invalid authentication credentials.")
    if CLOUD_PLATFORM not in callers[0].resource.get("serviceAccount", {}).get("scope", []):
        reason = {"@type": f"{RPC_TYPES}.ErrorInfo", "reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT"}
        detail = reason | {"domain": "googleapis.com"}
        raise ApiError("PERMISSION_DENIED", "Request had insufficient authentication scopes.", [detail])
