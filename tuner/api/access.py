"""Authentication and authorization of requests.

Reading needs the scope `read`, sending data `submit`, tables and their publication `publish`.
Where the service is open (on loopback, unless tokens are required or it is behind a proxy),
everybody has all scopes. Then only the names in the Host and Origin headers distinguish the
user's own programs from a web page in the user's browser, so those must be names of this
computer.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from anyio import to_thread
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send

from tuner import db
from tuner.api.http_limits import RateLimiter
from tuner.api.problems import Problem
from tuner.api.settings import Settings, is_loopback
from tuner.base.units import format_timestamp
from tuner.studio.assets import FILES

log = logging.getLogger(__name__)
READ, SUBMIT, PUBLISH = db.SCOPES
# For health checks and authors of clients.
PUBLIC_PATHS = ("/v1/health", "/v1/ready", "/openapi.json")
PAGE_PATHS = ("/", "/docs", "/studio")  # for browsers: nothing in them is secret
PAGE_PREFIX = "/studio/"
PAGE_FILES_PREFIX = PAGE_PREFIX + FILES  # many for each page, all in memory: no limit counts them
SESSION_PATH = "/studio/session"
SESSION_COOKIE = "tuner_session"
SCRIPT_HEADER = b"x-tuner-studio"  # of every request of a page's script, with any value
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
PUBLISH_PATHS = ("/v1/tables", "/v1/publications", "/v1/publications/rollback")
READ_ONLY_POST_PATHS = (  # POSTs that do not change anything
    "/v1/overviews",
    "/v1/select",
    "/v1/what-if",
    "/v1/what-if/call",
    "/v1/what-if/call/trace",
    "/v1/training",
    "/v1/training/trace",
)
TOKEN_CACHE_S = 2.0  # seconds for which a revoked token may still work
MAX_CACHED_TOKENS = 10_000  # tokens


@dataclass(frozen=True)
class Client:
    """The sender of a request: the name of its token, or its address where it sent none."""

    name: str
    scopes: frozenset[str]
    has_token: bool = False


def required_scope(method: str, path: str) -> str | None:
    """Return the scope that a request needs, or None for public paths.

    Unknown paths need one too.
    """
    if path in PUBLIC_PATHS or path in PAGE_PATHS or path.startswith(PAGE_PREFIX):
        return None
    if method in ("GET", "HEAD") or path in READ_ONLY_POST_PATHS:
        return READ
    return PUBLISH if path in PUBLISH_PATHS else SUBMIT


def client_of(scope: Scope) -> Client:
    """Return the client of an authorized request."""
    client: Client = scope["state"]["client"]
    return client


class TokenCache:
    """A cache of tokens, which looks each up at most every `TOKEN_CACHE_S` seconds."""

    def __init__(self, engine: db.Engine) -> None:
        self._engine = engine
        self._cache: dict[str, tuple[Client, float]] = {}  # token -> (client, valid until)

    def cached(self, token: str) -> Client | None:
        """Return the client of a token that was valid recently, or None."""
        known = self._cache.get(token)
        return known[0] if known and time.monotonic() < known[1] else None

    async def authenticate(self, token: str) -> Client:
        """Return the client of a token.

        Raises Problem: 401 for an unknown, revoked or expired token, 503 where the database does
        not answer.
        """
        client = self.cached(token)
        if client is None:
            try:
                found = await to_thread.run_sync(db.check_token, self._engine, token)
            except db.UnavailableError as reason:
                log.warning("a token could not be looked up: %s", reason)
                raise Problem(503, "tokens cannot be looked up at this moment: try again") from None
            if found is None:
                raise Problem(401, "this token is unknown or revoked; ask the operator for another")
            if found.expires_at is not None and found.expired:
                since = format_timestamp(found.expires_at)
                raise Problem(
                    401, f"the token {found.name} expired at {since}; ask the operator for another"
                )
            client = Client(found.name, frozenset(found.scopes), has_token=True)
            if len(self._cache) >= MAX_CACHED_TOKENS:
                self._cache.clear()
            self._cache[token] = (client, time.monotonic() + _cache_seconds(found.expires_at))
        return client


def _cache_seconds(expires_at: datetime | None) -> float:
    """Return for how many seconds a valid token need not be looked up again."""
    if expires_at is None:
        return TOKEN_CACHE_S
    return min(TOKEN_CACHE_S, (expires_at - datetime.now(UTC)).total_seconds())


class AccessMiddleware:
    """Middleware that adds the client to a request, or refuses the request with the reason."""

    def __init__(self, app: ASGIApp, settings: Settings, tokens: TokenCache) -> None:
        self.app = app
        self.is_open = settings.is_open
        self.rate_limiter = RateLimiter(settings.rate)
        self.tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request as an ASGI application."""
        if scope["type"] == "http":
            try:
                scope.setdefault("state", {})["client"] = await self._authorize(scope)
            except Problem as problem:
                await problem.response(scope["path"])(scope, receive, send)
                return
        await self.app(scope, receive, send)

    async def _authorize(self, scope: Scope) -> Client:
        headers = dict(scope["headers"])
        if self.is_open:
            _require_local(headers)
        needed = required_scope(scope["method"], scope["path"])
        client = await self._identify_client(scope, headers, is_public=needed is None)
        if needed is not None and needed not in client.scopes:
            require_token = not client.scopes
            raise Problem(
                401 if require_token else 403,
                "send a token, as `Authorization: Bearer TOKEN`; commands and programs take it"
                " from TUNER_TOKEN or the file in TUNER_TOKEN_FILE"
                if require_token
                else f"the token {client.name} lacks the scope {needed}",
            )
        return client

    async def _identify_client(
        self, scope: Scope, headers: dict[bytes, bytes], *, is_public: bool
    ) -> Client:
        """Return the client, and count the request for its rate limit.

        The request counts for the address until the token is known, then for the token. For what
        is public a session that has ended is none.
        """
        address = (scope.get("client") or ("",))[0]
        authorization = headers.get(b"authorization")
        session = None if self.is_open or authorization else _session_token(headers)
        token = session or _bearer_token(authorization)
        stranger = Client(address, frozenset(db.SCOPES if self.is_open else ()))
        known = self.tokens.cached(token) if token else None
        if not scope["path"].startswith(PAGE_FILES_PREFIX):
            self.rate_limiter.consume(f"token {known.name}" if known else address)
        if session or scope["path"] == SESSION_PATH:
            _require_own_script(scope["method"], headers)
        if token is None:
            return stranger
        try:
            return known or await self.tokens.authenticate(token)
        except Problem:
            if session is None or not is_public:
                raise
            return stranger


