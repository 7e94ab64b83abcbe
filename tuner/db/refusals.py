"""What a database refuses, in the words of the person who can do something about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONEncoder
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, StatementError
from sqlalchemy.exc import TimeoutError as NoConnectionError

from tuner.errors import InputError, TunerError


class NotFoundError(InputError):
    """The database has nothing of that number or name."""


class ConflictError(InputError):
    """It cannot be done in the present state of what is stored."""


class UnavailableError(InputError):
    """The database does not answer, is busy or broken: nothing is wrong with what was asked."""


class NewerError(UnavailableError):
    """A newer program has written what this one cannot read; it never will."""


class LostLeaseError(TunerError):
    """The job is not, or no longer, this runner's: drop the work."""


_ENCODE = JSONEncoder(allow_nan=False).encode
_REMEDIES = {  # what the database says -> what it means; SQLite's first, then PostgreSQL's
    "file is not a database": "is not a database; give another file",
    "malformed": "is damaged; restore it from a backup or start a new file",
    "locked": "is in use by another program; try again when that has ended",
    "unable to open": "cannot be opened; check that its directory exists and may be written to",
    "readonly": "may not be written to; check its permissions",
    "database or disk is full": "cannot grow, the disk is full; free some space",
    "disk I/O error": "cannot be written, the disk is full or failing; nothing was stored",
    "password authentication failed": "refused the user or the password; check the URL",
    "no password supplied": "wants a password; write it like postgresql://user:password@host/name",
    "Connection refused": "does not answer; start the server, or check host and port",
    "No such file or directory": "does not answer; start the server, or check host and port",
    "connection timeout": "does not answer; start the server, or check host and port",
    "the server was silent": "does not answer; try again, or see what keeps the server busy",
    "resolve host": "has a host that nobody knows; check the URL",
    "translate host name": "has a host that nobody knows; check the URL",
    "too many clients": "has no connection left; try again, or let the server have more",
    "remaining connection slots": "has no connection left; try again, or let the server have more",
    "starting up": "is starting; try again in a moment",
    "shutting down": "is shutting down; try again when it is back",
    "terminating connection": "was stopped; try again when it is back",
    "closed the connection": "went away; try again when it is back",
    "connection is closed": "went away; try again when it is back",
    "deadlock detected": "was asked for two things that wait for each other; try again",
    "No space left": "cannot grow, the disk is full; free some space",
    "permission denied": "does not let this user do that; grant it, or use another user",
}


class _NoJSONError(ValueError):
    """A value that JSON has no word for."""


def encode_json(value: Any) -> str:
    """For JSON columns. PostgreSQL takes neither NaN nor Infinity, so SQLite gets none either."""
    try:
        return _ENCODE(value)
    except (ValueError, TypeError, RecursionError) as reason:
        raise _NoJSONError(str(reason)) from None


@contextmanager
def clear_errors(engine: Engine) -> Iterator[None]:
    """Inside, whatever the database refuses becomes an InputError of one sentence."""
    try:
        yield
    except DBAPIError as reason:
        raise _refusal(engine, reason) from None
    except NoConnectionError:
        raise UnavailableError(
            f"{name_of(engine)}: every connection is in use; try again"
        ) from None
    except (StatementError, OverflowError, UnicodeEncodeError, _NoJSONError) as reason:
        cause = reason.orig if isinstance(reason, StatementError) else reason
        raise InputError(
            f"{name_of(engine)}: cannot hold this value: {cause}; numbers are finite and of at most"
            " 63 bits, text is Unicode"
        ) from None


def name_of(engine: Engine) -> str:
    """The database as messages call it, without its passwords."""
    if engine.dialect.name == "sqlite":
        return engine.url.database or "the database in memory"
    where = {name: value for name, value in engine.url.query.items() if name in ("host", "port")}
    plain = engine.url.set(drivername="postgresql", query=where)
    return plain.render_as_string(hide_password=True)


def _refusal(engine: Engine, reason: DBAPIError) -> InputError:
    said = str(reason.orig)
    refused = f"{name_of(engine)}: the database refused: {' '.join(said.split())}"
    if isinstance(reason, DataError | IntegrityError):  # all else has nothing to do with the values
        return InputError(refused)
    if engine.dialect.name == "postgresql" and said.rstrip().endswith("does not exist"):
        if 'FATAL:  database "' in said:
            return UnavailableError(
                f"{name_of(engine)}: the server has no such database; create it with createdb"
            )
        if 'FATAL:  role "' in said:
            return UnavailableError(
                f"{name_of(engine)}: the server has no such user; check the URL"
            )
    for words, remedy in _REMEDIES.items():
        if words in said:
            return UnavailableError(f"{name_of(engine)}: {remedy}")
    return UnavailableError(refused)
