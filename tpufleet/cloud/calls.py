"""One call to Google, and everything that can become of it as one of our errors: no traceback for what a network, a
proxy, Google or a credential can cause."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

import requests.exceptions
from google.auth import exceptions as auth_errors
from google.protobuf import json_format

from tpufleet.cloud.classify import classify
from tpufleet.cloud.texts import LOGIN
from tpufleet.cloud.transport import Refused
from tpufleet.errors import CloudError, CloudUnreachable, PermissionDenied

T = TypeVar("T")

# where the answer carries no google.rpc.Code of its own (a proxy's, or a load balancer's)
SPELLED_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
}
NAMED_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
NOT_THE_API = "an answer came that is not the Cloud TPU API's (from a proxy?)"
LOOK_AT_NETWORK = "look at the network and the proxy's settings (HTTPS_PROXY), then run the same command again"


@dataclass(frozen=True)
class Caller:
    """Who asks, for the hints: the project, and the member as IAM names it (`user:…`, `serviceAccount:…`)."""

    project: str
    member: str | None = None


def answered(call: Callable[[], T], caller: Caller, subject: str, zone: str | None = None) -> T:
    """`call()`; its failure is raised as one of ours, about `subject` (a node's or a zone's name)."""
    try:
        return call()
    except Refused as refused:
        raise _meaning(refused, caller, subject, zone) from refused
    except auth_errors.GoogleAuthError as error:
        raise credential_trouble(error) from error
    except requests.exceptions.RequestException as error:
        raise CloudUnreachable(_network_words(error), where=subject, hint=LOOK_AT_NETWORK) from error
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise CloudUnreachable(NOT_THE_API, where=subject, hint=LOOK_AT_NETWORK) from error


def credential_trouble(error: auth_errors.GoogleAuthError) -> CloudError:
    """What google-auth raises: there are no credentials, they have expired, or Google's login isn't reached."""
    passing: object = cast("object", error.retryable)  # pyright: ignore[reportUnknownMemberType] (not typed)
    if passing or isinstance(error, (auth_errors.TransportError, auth_errors.TimeoutError)):
        return CloudUnreachable("Google's login does not answer", hint=LOOK_AT_NETWORK)
    first = str(error.args[0] if error.args else error).partition(". ")[0] or "expired"
    hint = LOGIN.hint
    if os.environ.get(NAMED_FILE):  # a login changes nothing while a file is named
        hint = f"{NAMED_FILE} names a file of credentials: correct it, or: unset {NAMED_FILE}; {LOGIN.hint}"
    if isinstance(error, auth_errors.RefreshError):
        return PermissionDenied(f"the Google credentials are not accepted any more: {first}", hint=hint)
    if isinstance(error, auth_errors.DefaultCredentialsError):
        return PermissionDenied(f"no Google credentials can be used: {first}", hint=hint)
    return PermissionDenied(f"the Google credentials can't be used: {first}", hint=hint)


def _meaning(refused: Refused, caller: Caller, subject: str, zone: str | None) -> CloudError:
    """By the answer's own status where it has one, since 409 alone can be two things; else by the HTTP status."""
    said = refused.error
    if not said:
        text = f"{NOT_THE_API}: {refused.http_status} {refused.reason}".rstrip()
        if refused.http_status >= 500:
            return CloudUnreachable(text, where=subject, hint=LOOK_AT_NETWORK, retry_after_s=refused.retry_after_s)
    else:
        text = str(said.get("message") or refused.reason)
    spelled = SPELLED_STATUS.get(refused.http_status, "UNAVAILABLE" if refused.http_status >= 500 else "")
    return classify(
        str(said.get("status") or spelled),
        text,
        subject,
        details=refused.details,
        project=caller.project,
        zone=zone,
        member=caller.member,
        retry_after_s=refused.retry_after_s,
    )


def _network_words(error: requests.exceptions.RequestException) -> str:
    """In words; what requests itself says is a chain of class names."""
    match error:
        case requests.exceptions.Timeout():
            return "the Cloud TPU API does not answer in time"
        case requests.exceptions.ProxyError():
            return "the proxy does not let the call through to the Cloud TPU API"
        case requests.exceptions.SSLError():
            return "the connection to the Cloud TPU API is not secure (its certificate is not accepted)"
        case _:
            return "the Cloud TPU API does not answer"
