"""What rank 0 says to the service: give me the table, here is what was seen of it.

Every conversation has one deadline, which covers finding the host, connecting, an answer that
drips in byte by byte, and trying again. Standard library only, and imported only where a service
is asked, since `urllib` takes longer to import than numpy.
"""

from __future__ import annotations

import email.utils
import json
import random
import re
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

from tuner.base.errors import InputError, quoted
from tuner.runtime import table_cache
from tuner.runtime.table_source import LARGEST, Fetched, Request
from tuner.runtime.timeout import Deadline, LateError

TABLE = "application/vnd.tuner.table+json"
ATTEMPTS = 3
PAUSE = 0.2  # seconds before the second attempt, twice as long before the third
READ = 64 * 1024  # bytes at a time
REDIRECTS = (301, 302, 303, 307, 308)
TOO_MANY_REQUESTS, SERVER_ERROR, NOT_MODIFIED, OK = 429, 500, 304, 200
_ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')


class UnreachableError(InputError):
    """No answer that can be used; `after`: seconds before it is worth while to ask again."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


@dataclass(frozen=True)
class Answer:
    """A whole answer of the service."""

    status: int
    headers: Message
    body: bytes


def fetch(request: Request) -> Fetched:
    """The table that the service publishes for this request, valid and for this library.

    A copy kept from an earlier job saves the transfer when the table is still the same, and stands
    in, with a note, when the service cannot be reached in time. Raises InputError otherwise.
    """
    deadline = Deadline(request.timeout)
    kept, flaw = deadline.run(partial(_kept, request), "the copies of tables")
    try:
        return deadline.run(partial(_fetch, request, kept, deadline), request.service)
    except (UnreachableError, LateError) as reason:
        if kept is None:
            raise InputError(f"{reason}{flaw}") from None
        return replace(kept, note=f"{reason}; {kept.origin} is used instead")


def post(request: Request, path: str, record: Mapping[str, Any]) -> Any:
    """Send a record to the service; what it answers. Raises InputError when it does not take it in
    time.

    When only the answer is lost the record is sent again: the service stores equal ones once.
    """
    deadline = Deadline(request.timeout)
    return deadline.run(partial(_post, request, path, record, deadline), request.service)


def _kept(request: Request) -> tuple[Fetched | None, str]:
    """The copy, and what else is to be said where nothing answers."""
    try:
        return table_cache.load(request), ""
    except InputError as flaw:
        return None, f"; {flaw}"


def _fetch(request: Request, kept: Fetched | None, deadline: Deadline) -> Fetched:
    wanted = {"library": request.library}
    if request.cluster:
        wanted["cluster"] = request.cluster
    call = _call(request, f"/v1/tables/published?{urlencode(wanted)}", {"Accept": TABLE})
    if kept is not None and kept.etag:
        call.add_header("If-None-Match", kept.etag)
    answer = _ask(call, deadline)
    if answer.status == NOT_MODIFIED and kept is not None:
        return replace(kept, origin=request.name)
    fetched = _table(request, answer)
    table_cache.keep(request, fetched)
    return fetched


def _table(request: Request, answer: Answer) -> Fetched:
    """The table in the answer; raises InputError naming the service for anything else."""
    if answer.status != OK:
        raise InputError(f"{request.service}: {_refusal(answer)}")
    try:
        text = answer.body.decode("utf-8")
        request.accept(text)
    except (UnicodeDecodeError, InputError) as reason:
        raise InputError(f"{request.service}: {reason}") from None
    etag = answer.headers.get("ETag", "")
    return Fetched(text, request.name, etag if _ETAG.fullmatch(etag) else "")


def _post(request: Request, path: str, record: Mapping[str, Any], deadline: Deadline) -> Any:
    call = _call(request, path, {"Content-Type": "application/json"}, json.dumps(record).encode())
    answer = _ask(call, deadline)
    if answer.status // 100 != 2:
        raise InputError(f"{request.service}: {_refusal(answer)}")
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise InputError(f"{request.service}: the answer is no JSON: is it a tuner?") from None


def _call(
    request: Request, path: str, headers: Mapping[str, str], data: bytes | None = None
) -> urllib.request.Request:
    call = urllib.request.Request(_base(request.service) + path, data, dict(headers))
    token = _token(request)
    if token:
        call.add_header("Authorization", f"Bearer {token}")
    return call


def _base(service: str) -> str:
    """The service's URL, which must be no more than a place; raises InputError."""
    try:
        parts = urlsplit(service)
        plain = service.isascii() and service.isprintable() and " " not in service
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        plain = right = False
    if not (plain and right) or "@" in parts.netloc or parts.query or parts.fragment:
        raise InputError(f"{quoted(service)} is no service: write it like http://head:8000")
    return service


