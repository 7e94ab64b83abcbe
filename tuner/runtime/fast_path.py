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
from collections.abc import Iterable
from typing import Any

from mpi4py import MPI
from numpy import ndarray

from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective
from tuner.runtime.dispatch_table import Action, DispatchTable
from tuner.runtime.nvidia import has_driver

# Buffer arguments that are never on a device.
HOST_BUFFER_TYPES = (ndarray, type(MPI.IN_PLACE), type(None))


def fast_method(
    collective: Collective, plain: MPI.Intracomm, tables: list[DispatchTable], general: Action
) -> Action | None:
    """Return a replacement for a method of a tuned communicator; None without one.

    plain       communicator whose methods are the library's collectives
    tables      dispatch tables of the collective, for any and for commutative operators
    general     the class's own method, which takes all arguments
    """
    library: Action = getattr(plain, collective.spec.mpi)
    may_meet_devices = collective.has_data and has_driver()
    if uses_only_library(tables, library) and not may_meet_devices:
        return library  # which may not take buffers on a device
    if not collective.has_data:
        return make_synchronisation(tables[0])
    if collective is Collective.BCAST:
        return make_bcast(library, tables[0], general)
    if collective is Collective.ALLREDUCE:
        return make_allreduce(library, tables[0], tables[1], general)
    return None


def make_synchronisation(table: DispatchTable) -> Action:
    """Return a method without buffers that follows a dispatch table."""
    action = table.action

    def call() -> None:
        return action(PROBE_ELEMENT_BYTES)()

    return call


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
        _first_tuned_bytes(table, library) for table in (ordered_table, commutative_table)
    )
    bounds, actions, usual = commutative_table.bounds, commutative_table.actions, MPI.SUM

    def call(sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        if type(recvbuf) is not ndarray or type(sendbuf) not in HOST_BUFFER_TYPES:
            return general(sendbuf, recvbuf, op)
        nbytes = recvbuf.nbytes
        if nbytes < departs:
            return library(sendbuf, recvbuf, op)
        if op is usual:
            return actions[bisect_right(bounds, nbytes) - 1](sendbuf, recvbuf, op)
        if type(op) is not MPI.Op:
            return general(sendbuf, recvbuf, op)
        return (commutative_table if op.is_commutative else ordered_table).action(nbytes)(
            sendbuf, recvbuf, op
        )

    return call


def uses_only_library(tables: Iterable[DispatchTable], library: Action) -> bool:
    """Return whether all actions of these tables are the library's own method."""
    return all(_first_tuned_bytes(table, library) == math.inf for table in tables)


def _first_tuned_bytes(table: DispatchTable, library: Action) -> float:
    """Return the smallest size, bytes, whose action is not the library's; inf without one."""
    lowest = zip(table.bounds, table.actions, strict=True)
    return next((low for low, action in lowest if action != library), math.inf)
