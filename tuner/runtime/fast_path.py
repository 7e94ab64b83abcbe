"""Methods of a tuned communicator with as little overhead per call as Python allows.

A small message takes two microseconds, so every tenth of one counts. A collective for which the
table changes nothing is the library's own method, without overhead. For Bcast and Allreduce, what
the class's methods look up at each call is looked up once here, and calls with plain arrays below
the first size that the table tunes go straight to the library. Calls with other buffers go to the
class's methods.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any

from mpi4py import MPI
from numpy import ndarray

from tuner.core.collective import Collective
from tuner.core.table import OPERATORS
from tuner.runtime.dispatch_table import Action, DispatchTable
from tuner.runtime.method_names import METHODS
from tuner.runtime.nvidia import has_driver

HOST_BUFFER_TYPES = (
    ndarray,
    type(MPI.IN_PLACE),
    type(None),
)  # buffer arguments that are never on a device


def fast_methods(
    plain: MPI.Intracomm,
    tables: Mapping[tuple[Collective, str], DispatchTable],
    general_bcast: Action,
    general_allreduce: Action,
) -> dict[str, Action]:
    """Return replacements for methods of a tuned communicator, by name.

    plain               communicator whose methods are the library's collectives
    tables              dispatch tables of every collective, for any and for commutative operators
    general_bcast       the class's own method, which takes all arguments
    general_allreduce   the class's own method, which takes all arguments
    """
    strict, free = (tables[Collective.ALLREDUCE, operators] for operators in OPERATORS)
    found = {
        "Bcast": make_bcast(plain.Bcast, tables[Collective.BCAST, OPERATORS[0]], general_bcast),
        "Allreduce": make_allreduce(plain.Allreduce, strict, free, general_allreduce),
    }
    if has_driver():
        return found  # a buffer may be on a device, which the library's method may not take
    for collective, method in METHODS.items():
        library = getattr(plain, method)
        if uses_only_library([tables[collective, operators] for operators in OPERATORS], library):
            found[method] = library
    return found


def library_methods(plain: MPI.Intracomm) -> dict[str, Action]:
    """Return the library's methods, by name, for communicators without tuned rules."""
    if has_driver():
        return {}  # a buffer may be on a device that the library cannot reach
    return {method: getattr(plain, method) for method in METHODS.values()}


def make_bcast(library: Action, table: DispatchTable, general: Action) -> Action:
    """Return a `Bcast` that follows a dispatch table.

    library     method of the plain communicator
    general     method of the class, for buffers that are not plain arrays
    """
    bounds, actions, departs = table.bounds, table.actions, _first_tuned_bytes(table, library)

    def call(buf: Any, root: int = 0) -> None:
        if type(buf) is not ndarray:
            return general(buf, root)
        nbytes = buf.nbytes
        if nbytes < departs:
            return library(buf, root)
        return actions[bisect_right(bounds, nbytes) - 1](buf, root)

    return call


def make_allreduce(
    library: Action, ordered_table: DispatchTable, commutative_table: DispatchTable, general: Action
) -> Action:
    """Return an `Allreduce` that follows two dispatch tables.

    library             method of the plain communicator
    ordered_table       table for any operator
    commutative_table   table for commutative operators
    general             method of the class, for all other arguments
    """
    departs = min(
        _first_tuned_bytes(ordered_table, library), _first_tuned_bytes(commutative_table, library)
    )

    def call(sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        if type(recvbuf) is not ndarray or type(sendbuf) not in HOST_BUFFER_TYPES:
            return general(sendbuf, recvbuf, op)
        nbytes = recvbuf.nbytes
        if nbytes < departs:
            return library(sendbuf, recvbuf, op)
        if type(op) is not MPI.Op:
            return general(sendbuf, recvbuf, op)
        return (commutative_table if op.is_commutative else ordered_table).action(nbytes)(
            sendbuf, recvbuf, op
        )

    return call


def uses_only_library(tables: Iterable[DispatchTable], library: Action) -> bool:
    """Return whether all actions of these tables are the library's own method."""
    return all(_first_tuned_bytes(ladder, library) == math.inf for ladder in tables)


def _first_tuned_bytes(table: DispatchTable, library: Action) -> float:
    """Return the smallest size, bytes, whose action is not the library's; inf without one."""
    rungs = zip(table.bounds, table.actions, strict=True)
    return next((low for low, action in rungs if action != library), math.inf)
