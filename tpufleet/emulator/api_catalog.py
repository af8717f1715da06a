"""The API's methods that only tell: locations, accelerator types, runtime versions, and operations."""

from __future__ import annotations

from tpufleet.accelerators import lookup
from tpufleet.emulator import zones
from tpufleet.emulator.calls import Call
from tpufleet.emulator.keeper import Keeper
from tpufleet.emulator.wire import Json, not_found, project_number


class Catalog:
    """One method per API method: takes the call, returns the answer's JSON, raises ApiError."""

    def __init__(self, keeper: Keeper) -> None:
        self._operations = keeper.cloud.operations

    async def list_locations(self, call: Call) -> Json:
        return call.page([_location(call.project, zone) for zone in zones.ALL_ZONES], "locations")

    async def get_location(self, call: Call) -> Json:
        zones.check_zone(call.zone)
        return _location(call.project, call.zone)

    async def service_identity(self, call: Call) -> Json:
        await call.message({})
        return {"identity": {"email": f"service-{project_number(call.project)}@cloud-tpu.iam.gserviceaccount.com"}}

    async def list_accelerator_types(self, call: Call) -> Json:
        zones.check_zone(call.zone)
        return call.page([_accelerator(call, name) for name in zones.types_in(call.zone)], "acceleratorTypes")

    async def get_accelerator_type(self, call: Call) -> Json:
        zones.check_zone(call.zone)
        if call.id not in zones.types_in(call.zone):
            raise not_found(call.name("acceleratorTypes"))
        return _accelerator(call, call.id)

    async def list_runtime_versions(self, call: Call) -> Json:
        return _versions(call, "runtimeVersions", zones.RUNTIMES)

    async def get_runtime_version(self, call: Call) -> Json:
        return _version(call, "runtimeVersions", zones.RUNTIMES)

    async def list_tensorflow_versions(self, call: Call) -> Json:
        return _versions(call, "tensorflowVersions", zones.TENSORFLOW_VERSIONS)

    async def get_tensorflow_version(self, call: Call) -> Json:
        return _version(call, "tensorflowVersions", zones.TENSORFLOW_VERSIONS)

    async def no_reservations(self, call: Call) -> Json:
        zones.check_zone(call.zone)
        return {}

    async def list_operations(self, call: Call) -> Json:
        return call.page([call.shown(one) for one in self._operations.inside(*call.scope)], "operations")

    async def get_operation(self, call: Call) -> Json:
        return call.shown(self._operations.get(call.name("operations")))

    async def delete_operation(self, call: Call) -> Json:
        self._operations.forget(call.name("operations"))
        return {}

    async def cancel_operation(self, call: Call) -> Json:
        """Notes the wish, as Google's best effort allows: what has begun goes on."""
        self._operations.get(call.name("operations")).cancel_requested = True
        return {}


def _location(project: str, zone: str) -> Json:
    return {"name": f"projects/{project}/locations/{zone}", "locationId": zone, "displayName": zone}


def _accelerator(call: Call, name: str) -> Json:
    found: Json = {
        "name": f"projects/{call.project}/locations/{call.zone}/acceleratorTypes/{name}",
        "type": name,
    }
    if call.version == "v1":
        return found
    accelerator = lookup(name)
    kind = zones.CONFIG_TYPES[accelerator.generation.name][0]
    return found | {"acceleratorConfigs": [{"type": kind, "topology": accelerator.topology}]}


def _versions(call: Call, collection: str, names: tuple[str, ...]) -> Json:
    zones.check_zone(call.zone)
    parent = f"projects/{call.project}/locations/{call.zone}/{collection}"
    return call.page([{"name": f"{parent}/{name}", "version": name} for name in names], collection)


def _version(call: Call, collection: str, names: tuple[str, ...]) -> Json:
    zones.check_zone(call.zone)
    if call.id not in names:
        raise not_found(call.name(collection))
    return {"name": call.name(collection), "version": call.id}
