"""Access tokens and their scopes; only digests are stored, from which no token can be recovered."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Engine, Row, and_, or_, select, update
from sqlalchemy.orm import Session

from tuner.base.errors import InputError
from tuner.base.units import format_timestamp
from tuner.db.db_errors import ConflictError, UnavailableError, not_found
from tuner.db.models import TokenRow
from tuner.db.transactions import database_now, read_session, transaction

SCOPES = ("read", "submit", "publish")
ENTROPY_BYTES = 32  # bytes
TOKEN_PREFIX = "tuner_"  # lets people and secret scanners recognise a token
_LAST_USED_PRECISION = timedelta(minutes=1)  # of the last use, so that not every request writes


@dataclass(frozen=True)
class Token:
    """The metadata of a token."""

    name: str
    scopes: frozenset[str]
    created_at: datetime
    revoked_at: datetime | None
    last_used_at: datetime | None
    expires_at: datetime | None = None
    expired: bool = False


_COLUMNS = (
    TokenRow.name,
    TokenRow.scopes,
    TokenRow.created_at,
    TokenRow.revoked_at,
    TokenRow.last_used_at,
    TokenRow.expires_at,
)


def create_token(
    session: Session, name: str, scopes: Collection[str], expires_at: datetime | None = None
) -> str:
    """Create a token and return it; it is not shown again.

    expires_at  time with time zone from which on it is refused; None for never

    Raises ConflictError for a name that was used before, InputError for scopes that do not exist
    and for a time that has passed.
    """
    if expires_at is not None and expires_at <= database_now(session):
        raise InputError(f"a token cannot expire in the past, at {format_timestamp(expires_at)}")
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        wrong = ", ".join(unknown) or "none"
        raise InputError(f"a token has some of the scopes {', '.join(SCOPES)}, not {wrong}")
    if session.scalar(select(TokenRow.id).where(TokenRow.name == name)) is not None:
        raise ConflictError(f"there is, or was, a token {name}: choose another name")
    token = TOKEN_PREFIX + secrets.token_urlsafe(ENTROPY_BYTES)
    ordered = [scope for scope in SCOPES if scope in scopes]
    expiry = expires_at and expires_at.astimezone(UTC)
    session.add(TokenRow(name=name, scopes=ordered, digest=_digest(token), expires_at=expiry))
    session.flush()
    return token


def check_token(engine: Engine, token: str) -> Token | None:
    """Return the metadata of a token, even if it has expired; None if it is unknown or revoked.

    Stores the time of use of a valid token, unless the database is unavailable for writing.
    """
    known = (TokenRow.digest == _digest(token), TokenRow.revoked_at.is_(None))
    with read_session(engine) as session:
        found = session.execute(select(*_COLUMNS).where(*known)).one_or_none()
        now = database_now(session)
    if found is None:
        return None
    checked = _token(found, now)
    last = checked.last_used_at
    if not checked.expired and (last is None or last < now - _LAST_USED_PRECISION):
        with suppress(UnavailableError), transaction(engine) as session:
            session.execute(update(TokenRow).where(*known).values(last_used_at=now))
    return checked


def revoke_token(session: Session, name: str) -> None:
    """Revoke a token at the end of this transaction; raise NotFoundError if there is none."""
    row = session.scalar(select(TokenRow).where(TokenRow.name == name))
    if row is None:
        raise not_found(f"token {name}")
    row.revoked_at = row.revoked_at or database_now(session)


def list_tokens(session: Session) -> list[Token]:
    """Return all tokens, including revoked and expired ones, in the order of creation."""
    now = database_now(session)
    return [_token(row, now) for row in session.execute(select(*_COLUMNS).order_by(TokenRow.id))]


def has_tokens(session: Session) -> bool:
    """Return whether there is a valid token."""
    valid = and_(
        TokenRow.revoked_at.is_(None),
        or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > database_now(session)),
    )
    return session.scalar(select(TokenRow.id).where(valid).limit(1)) is not None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _token(row: Row[*tuple[Any, ...]], now: datetime) -> Token:
    known = Token(*row)
    expired = known.expires_at is not None and known.expires_at <= now
    return replace(known, scopes=frozenset(known.scopes), expired=expired)
