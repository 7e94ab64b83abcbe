"""Tokens: who may do what. What is stored cannot be turned back into a token."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine, select, update
from sqlalchemy.orm import Session

from tuner.db.mapping import TokenRow
from tuner.db.refusals import ConflictError, NotFoundError, UnavailableError
from tuner.db.transactions import present, reading, transaction
from tuner.errors import InputError

SCOPES = ("read", "submit", "publish")
ENTROPY = 32  # bytes
PREFIX = "tuner_"  # by which people, and programs that look for leaked secrets, recognise one
_NOTED = timedelta(minutes=1)  # the last use is known to this; not every request writes


@dataclass(frozen=True)
class Token:
    """What is known of a token."""

    name: str
    scopes: frozenset[str]
    created_at: datetime
    revoked_at: datetime | None
    last_used_at: datetime | None


_COLUMNS = (TokenRow.name, TokenRow.scopes, TokenRow.created_at, TokenRow.revoked_at,
            TokenRow.last_used_at)  # fmt: skip


def create_token(session: Session, name: str, scopes: Collection[str]) -> str:
    """The token; this is the only time that anybody sees it.

    Raises ConflictError for a name that was used before, InputError for scopes that do not exist.
    """
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        wrong = ", ".join(unknown) or "none"
        raise InputError(f"a token has some of the scopes {', '.join(SCOPES)}, not {wrong}")
    if session.scalar(select(TokenRow.id).where(TokenRow.name == name)) is not None:
        raise ConflictError(f"there is, or was, a token {name}: choose another name")
    token = PREFIX + secrets.token_urlsafe(ENTROPY)
    ordered = [scope for scope in SCOPES if scope in scopes]
    session.add(TokenRow(name=name, scopes=ordered, digest=_digest(token)))
    session.flush()
    return token


def check_token(engine: Engine, token: str) -> Token | None:
    """Whose token it is; None for one that was never given out or is revoked. Notes its use,
    unless others keep the database from writing.
    """
    valid = (TokenRow.digest == _digest(token), TokenRow.revoked_at.is_(None))
    with reading(engine) as session:
        found = session.execute(select(*_COLUMNS).where(*valid)).one_or_none()
        now = present(session)
    if found is None:
        return None
    known = _token(*found)
    if known.last_used_at is None or known.last_used_at < now - _NOTED:
        with suppress(UnavailableError), transaction(engine) as session:
            session.execute(update(TokenRow).where(*valid).values(last_used_at=now))
    return known


def revoke_token(session: Session, name: str) -> None:
    """From the end of this transaction on it opens nothing. Raises NotFoundError."""
    row = session.scalar(select(TokenRow).where(TokenRow.name == name))
    if row is None:
        raise NotFoundError(f"there is no token {name}")
    row.revoked_at = row.revoked_at or present(session)


def list_tokens(session: Session) -> list[Token]:
    """All, revoked ones too, in the order in which they were made."""
    return [_token(*row) for row in session.execute(select(*_COLUMNS).order_by(TokenRow.id))]


def has_tokens(session: Session) -> bool:
    """Whether anybody could get in with one."""
    valid = select(TokenRow.id).where(TokenRow.revoked_at.is_(None)).limit(1)
    return session.scalar(valid) is not None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _token(
    name: str, scopes: list[str], created_at: datetime, revoked_at: datetime | None,
    last_used_at: datetime | None,
) -> Token:  # fmt: skip
    return Token(name, frozenset(scopes), created_at, revoked_at, last_used_at)
