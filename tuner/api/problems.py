"""Errors as problem details (RFC 9457)."""

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
PROBLEM_MEDIA_TYPE = "application/problem+json"
COMMON_STATUSES = (400, 401, 403, 408, 413, 422, 429, 500, 503)  # that any request may return
STATUS_BY_ERROR: Mapping[type[InputError], int] = {
    db.NotFoundError: 404,
    db.ConflictError: 409,
    db.QueueFullError: 429,
    db.UnavailableError: 503,
    InputError: 422,
}
DETAIL_BY_STATUS = {
    400: "the body cannot be read: it is nested too deep, or is not what its Content-Type says",
    404: "nothing is at this path; /openapi.json lists what there is",
    405: "this path does not know this method; /openapi.json lists those that it knows",
}
NOT_JSON_DETAIL = (
    "the body must be JSON and be called so: send the header Content-Type: application/json"
)
HEADERS_BY_STATUS = {
    401: {"WWW-Authenticate": "Bearer"},
    429: {"Retry-After": "10"},
    503: {"Retry-After": "1"},
}
MAX_ECHOED_CHARACTERS = 200  # characters of a location or message that are sent back


class FieldError(BaseModel):
    """One thing that is wrong with the request."""

    location: str = Field(examples=["body.nodes"])
    message: str = Field(examples=["Input should be greater than or equal to 1"])


class ProblemDetails(BaseModel):
    """A problem of a request (RFC 9457)."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["the database has no job 7: choose one that it lists"])
    instance: str = Field(examples=["/v1/tables/7"])
    errors: list[FieldError] = Field(default=[], description="every fault of a request")


class Problem(HTTPException):
    """An error that ends a request with a status and one sentence that says what to do."""

    def response(self, instance: str) -> Response:
        """Return the response; `instance` is the requested path."""
        return problem_response(self.status_code, self.detail, instance, self.headers)


def problem_response(
    status: int,
    detail: str,
    instance: str,
    headers: Mapping[str, str] | None = None,
    errors: list[dict[str, str]] | None = None,
) -> Response:
    """Return the response with problem details."""
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
        json.dumps(content),
        status,
        {**HEADERS_BY_STATUS.get(status, {}), **(headers or {})},
        PROBLEM_MEDIA_TYPE,
    )


def problem_responses(
    *statuses: int, extra_responses: Mapping[int | str, dict[str, Any]] | None = None
) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI descriptions of these problems and of those that any request may return.

    extra_responses     descriptions of other responses
    """
    problems: dict[int | str, dict[str, Any]] = {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {
                PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}
            },
        }
        for status in sorted({*COMMON_STATUSES, *statuses})
    }
    return {**(extra_responses or {}), **problems}


def text_response_docs(media_type: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of a text response."""
    return {200: {"content": {media_type: {"schema": {"type": "string"}}}}}


def install_handlers(app: FastAPI) -> None:
    """Install handlers that answer every error of the application with problem details."""
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(InputError, _input_error)
    app.add_exception_handler(db.UnavailableError, _database_unavailable)
    app.add_exception_handler(db.NewerVersionError, _input_error)
    app.add_exception_handler(ClientDisconnect, _client_disconnected)
    app.add_exception_handler(Exception, _internal_error)


async def _http_error(request: Request, reason: Exception) -> Response:
    """Answer with our own text, since the framework's says nothing beyond the status."""
    problem = cast(HTTPException, reason)
    said = DETAIL_BY_STATUS.get(problem.status_code) if not isinstance(reason, Problem) else None
    detail = said or str(problem.detail)
    return problem_response(problem.status_code, detail, request.url.path, problem.headers)


async def _validation_error(request: Request, reason: Exception) -> Response:
    """Answer with the faults but not the values that were sent, which may be large or secret."""
    invalid = cast(RequestValidationError, reason)
    if isinstance(invalid.body, bytes):  # the framework does not parse a body without the JSON type
        return problem_response(422, NOT_JSON_DETAIL, request.url.path)
    faults = [_field_error(fault) for fault in invalid.errors()]
    detail = f"{faults[0]['location']}: {faults[0]['message']}"
    return problem_response(422, detail, request.url.path, errors=faults)


def _field_error(fault: Mapping[str, Any]) -> dict[str, str]:
    where, what = fault["loc"], fault["msg"]
    if fault["type"] == "json_invalid":
        where, what = where[:1], f"not JSON from character {where[1]} on: {fault['ctx']['error']}"
    elif fault["type"] == "value_error":  # a sentence of ours
        what = str(fault["ctx"]["error"])
    return {
        "location": ".".join(map(str, where))[:MAX_ECHOED_CHARACTERS],
        "message": what[:MAX_ECHOED_CHARACTERS],
    }


def status_of(reason: Exception) -> int:
    """Return the status of a problem that an error of tuner's own is."""
    return next(STATUS_BY_ERROR[kind] for kind in type(reason).__mro__ if kind in STATUS_BY_ERROR)


async def _input_error(request: Request, reason: Exception) -> Response:
    return problem_response(status_of(reason), str(reason), request.url.path)


async def _database_unavailable(request: Request, reason: Exception) -> Response:
    """Log the reason and hide it from the client, unless the service is open."""
    if request.app.state.service.settings.is_open:
        return await _input_error(request, reason)
    log.warning("%s: %s", request.url.path, reason)
    return problem_response(
        503,
        "the database cannot be used now: try again later; the log of the service says why",
        request.url.path,
    )


async def _client_disconnected(request: Request, _reason: Exception) -> Response:
    """Return a response that is never sent, but that the metrics count."""
    return problem_response(
        400, "the request broke off before its body was whole", request.url.path
    )


async def _internal_error(request: Request, _reason: Exception) -> Response:
    """Answer without internal details; the traceback is in the log."""
    request_id = getattr(request.state, "request_id", None)
    headers = {"X-Request-Id": request_id} if request_id else {}
    return problem_response(500, "the service failed; its log says why", request.url.path, headers)
