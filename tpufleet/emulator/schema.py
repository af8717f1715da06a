"""The fields a request may have, so that a misspelt one is refused here as Google refuses it.

The tables are `google.cloud.tpu.v2`'s messages by their JSON names; a test compares them with the real client's
descriptors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tpufleet.emulator.wire import ApiError, Json

# A field's kind: a type for scalars, (type,) for a repeated field, {str: str} for a map of strings, a table for
# a message, [table] for repeated messages. ENUM is a name or a number, INT64 a number or its decimal string, TIME a
# timestamp or a duration, ANY a message that isn't looked into.
ENUM, INT64, TIME, ANY = "enum", "int64", "timestamp", "message"

NETWORK: Json = {
    "network": str,
    "subnetwork": str,
    "enableExternalIps": bool,
    "canIpForward": bool,
    "queueCount": int,
}

NODE: Json = {
    "name": str,
    "description": str,
    "acceleratorType": str,
    "state": ENUM,
    "healthDescription": str,
    "runtimeVersion": str,
    "networkConfig": NETWORK,
    "networkConfigs": [NETWORK],
    "cidrBlock": str,
    "serviceAccount": {"email": str, "scope": (str,)},
    "createTime": TIME,
    "schedulingConfig": {"preemptible": bool, "reserved": bool, "spot": bool},
    "networkEndpoints": [{"ipAddress": str, "port": int, "accessConfig": {"externalIp": str}}],
    "health": ENUM,
    "labels": {str: str},
    "metadata": {str: str},
    "tags": (str,),
    "id": INT64,
    "dataDisks": [{"sourceDisk": str, "mode": ENUM}],
    "apiVersion": ENUM,
    "symptoms": [{"createTime": TIME, "symptomType": ENUM, "details": str, "workerId": str}],
    "shieldedInstanceConfig": {"enableSecureBoot": bool},
    "acceleratorConfig": {"type": ENUM, "topology": str},
    "queuedResource": str,
    "multisliceNode": bool,
}

# v2alpha1's own, of which `gcloud alpha` sends some; the provisioning model is gcloud's (discovery), not the client's.
ALPHA_NODE: Json = NODE | {
    "dataDisks": [{"sourceDisk": str, "mode": ENUM, "workerIds": (str,)}],
    "schedulingConfig": NODE["schedulingConfig"]
    | {"provisioningModel": ENUM, "reservationName": str, "terminationTimestamp": TIME},
    "autocheckpointEnabled": bool,
    "bootDiskConfig": {
        "customerEncryptionKey": {"kmsKeyName": str},
        "enableConfidentialCompute": bool,
        **dict.fromkeys(("diskSizeGb", "provisionedIops", "provisionedThroughput"), INT64),
        **dict.fromkeys(("sourceImage", "storagePool"), str),
    },
    "upcomingMaintenance": {
        "type": ENUM,
        "canReschedule": bool,
        "windowStartTime": str,
        "windowEndTime": str,
        "latestWindowStartTime": str,
        "maintenanceStatus": ENUM,
    },
}

STATE: Json = {
    "state": ENUM,
    "stateInitiator": ENUM,
    "failedData": {"error": ANY},
    **{
        f"{name}Data": {}
        for name in ("creating", "accepted", "provisioning", "deleting", "active", "suspending", "suspended")
    },
}


def _queued(node: Json, slices: Json, tiers: Json) -> Json:
    return {
        "name": str,
        "createTime": TIME,
        "tpu": {"nodeSpec": [{"parent": str, "nodeId": str, "node": node, **slices}]},
        "queueingPolicy": {
            "validUntilDuration": TIME,
            "validUntilTime": TIME,
            "validAfterDuration": TIME,
            "validAfterTime": TIME,
            "validInterval": {"startTime": TIME, "endTime": TIME},
        },
        "state": STATE,
        "reservationName": str,
        "spot": {},
        **tiers,
    }


QUEUED: Json = _queued(
    NODE, {"multisliceParams": {"nodeCount": int, "nodeIdPrefix": str}}, {"guaranteed": {"minDuration": TIME}}
)
ALPHA_QUEUED: Json = _queued(
    ALPHA_NODE,
    {"multiNodeParams": {"nodeCount": int, "nodeIdPrefix": str, "workloadType": ENUM}},
    {
        "guaranteed": {"minDuration": TIME, "reserved": bool},
        "bestEffort": {},
        "provisioningModel": ENUM,
        "runDuration": {"maxRunDuration": TIME, "terminationTime": TIME},
    },
)

TABLES: dict[tuple[str, str], Json] = {
    ("Node", "v2"): NODE,
    ("Node", "v2alpha1"): ALPHA_NODE,
    ("QueuedResource", "v2"): QUEUED,
    ("QueuedResource", "v2alpha1"): ALPHA_QUEUED,
}

GUEST_ATTRIBUTES: Json = {"queryPath": str, "workerIds": (str,)}

SIMULATE_MAINTENANCE: Json = {"workerIds": (str,)}

# What the server alone sets; values a client sends for them are dropped, as Google does.
OUTPUT_ONLY = (
    *("name", "state", "healthDescription", "createTime", "networkEndpoints", "id", "apiVersion"),
    *("symptoms", "queuedResource", "multisliceNode", "health", "upcomingMaintenance"),
)


def view(kind: str, message: Json, version: str) -> Json:
    """`message` with the fields that the API's `version` has; what was made by another version may have more."""
    table = TABLES.get((kind, version))
    return _only(message, table) if table else message


