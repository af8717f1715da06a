"""A call of the API: its path, query and body, read as every method needs them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from tpufleet.emulator import schema
from tpufleet.emulator.operations import Operation
from tpufleet.emulator.wire import ApiError, Json, bad_request, page

# Parameters that every method has: https://cloud.google.com/apis/docs/system-parameters
SYSTEM_PARAMETERS = frozenset(
    name
    for word in ("alt", "key", "fields", "callback", "access_token", "prettyPrint", "quotaUser", "upload_protocol")
    for name in (word, f"${word}")
) | {"uploadType", "oauth_token", "$.xgafv"}


@dataclass(frozen=True)
class Call:
    """`version` is the API's: v1, v2 or v2alpha1."""

    request: Request
    version: str

    @property
    def project(self) -> str:
        return self.request.path_params["project"]

    @property
    def zone(self) -> str:
        return self.request.path_params["zone"]

    @property
    def scope(self) -> tuple[str, str]:
        return self.project, self.zone

    @property
    def id(self) -> str:
        """The last part of the resource's name."""
        return self.request.path_params["id"]

    def name(self, collection: str) -> str:
        """The full name of the resource that the path names."""
        return f"projects/{self.project}/locations/{self.zone}/{collection}/{self.id}"

    def query(self, name: str) -> str:
        return self.request.query_params.get(name, "")

    def flag(self, name: str) -> bool:
        """A query parameter that is true or false; gcloud writes `True`."""
        text = self.query(name).lower()
        if text not in ("", "true", "false", "1", "0"):
            raise bad_request(f"invalid value {text!r} for {name}")
        return text in ("true", "1")

    def check_query(self, known: frozenset[str]) -> None:
        """Raises ApiError for a parameter that the method doesn't have, in Google's words."""
        for name in self.request.query_params:
            if name not in known and name not in SYSTEM_PARAMETERS:
                text = f'Invalid JSON payload received. Unknown name "{name}": Cannot bind query parameter. '
                text += "Field '" + name + "' could not be found in request message."
                raise ApiError("INVALID_ARGUMENT", text)

    async def body(self) -> Any:
        text = await self.request.body()
        try:
            return json.loads(text) if text else {}
        except ValueError as error:
            raise ApiError("INVALID_ARGUMENT", f"Invalid JSON payload received. {error}") from error

    async def message(self, table: Json) -> Json:
        """The body, checked against a table of `schema`."""
        return schema.check(await self.body(), table, "")

    def page(self, items: list[Json], key: str) -> Json:
        """One page of `items` as the query wants it."""
        size = self.query("pageSize") or "0"
        if not size.isdecimal():
            raise bad_request(f"invalid page size {size!r}")
        return page(items, key, int(size), self.query("pageToken"))

    def shown(self, operation: Operation) -> Json:
        return operation.wire(self.version)
