"""The client with which rank 0 gets tables from the service and posts records to it.

Every exchange has one deadline, which covers name resolution, connecting, slow responses and
retries. The module uses the standard library only and is imported only where a service is used,
since `urllib` takes longer to import than numpy.
"""

from __future__ import annotations

import email.utils
import json
import random
import re
import textwrap
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.message import Message
from functools import partial
from http.client import HTTPException, HTTPMessage, HTTPResponse
from typing import IO, Any
from urllib.error import URLError
from urllib.parse import urlencode, urlsplit

from tuner.base.errors import InputError, shortened_repr
from tuner.runtime import table_cache
from tuner.runtime.table_source import MAX_TABLE_BYTES, FetchedTable, TableRequest
from tuner.runtime.timeout import Deadline, DeadlineExceededError

TABLE_MEDIA_TYPE = "application/vnd.tuner.table+json"
MAX_DETAIL_CHARACTERS = 300  # of the reason of a refusal, shown in messages
MAX_ATTEMPTS = 3
FIRST_PAUSE_S = 0.2  # before the second attempt; twice as long before the third
READ_BYTES = 64 * 1024  # per read
REDIRECT_STATUSES = (301, 302, 303, 307, 308)
OK = 200
NOT_MODIFIED = 304
TOO_MANY_REQUESTS = 429
SERVER_ERROR = 500
_ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')


