"""Errors of the database as one sentence each that says what to do.

No message contains any part of the database's URL, since messages are sent to clients and logged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONEncoder
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, StatementError
from sqlalchemy.exc import TimeoutError as NoConnectionError

from tuner.base.errors import InputError, TunerError


class NotFoundError(InputError):
    """The error where the database has no object of that id or name."""


class ConflictError(InputError):
    """The error where the current state of the stored objects does not allow a request."""


class QueueFullError(InputError):
    """The error where a client has reached its limit of queued jobs."""


class UnavailableError(InputError):
    """The error where the database does not answer, is busy or broken; the request is valid."""


class NewerVersionError(UnavailableError):
    """The error where a newer version of the program stored content that this version cannot read.

    Trying again does not help.
    """


class LostLeaseError(TunerError):
    """The error where a job does not, or no longer, belong to this runner, which must drop it."""


def not_found(what: str) -> NotFoundError:
    """Return the error for what the database does not have, such as `job 7`."""
    return NotFoundError(f"the database has no {what}: choose one that it lists")


_ENCODE = JSONEncoder(allow_nan=False).encode
_PRIMARY_CODE = 0xFF  # of the result codes of SQLite; the other bits are details
_READ_ONLY_STATE = "25006"  # SQLSTATE of a write to a standby server or in a read-only session
_NO_ANSWER = "does not answer; start the server, or check host and port"
_NO_HOST = "is on a host whose name cannot be resolved; check the URL"
_FULL = "cannot grow, the disk is full; free some space"
_IN_USE = "is in use by another program; try again when that has ended"
_DAMAGED = "is damaged; restore it from a backup"
_NO_CONNECTION = "has no connection left; try again, or let the server have more"
_NO_MEMORY = "has no memory left; try again when there is more"
_GONE = "went away; try again when it is back"
_NO_PERMISSION = "does not let this user do that; grant it, or use another user"
_WRONG_PASSWORD = "refused the user or the password; check the URL"
_NOT_LET_IN = "refuses such connections; see pg_hba.conf of the server"
_SQLITE_REMEDIES = {  # primary result code -> the explanation
    sqlite3.SQLITE_NOTADB: "is not an SQLite file; give another file",
    sqlite3.SQLITE_CORRUPT: f"{_DAMAGED} or start a new file",
    sqlite3.SQLITE_BUSY: _IN_USE,
    sqlite3.SQLITE_LOCKED: _IN_USE,
    sqlite3.SQLITE_PROTOCOL: _IN_USE,
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check the permissions of its files, that its"
    " directory exists and may be written to, and the limit of open files",
    sqlite3.SQLITE_READONLY: "may not be written to; check the permissions of its file and of its"
    " directory",
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_NOMEM: _NO_MEMORY,
}
_SQLITE_READ_ERRORS = (
    "SQLITE_IOERR_READ",
    "SQLITE_IOERR_SHORT_READ",
    "SQLITE_IOERR_FSTAT",
    "SQLITE_IOERR_CORRUPTFS",
    "SQLITE_IOERR_DATA",
)
_SQLSTATE_REMEDIES = {  # SQLSTATE of PostgreSQL, or the class of one -> the explanation
    "08": _GONE,
    _READ_ONLY_STATE: "may only be read; give the URL of the primary server",
    "28000": _NOT_LET_IN,
    "28P01": _WRONG_PASSWORD,
    "40001": "was asked for two things at once; try again",
    "40P01": "was asked for two things that wait for each other; try again",
    "42501": _NO_PERMISSION,
    "53100": _FULL,
    "53200": _NO_MEMORY,
    "53300": _NO_CONNECTION,
    "55P03": _IN_USE,
    "57014": "took too long and was interrupted; try again",
    "57P": "was stopped, or is starting; try again when it is back",
    "58": "cannot read or write its files; see the log of its server",
    "XX001": _DAMAGED,
    "XX002": _DAMAGED,
}
_CONNECTION_REMEDIES = {  # part of the message of a failed connection, which has no SQLSTATE
    "password authentication failed": _WRONG_PASSWORD,
    "no password supplied": "wants a password; write it like postgresql://user:password@host/name",
    "no pg_hba.conf entry": _NOT_LET_IN,
    "SSL connection has been closed": _GONE,
    "SSL": "cannot be reached with these settings of TLS; check sslmode and the certificates",
    "Connection refused": _NO_ANSWER,
    "No such file or directory": _NO_ANSWER,
    "connection timeout": _NO_ANSWER,
    "the server was silent": "does not answer; try again, or see what keeps the server busy",
    "resolve host": _NO_HOST,
    "translate host name": _NO_HOST,
    "too many clients": _NO_CONNECTION,
    "remaining connection slots": _NO_CONNECTION,
    "starting up": "is starting; try again in a moment",
    "shutting down": "is shutting down; try again when it is back",
    "terminating connection": "was stopped; try again when it is back",
    "closed the connection": _GONE,
    "connection is closed": _GONE,
    "permission denied": _NO_PERMISSION,
}


class _NotJSONError(ValueError):
    """The error for a value that JSON cannot represent."""


def encode_json(value: Any) -> str:
    """Return the text of a value for a JSON column.

    NaN and infinity are refused: PostgreSQL cannot store them, so SQLite must not either.
    """
    try:
        return _ENCODE(value)
    except (ValueError, TypeError, RecursionError) as reason:
        raise _NotJSONError(str(reason)) from None


@contextmanager
def translate_errors(engine: Engine) -> Iterator[None]:
    """Return a context in which database errors become an InputError of one sentence."""
    try:
        yield
    except DBAPIError as reason:
        raise _translate(engine, reason) from None
    except NoConnectionError:
        raise UnavailableError("every connection to the database is in use; try again") from None
    except (StatementError, OverflowError, UnicodeEncodeError, _NotJSONError) as reason:
        cause = reason.orig if isinstance(reason, StatementError) else reason
        raise InputError(
            f"the database cannot hold this value: {cause}; numbers are finite and of at most 63"
            " bits, text is Unicode"
        ) from None


def is_read_only(error: BaseException) -> bool:
    """Return whether a driver's error says that this connection may not write."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return (
        code & _PRIMARY_CODE == sqlite3.SQLITE_READONLY
        or getattr(error, "sqlstate", None) == _READ_ONLY_STATE
    )


