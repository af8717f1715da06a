"""What the API's answers look like: Google's error envelope and pages; and the names of resources.

Shapes: https://cloud.google.com/apis/design/errors and the Cloud TPU v2 discovery document.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import uuid
from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

RPC_TYPES = "type.googleapis.com/google.rpc"

# google.rpc.Code: number and the HTTP status it maps to.
CODES = {
    "CANCELLED": (1, 499),
    "UNKNOWN": (2, 500),
    "INVALID_ARGUMENT": (3, 400),
    "DEADLINE_EXCEEDED": (4, 504),
    "NOT_FOUND": (5, 404),
    "ALREADY_EXISTS": (6, 409),
    "PERMISSION_DENIED": (7, 403),
    "RESOURCE_EXHAUSTED": (8, 429),
    "FAILED_PRECONDITION": (9, 400),
    "ABORTED": (10, 409),
    "UNIMPLEMENTED": (12, 501),
    "INTERNAL": (13, 500),
    "UNAVAILABLE": (14, 503),
    "UNAUTHENTICATED": (16, 401),
}


class ApiError(Exception):
    """An answer that is an error: `status` is a google.rpc.Code by name; `http` where a method has its own code."""

    def __init__(self, status: str, message: str, details: Sequence[Json] = (), http: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.details = list(details)
        self.http_status = http or CODES[status][1]

    def envelope(self) -> Json:
        """The body of an HTTP answer."""
        error: Json = {"code": self.http_status, "message": self.message, "status": self.status}
        return {"error": error | ({"details": self.details} if self.details else {})}

    def rpc_status(self) -> Json:
        """A google.rpc.Status, as an operation's `error`."""
        return {"code": CODES[self.status][0], "message": self.message}


def not_found(name: str) -> ApiError:
    return ApiError("NOT_FOUND", f"Resource '{name}' was not found")


def bad_request(reason: str) -> ApiError:
    """The TPU service's own way to refuse what it understood."""
    return ApiError("INVALID_ARGUMENT", with_id(f"Cloud TPU received a bad request. {reason}"))


def with_id(text: str) -> str:
    """`text` with an error id behind it, as the TPU service ends its messages; people quote it to Google."""
    return f"{text} [EID: 0x{uuid.uuid4().hex[:16]}]"


def project_number(project: str) -> str:
    """The twelve digits that stand for `project` in the names of service accounts; always the same ones."""
    return str(10**11 + int(hashlib.sha256(project.encode()).hexdigest(), 16) % (9 * 10**11))


def page(items: Sequence[Json], key: str, size: int, token: str) -> Json:
    """One page of a list answer under `key`; `size` 0 is the server's choice, `token` comes from the last one."""
    start = _offset(token)
    end = start + (min(size, 1000) or 1000)
    answer: Json = {key: list(items[start:end])} if items[start:end] else {}
    if end < len(items):
        answer["nextPageToken"] = base64.urlsafe_b64encode(str(end).encode()).decode()
    return answer


def _offset(token: str) -> int:
    try:
        offset = int(base64.urlsafe_b64decode(token.encode()) or 0)
    except (binascii.Error, ValueError) as error:
        raise bad_request("invalid page token") from error
    if offset < 0:
        raise bad_request("invalid page token")
    return offset
