"""Everything that goes wrong, as problem details (RFC 9457)."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tuner import db
from tuner.base.errors import InputError

log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
ALWAYS = (400, 401, 403, 408, 413, 422, 429, 500, 503)  # what any request may meet
STATUSES: Mapping[type[InputError], int] = {
    db.NotFoundError: 404,
    db.ConflictError: 409,
    db.QueueFullError: 429,
    db.UnavailableError: 503,
    InputError: 422,
}
UNROUTED = {
    400: "the body cannot be read: it is nested too deep, or is not what its Content-Type says",
    404: "nothing is at this path; /openapi.json lists what there is",
    405: "this path does not know this method; /openapi.json lists those that it knows",
}
NO_JSON = "the body must be JSON and be called so: send the header Content-Type: application/json"
HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    429: {"Retry-After": "10"},
    503: {"Retry-After": "1"},
}
LONGEST_VALUE = 200  # characters of a place or reason that are repeated to the client


class Fault(BaseModel):
    """One thing that is wrong with the request."""

    where: str = Field(examples=["body.nodes"])
    what: str = Field(examples=["Input should be greater than or equal to 1"])


class ProblemDetails(BaseModel):
    """What went wrong."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["the database has no tuning table, version 7"])
    instance: str = Field(examples=["/v1/tables/7"])
    errors: list[Fault] = Field(default=[], description="every fault of a request")


class Problem(HTTPException):
    """Ends a request with a status and one sentence that says what to do."""

    def response(self, instance: str) -> Response:
        """`instance` is the path that was asked for."""
        return respond(self.status_code, self.detail, instance, self.headers)


def respond(
    status: int,
    detail: str,
    instance: str,
    headers: Mapping[str, str] | None = None,
    errors: list[dict[str, str]] | None = None,
) -> Response:
    """The response for one problem."""
    content: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": instance,
    }
    if errors:
        content["errors"] = errors
    return Response(
        json.dumps(content), status, {**HEADERS.get(status, {}), **(headers or {})}, MEDIA_TYPE
    )


def documented(
    *statuses: int, also: Mapping[int | str, dict[str, Any]] | None = None
) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI descriptions of these problems and of those that any request may meet.

    also    descriptions of answers that are no problems
    """
    problems: dict[int | str, dict[str, Any]] = {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
        }
        for status in sorted({*ALWAYS, *statuses})
    }
    return {**(also or {}), **problems}


def text(media_type: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of an answer that is no JSON."""
    return {200: {"content": {media_type: {"schema": {"type": "string"}}}}}


def install(app: FastAPI) -> None:
    """Answer every error of the application with problem details."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(InputError, _unusable)
    app.add_exception_handler(db.UnavailableError, _unavailable)
    app.add_exception_handler(db.NewerError, _unusable)
    app.add_exception_handler(ClientDisconnect, _broken_off)
    app.add_exception_handler(Exception, _unexpected)


async def _http(request: Request, reason: Exception) -> Response:
    """The framework's own words say nothing that the status does not."""
    problem = cast(HTTPException, reason)
    said = UNROUTED.get(problem.status_code) if not isinstance(reason, Problem) else None
    detail = said or str(problem.detail)
    return respond(problem.status_code, detail, request.url.path, problem.headers)


async def _invalid(request: Request, reason: Exception) -> Response:
    """The faults without the values that were sent, which may be large or secret."""
    invalid = cast(RequestValidationError, reason)
    if isinstance(invalid.body, bytes):  # the framework leaves as it is what is not called JSON
        return respond(422, NO_JSON, request.url.path)
    faults = [_fault(fault) for fault in invalid.errors()]
    detail = f"{faults[0]['where']}: {faults[0]['what']}"
    return respond(422, detail, request.url.path, errors=faults)


def _fault(fault: Mapping[str, Any]) -> dict[str, str]:
    where, what = fault["loc"], fault["msg"]
    if fault["type"] == "json_invalid":
        where, what = where[:1], f"not JSON from character {where[1]} on: {fault['ctx']['error']}"
    return {"where": ".".join(map(str, where))[:LONGEST_VALUE], "what": what[:LONGEST_VALUE]}


async def _unusable(request: Request, reason: Exception) -> Response:
    status = next(STATUSES[kind] for kind in type(reason).__mro__ if kind in STATUSES)
    return respond(status, str(reason), request.url.path)


async def _unavailable(request: Request, reason: Exception) -> Response:
    """Where the database is, and what it said, is for the operator alone."""
    if request.app.state.service.settings.is_open:
        return await _unusable(request, reason)
    log.warning("%s: %s", request.url.path, reason)
    return respond(503, "the database does not answer as it should: try again", request.url.path)


async def _broken_off(request: Request, _reason: Exception) -> Response:
    """Nobody reads this, but it is counted as what it is."""
    return respond(400, "the request broke off before its body was whole", request.url.path)


async def _unexpected(request: Request, _reason: Exception) -> Response:
    """The log has the traceback; the client learns nothing about the inside."""
    request_id = getattr(request.state, "request_id", None)
    headers = {"X-Request-Id": request_id} if request_id else {}
    return respond(500, "the service failed; its log says why", request.url.path, headers)