def _translate(engine: Engine, reason: DBAPIError) -> InputError:
    said = " ".join(str(reason.orig).split())
    if isinstance(reason, DataError | IntegrityError):  # other errors do not depend on the values
        return InputError(f"the database refused: {said}")
    if said.endswith("does not exist"):
        if 'FATAL: database "' in said:
            return UnavailableError("the server has no such database; create it with createdb")
        if 'FATAL: role "' in said:
            return UnavailableError("the server of the database has no such user; check the URL")
    remedy = _remedy(reason.orig, said)
    return UnavailableError(
        f"the database {remedy}"
        if remedy
        else f"the database refused: {_message_without_url(engine, reason)}"
    )


def _remedy(error: Any, said: str) -> str | None:
    """Return the explanation of a driver's error, which said this; None where there is none."""
    if getattr(error, "sqlite_errorname", None):
        return _sqlite_remedy(error)
    state = getattr(error, "sqlstate", None)
    if state:
        return next(
            (remedy for code, remedy in _SQLSTATE_REMEDIES.items() if state.startswith(code)), None
        )
    return next((remedy for words, remedy in _CONNECTION_REMEDIES.items() if words in said), None)


def _sqlite_remedy(error: sqlite3.Error) -> str | None:
    name = error.sqlite_errorname
    if name in _SQLITE_READ_ERRORS:
        return f"cannot be read ({name}); check the disk, and see the log of the system"
    if name.startswith("SQLITE_IOERR"):
        return (
            f"cannot be written ({name}); check the disk, its free space and quota; nothing was"
            " stored"
        )
    return _SQLITE_REMEDIES.get(error.sqlite_errorcode & _PRIMARY_CODE)


def _message_without_url(engine: Engine, reason: DBAPIError) -> str:
    """Return the message of the database without any part of its URL.

    Where PostgreSQL sends no diagnosis, as for a failed connection, refer to the log of the server.
    """
    said = str(reason.orig)
    if engine.dialect.name == "postgresql":
        diagnosis: Any = getattr(reason.orig, "diag", None)
        said = (diagnosis and diagnosis.message_primary) or "see the log of its server"
        for part in (engine.url.username, engine.url.database):
            said = said.replace(f'"{part}"', "of the URL")
    return " ".join(said.split())
