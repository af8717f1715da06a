"""Long-running operations: begun, looked at until they are done, ended by a response or an error."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tpufleet.emulator import schema
from tpufleet.emulator.clock import Clock, rfc3339
from tpufleet.emulator.wire import ApiError, Json, not_found

TYPES = "type.googleapis.com/google.cloud.tpu"
EMPTY: Json = {"@type": "type.googleapis.com/google.protobuf.Empty"}


class Named(Protocol):
    name: str


Thing = TypeVar("Thing", bound=Named)


@dataclass
class Operation:
    """`ended` is None while it runs; then either `error` is set, or `response` (None: an empty one).

    `kind` is the response's message, such as Node. `request_id` is the client's, by which it is found again.
    """

    name: str
    target: str
    verb: str
    created: str
    request_id: str = ""
    ended: str | None = None
    kind: str = ""
    response: Json | None = None
    error: Json | None = None
    cancel_requested: bool = False

    def wire(self, version: str = "v2") -> Json:
        """The operation as the API's `version` shows it."""
        metadata: Json = {
            "@type": f"{TYPES}.{version}.OperationMetadata",
            "createTime": self.created,
            "target": self.target,
            "verb": self.verb,
            "cancelRequested": self.cancel_requested,
            "apiVersion": version,
        }
        answer: Json = {"name": self.name, "metadata": metadata, "done": self.ended is not None}
        if self.ended is None:
            return answer
        metadata["endTime"] = self.ended
        if self.error is not None:
            return answer | {"error": self.error}
        if self.response is None:
            return answer | {"response": EMPTY}
        shown = schema.view(self.kind, self.response, version)
        return answer | {"response": {"@type": f"{TYPES}.{version}.{self.kind}", **shown}}


class Operations:
    """All operations, by name."""

    def __init__(self, clock: Clock, stored: Json) -> None:
        self._clock = clock
        self._all = {name: Operation(**record) for name, record in stored.items()}

    def stored(self) -> Json:
        return {name: vars(operation) for name, operation in self._all.items()}

    def begin(self, verb: str, target: str, request_id: str = "") -> Operation:
        """A new operation on `target`, the full name of a node or a queued resource."""
        _, project, _, zone, *_ = target.split("/")
        name = f"projects/{project}/locations/{zone}/operations/operation-{uuid.uuid4()}"
        self._all[name] = Operation(name, target, verb, rfc3339(self._clock.now()), request_id)
        return self._all[name]

    def end(self, operation: Operation, kind: str = "", response: Json | None = None) -> None:
        """It went well; `response` is a message of `kind`, or nothing."""
        operation.ended = rfc3339(self._clock.now())
        operation.kind = kind
        operation.response = response

    def fail(self, operation: Operation, error: ApiError) -> None:
        operation.ended = rfc3339(self._clock.now())
        operation.error = error.rpc_status()

    def get(self, name: str) -> Operation:
        if name not in self._all:
            raise not_found(name)
        return self._all[name]

    def forget(self, name: str) -> None:
        """Its client is no longer interested in the result; what it does goes on."""
        self.get(name)
        del self._all[name]

    def inside(self, project: str, zone: str) -> list[Operation]:
        return inside(self._all.values(), project, zone)

    def unfinished(self, target: str) -> Operation | None:
        """The operation at work on `target`."""
        running = (one for one in self._all.values() if one.target == target and one.ended is None)
        return next(running, None)

    def asked_before(self, verb: str, parent: str, request_id: str) -> Operation | None:
        """The operation that an earlier call with the same request id began in the zone `parent`."""
        same = (
            one
            for one in self._all.values()
            if one.request_id == request_id and one.verb == verb and one.name.startswith(f"{parent}/")
        )
        return next(same, None) if request_id else None


def inside(things: Iterable[Thing], project: str, zone: str) -> list[Thing]:
    """Those of `things` in the zone (`-` is any) of the project, by name."""
    zone_pattern = "[^/]+" if zone == "-" else re.escape(zone)
    pattern = re.compile(f"projects/{re.escape(project)}/locations/{zone_pattern}/")
    return sorted((thing for thing in things if pattern.match(thing.name)), key=lambda thing: thing.name)
