"""All ranks get the same table, or none: rank 0 obtains it once, everybody looks at a copy.

A rank that has a reason against the table (it was asked for another one, it runs another library,
it cannot read what it got, anything fails) says so in one reduction; then no rank uses it, so no
two ranks can ever choose differently for one call.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mpi4py import MPI

from tuner.base.errors import InputError
from tuner.core.table import TuningTable, table_record
from tuner.runtime.consensus import Consensus, ObjectionError, attempt
from tuner.runtime.log import warn
from tuner.runtime.table_source import MAX_TABLE_BYTES, FetchedTable, TableRequest, sha256_hex
from tuner.runtime.timeout import Deadline


@dataclass(frozen=True)
class TableAgreement:
    """What the ranks of a communicator agreed on; but for `request` the same on each of them.

    table       None: the library's own collectives
    origin      where the table came from, "" for none
    reason      why there is none; "" when nobody asked for one
    version     the service's number for the table; None for one from a file or the program
    request     what this rank was asked for; None when that could not be made out
    """

    table: TuningTable | None
    origin: str
    reason: str
    version: int | None
    request: TableRequest | None


NO_TABLE = TableAgreement(None, "", "", None, None)


@dataclass(frozen=True)
class _RootResult:
    """What rank 0 sends to the others: what it was asked for and got."""

    name: str
    fetched: FetchedTable | None
    digest: str


def library_name() -> str:
    """Return the MPI library of this process, named as in tables: `openmpi 5.0.11`."""
    from tuner.mpi_libraries.products import identify  # not what `import tuner.runtime` may take

    try:
        return identify(MPI.Get_library_version()).library
    except InputError:  # one for which there are no tables
        vendor, version = MPI.get_vendor()
        return f"{vendor.lower().replace(' ', '')} {'.'.join(map(str, version))}"


def agree_on_table(
    consensus: Consensus, make_request: Callable[[], TableRequest]
) -> TableAgreement:
    """Return what all ranks agree on; collective.

    ask     makes the request of this rank; raises InputError where it cannot be made out
    """
    comm = consensus.comm
    request, doubt = attempt(make_request)
    sent = b""
    if comm.rank == 0:
        offer, doubt = _load_at_root(request, doubt)
        sent = pickle.dumps(offer)
    consensus.check()
    received: _RootResult = pickle.loads(comm.bcast(sent))
    read, doubt = _check_copy(request, received, doubt)
    try:
        consensus.check(doubt)
        reason = ""
    except ObjectionError as objection:
        reason = str(objection)
    if comm.rank == 0:
        _log_outcome(reason, received)
    if reason or received.fetched is None:
        return TableAgreement(None, "", reason, None, request)
    return TableAgreement(read, received.fetched.origin, "", received.fetched.version, request)


def _load_at_root(request: TableRequest | None, objection: str) -> tuple[_RootResult, str]:
    """Rank 0: get the table, or know why not."""
    if request is None or not request.name:
        return _RootResult("", None, ""), objection
    fetched, reason = attempt(_load, request)
    if fetched is None:
        return _RootResult(request.name, None, ""), reason
    digest, reason = attempt(lambda: _digest(request.parse_and_check(fetched.text)))
    if digest is None:
        return _RootResult(request.name, None, ""), reason
    return _RootResult(request.name, fetched, digest), ""


def _load(request: TableRequest) -> FetchedTable:
    if request.table_json:
        return FetchedTable(request.table_json, "the program")
    if request.path is not None:
        return Deadline(request.timeout_s).run(partial(_read, request, request.path), request.name)
    from tuner.runtime import service_client  # urllib, which nobody else has to wait for

    return service_client.fetch_table(request)


def _read(request: TableRequest, path: Path) -> FetchedTable:
    """The text of a table file; raises InputError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TABLE_BYTES + 1)
        if len(content) > MAX_TABLE_BYTES:
            raise InputError(f"more than {MAX_TABLE_BYTES >> 20} MiB is no table")
        request.parse_and_check(content)
        return FetchedTable(content.decode("utf-8"), str(path))
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except (InputError, UnicodeDecodeError) as reason:
        raise InputError(f"{path}: {reason}") from None


def _check_copy(
    request: TableRequest | None, root_result: _RootResult, objection: str
) -> tuple[TuningTable | None, str]:
    """A rank's own copy of the table, and what it has against it ("" for nothing)."""
    if objection or request is None:
        return None, objection
    if request.name not in ("", root_result.name):
        return None, f"was asked for {request.name}, rank 0 for {root_result.name or 'no table'}"
    if root_result.fetched is None:
        return None, ""
    table, reason = attempt(request.parse_and_check, root_result.fetched.text)
    if table is None:
        return None, reason
    digest, reason = attempt(_digest, table)
    if digest != root_result.digest:
        reason = reason or "reads the table otherwise than rank 0"
    return table, reason


def _digest(table: TuningTable) -> str:
    """SHA-256 of what was understood, which another version of this program may do otherwise."""
    return sha256_hex(json.dumps(table_record(table), sort_keys=True))


def _log_outcome(reason: str, root_result: _RootResult) -> None:
    """Write one line in the log, when there is anything to say."""
    if reason:
        warn(f"tuner: the library's own collectives are used: {reason}")
    elif root_result.fetched is None:
        warn(
            "tuner: the library's own collectives are used: no table is named, set TUNER_TABLE or"
            " TUNER_SERVICE"
        )
    elif root_result.fetched.note:
        warn(f"tuner: {root_result.fetched.note}")
