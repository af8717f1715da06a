"""Of the Compute Engine API what `gcloud` asks for before it goes to a TPU VM by SSH: the project and its metadata.

Source: https://cloud.google.com/compute/docs/reference/rest/v1/projects
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from typing import Any

from tpufleet.emulator.calls import Call
from tpufleet.emulator.clock import rfc3339
from tpufleet.emulator.keeper import Keeper
from tpufleet.emulator.wire import ApiError, Json, not_found, project_number

METADATA: Json = {"kind": str, "fingerprint": str, "items": [{"key": str, "value": str}]}


class Projects:
    """One method per API method: takes the call, returns the answer's JSON, raises ApiError."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._operations: dict[str, Json] = {}  # all of them done; their clients ask within seconds

    async def get(self, call: Call) -> Json:
        metadata = self._metadata(call.project)
        return {
            "kind": "compute#project",
            "id": project_number(call.project),
            "name": call.project,
            "selfLink": _link(call, ""),
            "commonInstanceMetadata": {
                "kind": "compute#metadata",
                "fingerprint": _fingerprint(metadata),
                "items": [{"key": key, "value": value} for key, value in metadata.items()],
            },
        }

    async def set_metadata(self, call: Call) -> Json:
        """Replaces all; refused when somebody else did so since the caller looked."""
        wanted = await call.message(METADATA)
        if wanted.get("fingerprint", "") != _fingerprint(self._metadata(call.project)):
            text = "Supplied fingerprint does not match current metadata fingerprint."
            raise ApiError("FAILED_PRECONDITION", text, http=412)
        entries: list[Any] = wanted.get("items", [])
        self._keeper.set_project_metadata(call.project, {entry["key"]: entry.get("value", "") for entry in entries})
        return self._done(call)

    def _done(self, call: Call) -> Json:
        name = f"operation-{uuid.uuid4()}"
        now = rfc3339(self._keeper.clock.now())
        self._operations[name] = {
            "kind": "compute#operation",
            "id": str(uuid.uuid4().int >> 65),
            "name": name,
            "operationType": "compute.projects.setCommonInstanceMetadata",
            "targetLink": _link(call, ""),
            "selfLink": _link(call, f"/global/operations/{name}"),
            "status": "DONE",
            "progress": 100,
            **dict.fromkeys(("insertTime", "startTime", "endTime"), now),
        }
        return self._operations[name]

    async def get_operation(self, call: Call) -> Json:
        if call.id not in self._operations:
            raise not_found(f"projects/{call.project}/global/operations/{call.id}")
        return self._operations[call.id]

    def _metadata(self, project: str) -> dict[str, str]:
        return self._keeper.cloud.projects.get(project, {})


def _link(call: Call, path: str) -> str:
    return f"{call.request.base_url}compute/v1/projects/{call.project}{path}"


def _fingerprint(metadata: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).digest()
    return base64.urlsafe_b64encode(digest[:8]).decode()