def _bearer_token(authorization: bytes | None) -> str | None:
    if authorization is None:
        return None
    kind, _, token = authorization.decode("latin-1").partition(" ")
    if kind.lower() != "bearer" or not token:
        raise Problem(401, "write the header as Authorization: Bearer TOKEN")
    return token


def _session_token(headers: dict[bytes, bytes]) -> str | None:
    """Return the token in the cookie of a browser that has logged in."""
    return cookie_parser(headers.get(b"cookie", b"").decode("latin-1")).get(SESSION_COOKIE)


def _require_own_script(method: str, headers: dict[bytes, bytes]) -> None:
    """Raise Problem for a request that changes something and may come from another site."""
    site = headers.get(b"sec-fetch-site", b"same-origin")
    if method not in SAFE_METHODS and (SCRIPT_HEADER not in headers or site != b"same-origin"):
        raise Problem(403, "with a session, only the pages of this service may change something")


def _require_local(headers: dict[bytes, bytes]) -> None:
    host = _hostname(f"//{headers.get(b'host', b'localhost').decode('latin-1')}")
    if not is_loopback(host):
        raise Problem(400, "this service answers to names of this computer only: localhost")
    origin = headers.get(b"origin")
    if origin is not None and not is_loopback(_hostname(origin.decode("latin-1"))):
        raise Problem(403, "web pages of other computers may not use this service")


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
