"""A metadata server for the machine of the person who rehearses, so that `google.auth.default()` finds credentials.

They are good for nothing: the emulator looks at nobody's token. Source: google-auth's `compute_engine/_metadata.py`
(the header that it checks, the paths that it asks for).
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tpufleet.emulator.metadata import Document, Tree, lookup

FLAVOR = {"Metadata-Flavor": "Google"}
ACCOUNT = {
    "email": "rehearsal@developer.gserviceaccount.com",
    "scopes": "https://www.googleapis.com/auth/cloud-platform\n",
    "aliases": "default\n",
    "token": Document({"access_token": "rehearsal", "expires_in": 3599, "token_type": "Bearer"}),
}
VALUES: Tree = {
    "instance": {"service-accounts": {"default": ACCOUNT}},
    "project": {"project-id": "rehearsal"},
    "universe": {"universe-domain": "googleapis.com"},
}


def routes() -> list[Route]:
    return [Route("/", _answer), Route("/computeMetadata/v1/{path:path}", _answer)]


async def _answer(request: Request) -> Response:
    found = lookup(VALUES, request.url.path)
    if found is None:
        return Response(status_code=404, headers=FLAVOR)
    if isinstance(found, Document):
        return JSONResponse(found.content, headers=FLAVOR)
    if request.query_params.get("recursive") == "true" and not isinstance(found, str):
        return JSONResponse({name: value for name, value in found.items() if isinstance(value, str)}, headers=FLAVOR)
    return PlainTextResponse(
        found if isinstance(found, str) else "".join(f"{name}\n" for name in found), headers=FLAVOR
    )