def _token(request: Request) -> str:
    """The token, read from its file where it was given as one; raises InputError."""
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


def _ask(call: urllib.request.Request, deadline: Deadline) -> Answer:
    """Try until there is an answer, `ATTEMPTS` times at most; raises UnreachableError."""
    for attempt in range(ATTEMPTS):
        try:
            return _attempt(call, deadline)
        except UnreachableError as failure:
            pause = failure.after or PAUSE * 2**attempt * random.uniform(0.5, 1.0)
            if attempt == ATTEMPTS - 1 or pause >= deadline.left:
                raise
            time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def _attempt(call: urllib.request.Request, deadline: Deadline) -> Answer:
    where = f"{call.type}://{call.host}"
    try:
        with _opener().open(call, timeout=max(deadline.left, 1e-3)) as response:
            answer = Answer(response.status, response.headers, _body(response, where, deadline))
    except URLError as failure:
        raise UnreachableError(_failed(where, failure.reason)) from None
    except OSError as failure:
        raise UnreachableError(_failed(where, failure)) from None
    except UnicodeError as failure:
        raise InputError(f"{where}: no host has such a name: {failure}") from None
    except HTTPException as failure:
        raise UnreachableError(f"{where}: no HTTP: {quoted(str(failure))}") from None
    if answer.status == TOO_MANY_REQUESTS or answer.status >= SERVER_ERROR:
        raise UnreachableError(f"{where}: {_refusal(answer)}", _pause(answer.headers))
    return answer


def _failed(where: str, reason: str | BaseException) -> str:
    """Why a service was not reached, in words alone."""
    if isinstance(reason, ConnectionRefusedError):
        return f"nothing answers at {where}"
    if isinstance(reason, OSError) and reason.strerror:
        return f"{where}: {reason.strerror}"
    return f"{where}: {reason}"


def _body(response: HTTPResponse, where: str, deadline: Deadline) -> bytes:
    """All that was promised, as much as may be; what comes in drops is given up in time."""
    promised = response.length
    body = bytearray()
    while promised is None or len(body) < promised:
        part = response.read1(READ)
        body += part
        if max(len(body), promised or 0) > LARGEST:
            raise InputError(f"{where}: more than {LARGEST >> 20} MiB is no table")
        if not part and promised is not None:
            raise UnreachableError(f"{where}: the answer ended after {len(body)} of {promised} B")
        if deadline.left == 0:
            raise UnreachableError(f"{where}: only {len(body)} B within {deadline.seconds:g} s")
        if not part:
            break
    return bytes(body)


def _refusal(answer: Answer) -> str:
    """What the service says about its status; its problem details are one sentence."""
    try:
        detail = json.loads(answer.body)["detail"]
    except (ValueError, KeyError, TypeError, RecursionError):
        detail = None
    said = f": {quoted(detail)}" if isinstance(detail, str) else ""
    return f"answered with status {answer.status}{said}"


def _pause(headers: Message) -> float:
    """Seconds of Retry-After, which is a number or a date; 0 when it is neither."""
    text = headers.get("Retry-After", "")
    if text.isdecimal():
        return float(text)
    date = email.utils.parsedate_tz(text)
    try:
        return max(0.0, email.utils.mktime_tz(date) - time.time()) if date else 0.0
    except (ValueError, OverflowError):
        return 0.0


def _opener() -> urllib.request.OpenerDirector:
    """HTTP and HTTPS alone, through the proxy of the environment; every status is an answer."""
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
    """Follows redirects and leaves every other status to the caller."""

    def http_response(
        self, request: urllib.request.Request, response: HTTPResponse
    ) -> HTTPResponse:
        if response.status in REDIRECTS:
            response.close()  # its text is nobody's affair, and need not have an end
            followed: HTTPResponse = super().http_response(request, response)
            return followed
        return response

    https_response = http_response


class _Redirects(urllib.request.HTTPRedirectHandler):
    """The token is for the service alone, not for whom it points to."""

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
