"""The agreement of all ranks on one table: rank 0 obtains it, and every rank checks a copy.

A rank that objects to the table (its request names another one, it runs another library, it cannot
parse the copy, anything fails) says so in one reduction. Then no rank uses the table, so no two
ranks can choose different algorithms for one call.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass

from mpi4py import MPI

from tuner.base.errors import InputError
from tuner.core.table import TuningTable, table_record
from tuner.runtime.consensus import Consensus, ObjectionError, attempt
from tuner.runtime.log import warn
from tuner.runtime.table_loading import load_table
from tuner.runtime.table_source import FetchedTable, TableRequest, sha256_hex


@dataclass(frozen=True)
class TableAgreement:
    """The table that the ranks of a communicator agreed on; all but `request` is the same on each.

    table       None for the library's own collectives
    origin      where the table came from, "" without a table
    reason      why there is no table; "" with a table, and where none was requested
    version     the service's number for the table; None for one from a file or the program
    request     this rank's request; None where it could not be resolved
    """

    table: TuningTable | None
    origin: str
    reason: str
    version: int | None
    request: TableRequest | None


NO_TABLE = TableAgreement(None, "", "", None, None)


@dataclass(frozen=True)
class _RootResult:
    """The request of rank 0 and its result, as sent to the other ranks."""

    name: str
    fetched: FetchedTable | None
    digest: str


def library_name() -> str:
    """Return the MPI library of this process, named as in tables: `openmpi 5.0.11`."""
    from tuner.mpi_libraries.products import identify  # slow to import

    try:
        return identify(MPI.Get_library_version()).library
    except InputError:  # a library for which there are no tables
        vendor, version = MPI.get_vendor()
        return f"{vendor.lower().replace(' ', '')} {'.'.join(map(str, version))}"


def agree_on_table(
    consensus: Consensus, make_request: Callable[[], TableRequest]
) -> TableAgreement:
    """Return the table that all ranks agree on; collective.

    make_request    makes the request of this rank; raises InputError where it cannot be resolved
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
    """Load the table on rank 0; return the result to send and an objection ("" for none)."""
    if request is None or not request.name:
        return _RootResult("", None, ""), objection
    fetched, reason = attempt(load_table, request)
    if fetched is None:
        return _RootResult(request.name, None, ""), reason
    digest, reason = attempt(lambda: _digest(request.parse_and_check(fetched.text)))
    if digest is None:
        return _RootResult(request.name, None, ""), reason
    return _RootResult(request.name, fetched, digest), ""


def _check_copy(
    request: TableRequest | None, root_result: _RootResult, objection: str
) -> tuple[TuningTable | None, str]:
    """Return a rank's own copy of the table and its objection to it ("" for none)."""
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
    """Return the SHA-256 of the parsed table, which other versions of tuner may parse otherwise."""
    return sha256_hex(json.dumps(table_record(table), sort_keys=True))


def _log_outcome(reason: str, root_result: _RootResult) -> None:
    """Log in one line why there is no table, or the note that came with it."""
    if reason:
        warn(f"tuner: the library's own collectives are used: {reason}")
    elif root_result.fetched is None:
        warn(
            "tuner: the library's own collectives are used: no table is named, set TUNER_TABLE or"
            " TUNER_SERVICE"
        )
    elif root_result.fetched.note:
        warn(f"tuner: {root_result.fetched.note}")
