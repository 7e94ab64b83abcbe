"""The access log: one JSON object per request."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.base.errors import InputError
from tuner.base.units import format_timestamp
from tuner.db.tokens import TOKEN_PREFIX

log = logging.getLogger(__name__)
STDERR = "-"
MAX_PATH_CHARACTERS = 2000  # characters of a path that are logged
REQUEST_ID_HEADER = b"x-request-id"
_VALID_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_TOKEN = re.compile(rf"{TOKEN_PREFIX}[A-Za-z0-9_-]{{20,}}")


class AccessLogMiddleware:
    """Middleware that logs every request when its response is complete, with an id.

    The response has the id in X-Request-Id. An id that the client or a proxy has sent there is kept
    unless it contains a token.
    """

    def __init__(self, app: ASGIApp, described: FastAPI, logger: logging.Logger) -> None:
        self.app = app
        self._parameters = _query_parameters(described.openapi())
        self._logger = logger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request as an ASGI application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = _Request(scope)

        async def counting(message: Message) -> None:
            request.count(message)
            await send(message)

        try:
            await self.app(scope, receive, counting)
        finally:
            self._logger.info(json.dumps(request.record(self._parameters)))


class _Request:
    """A request and the part of its response that was sent so far."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.time = datetime.now(UTC)
        self.begun = time.perf_counter()
        self.id = _request_id(scope)
        self.status = 500  # what the server answers where the application sends nothing
        self.nbytes = 0
        scope.setdefault("state", {})["request_id"] = self.id

    def count(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], (REQUEST_ID_HEADER, self.id.encode())]
        else:
            self.nbytes += len(message.get("body", b""))

    def record(self, parameters: frozenset[str]) -> dict[str, Any]:
        client = self.scope["state"].get("client")
        return {
            "time": format_timestamp(self.time, "milliseconds"),
            "client": (self.scope.get("client") or ("",))[0],
            "token": client.name if client is not None and client.has_token else None,
            "method": self.scope["method"],
            "path": _redacted_path(self.scope, parameters),
            "status": self.status,
            "bytes": self.nbytes,
            "ms": round((time.perf_counter() - self.begun) * 1e3, 3),
            "id": self.id,
        }


class _LogFile(WatchedFileHandler):
    """A log file that is reopened when it was moved; a full disk does not make requests fail."""

    _is_failing = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, logging's name
        """Log once that lines are lost."""
        if not self._is_failing:
            self._is_failing = True
            log.warning("the access log cannot be written: %s", sys.exc_info()[1])


def access_logger(target: str) -> logging.Logger:
    """Return a separate logger, which other logging settings do not affect.

    Raises InputError where the file cannot be opened.
    """
    logger = logging.Logger("tuner.access", logging.INFO)
    logger.addHandler(
        logging.StreamHandler(sys.stderr) if target == STDERR else _open_log_file(target)
    )
    return logger


def _open_log_file(target: str) -> _LogFile:
    try:
        return _LogFile(target, encoding="utf-8")
    except OSError as reason:
        raise InputError(
            f"the access log {target} cannot be opened: {reason.strerror}; give another file, or -"
            " for standard error"
        ) from None


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == REQUEST_ID_HEADER and _VALID_ID.fullmatch(value):
            sent = str(value, "ascii")
            if not _TOKEN.search(sent):
                return sent
    return uuid.uuid4().hex


def _redacted_path(scope: Scope, parameters: frozenset[str]) -> str:
    """Return path and query without what may be secret.

    Replaced are parameters that the API does not have, with their values, and anything that looks
    like a token.
    """
    path: str = scope["path"]
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    if query:
        shown = [(name, value) if name in parameters else ("***", "***") for name, value in query]
        path += "?" + urlencode(shown, safe="*/:")
    return _TOKEN.sub("***", path)[:MAX_PATH_CHARACTERS]


def _query_parameters(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of all query parameters of the API."""
    return frozenset(
        parameter["name"]
        for operations in document["paths"].values()
        for operation in operations.values()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query"
    )