def _only(value: Any, kind: Any) -> Any:
    if isinstance(kind, dict) and str not in kind:
        fields = cast(Json, kind)
        return {name: _only(one, fields[name]) for name, one in cast(Json, value).items() if name in fields}
    if isinstance(kind, list):
        return [_only(one, cast(list[Any], kind)[0]) for one in cast(list[Any], value)]
    return value


def enum_name(value: Any, names: Sequence[str]) -> str:
    """An ENUM's value by name; `names` in the order of their numbers, 0 first. "" when it is none of them."""
    if isinstance(value, int):
        return names[value] if 0 <= value < len(names) else ""
    return value if value in names else ""


def check(body: Any, table: Json, at: str) -> Json:
    """`body` if it is an object with fields of `table` only; raises ApiError (INVALID_ARGUMENT) otherwise.

    `at` is the path of the message for the text, such as `node`.
    """
    if not isinstance(body, dict):
        raise _violation(at, "Invalid value: an object is expected")
    given = cast(Json, body)
    for name, value in given.items():
        if name not in table:
            raise _violation(at, f'Unknown name "{name}"{_place(at)}: Cannot find field.')
        _check_value(value, table[name], f"{at}.{name}" if at else name)
    return given


def _check_value(value: Any, kind: Any, at: str) -> None:
    if isinstance(kind, dict) and str in kind:
        entries = cast(Json, value) if isinstance(value, dict) else None
        if entries is None or not all(isinstance(text, str) for text in entries.values()):
            raise _invalid(at, "map of strings")
    elif isinstance(kind, dict):
        check(value, cast(Json, kind), at)
    elif isinstance(kind, list | tuple):
        if not isinstance(value, list):
            raise _invalid(at, "list")
        for index, item in enumerate(cast(list[Any], value)):
            _check_value(item, cast(list[Any], kind)[0], f"{at}[{index}]")
    elif not _is_scalar(value, kind):
        raise _invalid(at, kind if isinstance(kind, str) else kind.__name__)


def _is_scalar(value: Any, kind: Any) -> bool:
    if kind in (ENUM, INT64):
        return isinstance(value, str | int) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == ANY:
        return isinstance(value, dict)
    return isinstance(value, str if kind == TIME else kind)


def _invalid(at: str, expected: str) -> ApiError:
    return _violation(at, f"Invalid value at '{at}' ({expected})")


def _violation(at: str, description: str) -> ApiError:
    text = f"Invalid JSON payload received. {description}" if "Unknown name" in description else description
    violation = {"field": at, "description": text} if at else {"description": text}
    detail = {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}
    return ApiError("INVALID_ARGUMENT", text, [detail])


def _place(at: str) -> str:
    return f" at '{at}'" if at else ""
