"""The pages for browsers: the studio, the reference of the API, and the session of a browser.

A browser exchanges a token for a cookie that scripts cannot read and other sites cannot send.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel, Field

from tuner import __version__
from tuner.api.access import SESSION_COOKIE, client_of
from tuner.api.live_answers import price_small_study, start_warm_up
from tuner.api.problems import Problem
from tuner.api.schemas import RequestBody
from tuner.api.service import ServiceDep
from tuner.api.training_answers import predict_small_training
from tuner.studio.assets import FILES, PAGES, REFERENCE, Asset

router = APIRouter(include_in_schema=False)
STUDIO = "/studio/"
CALL_PAGE, TRAINING_PAGE = "call", "training"
STORED_PAGES = ("clusters", "table", "measure", "report", "login")  # those of what is stored
GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))")  # in Accept-Encoding
PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# A trace is handed to the tab of Perfetto that this page opens on a click and must still know then.
CALL_PAGE_HEADERS = {**PAGE_HEADERS, "Cross-Origin-Opener-Policy": "same-origin-allow-popups"}


class LogIn(RequestBody):
    """A token that is exchanged for a session."""

    token: str = Field(min_length=1, max_length=200)


class Session(BaseModel):
    """Rights of a browser: those of its token, or those of everybody.

    needs_token     whether the service asks for tokens
    client          name of the token; None without one
    """

    needs_token: bool
    client: str | None
    scopes: list[str]
    version: str


@router.get("/")
def redirect_browsers(accept: Annotated[str, Header()] = "") -> Response:
    """Send browsers to the studio; programs get a problem, as for any unknown path."""
    if "text/html" not in accept:
        raise Problem(404, "nothing is at this path; /openapi.json lists what there is")
    return RedirectResponse(STUDIO, 307)


@router.get("/studio")
def redirect_to_studio() -> Response:
    """Add the slash, relative to which the pages name their files."""
    return RedirectResponse(STUDIO, 307)


@router.get("/docs")
async def get_reference(service: ServiceDep, request: Request) -> Response:
    """Return the page with the reference of the API."""
    return _asset_response(request, service.assets[REFERENCE], PAGE_HEADERS)


@router.get("/studio/session")
def get_session(service: ServiceDep, request: Request) -> Session:
    """Say what the browser may do."""
    client = client_of(request.scope)
    return Session(
        needs_token=not service.settings.is_open,
        client=client.name if client.has_token else None,
        scopes=sorted(client.scopes),
        version=__version__,
    )


@router.post("/studio/session", status_code=204)
async def log_in(service: ServiceDep, request: Request, sent: LogIn) -> Response:
    """Exchange a token for a cookie that lasts until the browser is closed."""
    await service.tokens.authenticate(sent.token)
    response = Response(status_code=204)
    response.set_cookie(
        SESSION_COOKIE,
        sent.token,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@router.delete("/studio/session", status_code=204)
def log_out() -> Response:
    """Delete the cookie."""
    response = Response(status_code=204)
    response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
    return response


@router.get("/studio/{name:path}")
async def get_asset(service: ServiceDep, request: Request, name: str) -> Response:
    """Return a page or one of its files; a worker gets ready for what the page will ask."""
    path = name.partition("/")[0]
    if path in PAGES and not name.startswith("/"):
        if path not in STORED_PAGES:
            is_training = path == TRAINING_PAGE
            start_warm_up(service, predict_small_training if is_training else price_small_study)
        headers = CALL_PAGE_HEADERS if path == CALL_PAGE else PAGE_HEADERS
        return _asset_response(request, service.assets[path], headers)
    if not name.startswith(FILES) or name not in service.assets:
        raise Problem(404, f"expected a page of the studio: {STUDIO} leads to all")
    return _asset_response(request, service.assets[name], PAGE_HEADERS)


def _asset_response(request: Request, asset: Asset, own_headers: Mapping[str, str]) -> Response:
    """Return a file, compressed for those who read that.

    Nothing in the files is secret, so that their length gives nothing away.
    """
    headers = {
        **own_headers,
        "Cache-Control": asset.caching,
        "ETag": asset.etag,
        "Vary": "Accept-Encoding",
    }
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    if GZIP.search(request.headers.get("accept-encoding", "")):
        headers["Content-Encoding"] = "gzip"
        return Response(asset.compressed, headers=headers, media_type=asset.media_type)
    return Response(asset.content, headers=headers, media_type=asset.media_type)