class UnreachableError(InputError):
    """A failure that may be temporary; `retry_after_s` is the requested wait, 0 for none."""

    def __init__(self, reason: str, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class ServiceResponse:
    """A complete response of the service."""

    status: int
    headers: Message
    body: bytes


def fetch_table(request: TableRequest) -> FetchedTable:
    """Fetch the table that the service publishes for this request and check it.

    A cached copy of an earlier job saves the transfer when the table is unchanged, and is used,
    with a note, when the service cannot be reached in time. Raises InputError otherwise.
    """
    deadline = Deadline(request.timeout_s)
    kept, flaw = deadline.run(partial(_load_cached, request), "the copies of tables")
    try:
        return deadline.run(partial(_fetch, request, kept, deadline), request.service)
    except (UnreachableError, DeadlineExceededError) as reason:
        if kept is None:
            raise InputError(f"{reason}{flaw}") from None
        return replace(kept, note=f"{reason}; {kept.origin} is used instead")


def post_record(request: TableRequest, path: str, record: Mapping[str, Any]) -> Any:
    """Send a record to the service and return its decoded response.

    Raises InputError when the service does not accept it in time. When only the response is lost
    the record is sent again: the service stores equal records once.
    """
    deadline = Deadline(request.timeout_s)
    return deadline.run(partial(_post, request, path, record, deadline), request.service)


def _load_cached(request: TableRequest) -> tuple[FetchedTable | None, str]:
    """Load the cached copy; return it, and a remark for messages where it is damaged."""
    try:
        return table_cache.load(request), ""
    except InputError as flaw:
        return None, f"; {flaw}"


def _fetch(request: TableRequest, cached: FetchedTable | None, deadline: Deadline) -> FetchedTable:
    wanted = {"library": request.library}
    if request.cluster:
        wanted["cluster"] = request.cluster
    call = _make_request(
        request, f"/v1/tables/published?{urlencode(wanted)}", {"Accept": TABLE_MEDIA_TYPE}
    )
    if cached is not None and cached.etag:
        call.add_header("If-None-Match", cached.etag)
    answer = _send_with_retries(call, deadline)
    if answer.status == NOT_MODIFIED and cached is not None:
        return replace(cached, origin=request.name)
    fetched = _parse_response(request, answer)
    table_cache.save(request, fetched)
    return fetched


def _parse_response(request: TableRequest, response: ServiceResponse) -> FetchedTable:
    """Return the table in the response; raises InputError naming the service for any other."""
    if response.status != OK:
        raise InputError(f"{request.service}: {_status_message(response)}")
    try:
        text = response.body.decode("utf-8")
        request.parse_and_check(text)
    except (UnicodeDecodeError, InputError) as reason:
        raise InputError(f"{request.service}: {reason}") from None
    etag = response.headers.get("ETag", "")
    return FetchedTable(text, request.name, etag if _ETAG.fullmatch(etag) else "")


def _post(request: TableRequest, path: str, record: Mapping[str, Any], deadline: Deadline) -> Any:
    call = _make_request(
        request, path, {"Content-Type": "application/json"}, json.dumps(record).encode()
    )
    answer = _send_with_retries(call, deadline)
    if answer.status // 100 != 2:
        raise InputError(f"{request.service}: {_status_message(answer)}")
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise InputError(f"{request.service}: the answer is not JSON: is it a tuner?") from None


def _make_request(
    request: TableRequest, path: str, headers: Mapping[str, str], data: bytes | None = None
) -> urllib.request.Request:
    call = urllib.request.Request(_checked_url(request.service) + path, data, dict(headers))
    token = _token(request)
    if token:
        call.add_header("Authorization", f"Bearer {token}")
    return call


def _checked_url(service: str) -> str:
    """Return the URL; raises InputError unless it is http(s) without user, query and fragment."""
    try:
        parts = urlsplit(service)
        plain = service.isascii() and service.isprintable() and " " not in service
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        plain = right = False
    if not (plain and right) or "@" in parts.netloc or parts.query or parts.fragment:
        raise InputError(
            f"{shortened_repr(service)} is not a service: write it like http://head:8765"
        )
    return service


def _token(request: TableRequest) -> str:
    """Return the token, read from its file if necessary; raises InputError."""
    token = request.token
    if not token and request.token_file is not None:
        try:
            token = request.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as reason:
            said = reason.strerror if isinstance(reason, OSError) else reason
            raise InputError(f"{request.token_file}: no token can be read: {said}") from None
    if not (token.isascii() and token.isprintable()):
        raise InputError("the token has characters that no token has: copy it again")
    return token


def _send_with_retries(call: urllib.request.Request, deadline: Deadline) -> ServiceResponse:
    """Send a request, at most `MAX_ATTEMPTS` times; raises UnreachableError if all fail."""
    for attempt in range(MAX_ATTEMPTS):
        try:
            return _send(call, deadline)
        except UnreachableError as failure:
            pause = failure.retry_after_s or FIRST_PAUSE_S * 2**attempt * random.uniform(0.5, 1.0)
            if attempt == MAX_ATTEMPTS - 1 or pause >= deadline.remaining_s:
                raise
            time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def _send(call: urllib.request.Request, deadline: Deadline) -> ServiceResponse:
    where = f"{call.type}://{call.host}"
    try:
        with _opener().open(call, timeout=max(deadline.remaining_s, 1e-3)) as response:
            answer = ServiceResponse(
                response.status, response.headers, _body(response, where, deadline)
            )
    except URLError as failure:
        raise UnreachableError(_connection_error(where, failure.reason)) from None
    except OSError as failure:
        raise UnreachableError(_connection_error(where, failure)) from None
    except UnicodeError as failure:
        raise InputError(f"{where}: no host has such a name: {failure}") from None
    except HTTPException as failure:
        raise UnreachableError(f"{where}: no HTTP: {shortened_repr(str(failure))}") from None
    if answer.status == TOO_MANY_REQUESTS or answer.status >= SERVER_ERROR:
        raise UnreachableError(
            f"{where}: {_status_message(answer)}", _retry_after_s(answer.headers)
        )
    return answer


def _connection_error(where: str, reason: str | BaseException) -> str:
    """Return why a service was not reached, without error numbers."""
    if isinstance(reason, ConnectionRefusedError):
        return f"nothing answers at {where}"
    if isinstance(reason, OSError) and reason.strerror:
        return f"{where}: {reason.strerror}"
    return f"{where}: {reason}"


def _body(response: HTTPResponse, where: str, deadline: Deadline) -> bytes:
    """Read the whole body.

    Raises InputError when it is too large, UnreachableError when it is incomplete or too slow.
    """
    promised = response.length
    body = bytearray()
    while promised is None or len(body) < promised:
        part = response.read1(READ_BYTES)
        body += part
        if max(len(body), promised or 0) > MAX_TABLE_BYTES:
            raise InputError(
                f"{where}: the answer is larger than a table may be, {MAX_TABLE_BYTES >> 20} MiB"
            )
        if not part and promised is not None:
            raise UnreachableError(f"{where}: the answer ended after {len(body)} of {promised} B")
        if deadline.remaining_s == 0:
            raise UnreachableError(f"{where}: only {len(body)} B within {deadline.timeout_s:g} s")
        if not part:
            break
    return bytes(body)


def _status_message(response: ServiceResponse) -> str:
    """Return the status and the detail of the problem document, if there is one."""
    try:
        detail = json.loads(response.body)["detail"]
    except (ValueError, KeyError, TypeError, RecursionError):
        detail = None
    if not isinstance(detail, str):
        return f"answered with status {response.status}"
    shown = textwrap.shorten(detail, MAX_DETAIL_CHARACTERS, placeholder=" ...")
    said = shown if shown.isprintable() else shortened_repr(detail)
    return f"answered with status {response.status}: {said}"


def _retry_after_s(headers: Message) -> float:
    """Return the seconds of Retry-After, a number or a date; 0 when it is neither."""
    text = headers.get("Retry-After", "")
    if text.isdecimal():
        return float(text)
    date = email.utils.parsedate_tz(text)
    try:
        return max(0.0, email.utils.mktime_tz(date) - time.time()) if date else 0.0
    except (ValueError, OverflowError):
        return 0.0


def _opener() -> urllib.request.OpenerDirector:
    """Return an opener for HTTP(S) with the environment's proxy that returns every status."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        _Redirects(),
        _Statuses(),
    ):
        opener.add_handler(handler)
    return opener


class _Statuses(urllib.request.HTTPErrorProcessor):
    """A response processor that follows redirects and returns every other status."""

    def http_response(
        self, request: urllib.request.Request, response: HTTPResponse
    ) -> HTTPResponse:
        if response.status in REDIRECT_STATUSES:
            response.close()  # its body is not needed and may be endless
            followed: HTTPResponse = super().http_response(request, response)
            return followed
        return response

    https_response = http_response


class _Redirects(urllib.request.HTTPRedirectHandler):
    """A redirect handler that does not send the token to another host."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        onward = super().redirect_request(req, fp, code, msg, headers, newurl)
        if onward is not None and urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            onward.remove_header("Authorization")
        return onward
