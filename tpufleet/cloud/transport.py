"""The wire below Google's client: its REST transport, with answers that are errors kept whole.

Google's own parsing drops headers and falls over what no Google server sends (a proxy's HTML, a list for an object);
here each answer that is an error is a `Refused`, whoever gave it.
"""

# Google's client is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping
from typing import Any

import requests
from google.auth.credentials import Credentials
from google.auth.transport.requests import AuthorizedSession
from google.cloud.tpu_v2.services.tpu.transports.rest import TpuRestTransport
from requests.adapters import HTTPAdapter

CONNECTIONS = 64  # kept open side by side; requests' own ten would be closed and opened all the time by a large fleet
LONGEST_BODY = 20_000


class Refused(Exception):
    """An answer with an HTTP status of 400 or more."""

    def __init__(self, response: requests.Response) -> None:
        super().__init__(response.status_code)
        self.http_status = response.status_code
        self.reason = str(response.reason or "")
        self.retry_after_s = retry_after(response.headers)
        self.text = response.text[:LONGEST_BODY]
        self.error = _envelope(response)
        self.details = _objects(self.error.get("details"))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The header's seconds, or the seconds until its date (RFC 9110, 10.2.3); None where it is missing or nonsense."""
    value = headers.get("Retry-After", "").strip()
    if value.isdecimal() and len(value) < 7:
        return float(value)
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, date.timestamp() - time.time())


def _envelope(response: requests.Response) -> Mapping[str, Any]:
    """Google's `{"error": {"status", "message", "details"}}`; empty where the answer is something else."""
    try:
        body: Any = response.json()
    except ValueError:
        return {}
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


class Anonymous(Credentials):
    """Nobody: the rehearsal cloud asks for no credentials. A 401 of it is an answer, not a reason to log in."""

    def before_request(self, request: object, method: object, url: object, headers: object) -> None:
        """Adds nothing to the headers."""

    def refresh(self, request: object) -> None:
        """Nothing to refresh. (`AnonymousCredentials` raises an error of its own here, and the answer is lost.)"""


class _Session(AuthorizedSession):
    """Google's session, which refreshes credentials after a 401; what still is an error then is raised."""

    def request(self, *args: Any, **options: Any) -> requests.Response:
        response = super().request(*args, **options)
        if response.status_code >= 400:
            raise Refused(response)
        return response


class Transport(TpuRestTransport):
    """`url` is the endpoint (`https://tpu.googleapis.com`); `direct` leaves the environment's proxies out."""

    def __init__(self, credentials: Credentials, url: str, *, direct: bool = False) -> None:
        self._scheme, _, host = url.partition("://")
        self._direct = direct
        super().__init__(host=host, url_scheme=self._scheme, credentials=credentials)

    def _prep_wrapped_messages(self, client_info: Any) -> None:
        """Google's constructor calls this when it has made its session, which can't be given to it: the moment to
        put ours in its place."""
        self._session.close()
        self._session = _Session(self._credentials, default_host=self.DEFAULT_HOST)
        self._session.trust_env = not self._direct
        self._session.mount(f"{self._scheme}://", HTTPAdapter(pool_maxsize=CONNECTIONS))
        super()._prep_wrapped_messages(client_info)
