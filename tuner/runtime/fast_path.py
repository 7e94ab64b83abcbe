"""Calls with as little before them as Python allows.

A small message takes two microseconds, so every tenth of one counts. A collective for which the
table changes nothing is the library's own method, and costs nothing. For the two most frequent
others, what the class's own methods look up at each call is looked up once here, and calls of plain
arrays below the first size at which the table departs from the library's choice go straight to the
library. Everything that is not a plain array takes the way of the class.
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
from tuner.runtime.dispatch_table import METHODS, Action, Ladder
from tuner.runtime.nvidia import driver_loads

PLAIN = (ndarray, type(MPI.IN_PLACE), type(None))  # buffer arguments that are never on a device


def methods(
    plain: MPI.Intracomm,
    ladders: Mapping[tuple[Collective, str], Ladder],
    general_bcast: Action,
    general_allreduce: Action,
) -> dict[str, Action]:
    """What stands for methods of a tuned communicator, by name.

    plain       whose methods are the library's collectives
    ladders     of every collective, for any operator and for commutative ones
    general     the class's own methods, which do all calls
    """
    strict, free = (ladders[Collective.ALLREDUCE, operators] for operators in OPERATORS)
    found = {
        "Bcast": bcast(plain.Bcast, ladders[Collective.BCAST, OPERATORS[0]], general_bcast),
        "Allreduce": allreduce(plain.Allreduce, strict, free, general_allreduce),
    }
    if driver_loads():
        return found  # a buffer may be on a device, whatever the table says
    for collective, method in METHODS.items():
        library = getattr(plain, method)
        if unchanged([ladders[collective, operators] for operators in OPERATORS], library):
            found[method] = library
    return found


def of_library(plain: MPI.Intracomm) -> dict[str, Action]:
    """Return the library's methods, by name, for communicators without other choices."""
    if driver_loads():
        return {}  # a buffer may be on a device that the library cannot reach
    return {method: getattr(plain, method) for method in METHODS.values()}


def bcast(library: Action, ladder: Ladder, general: Action) -> Action:
    """`Bcast` under a ladder; `library` is the plain communicator's, `general` the class's."""
    bounds, actions, departs = ladder.bounds, ladder.actions, _departs(ladder, library)

    def call(buf: Any, root: int = 0) -> None:
        if type(buf) is not ndarray:
            return general(buf, root)
        nbytes = buf.nbytes
        if nbytes < departs:
            return library(buf, root)
        return actions[bisect_right(bounds, nbytes) - 1](buf, root)

    return call


def allreduce(library: Action, strict: Ladder, free: Ladder, general: Action) -> Action:
    """`Allreduce` under the ladders for any operator and for commutative ones."""
    departs = min(_departs(strict, library), _departs(free, library))

    def call(sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        if type(recvbuf) is not ndarray or type(sendbuf) not in PLAIN:
            return general(sendbuf, recvbuf, op)
        nbytes = recvbuf.nbytes
        if nbytes < departs:
            return library(sendbuf, recvbuf, op)
        if type(op) is not MPI.Op:
            return general(sendbuf, recvbuf, op)
        return (free if op.is_commutative else strict).action(nbytes)(sendbuf, recvbuf, op)

    return call


def unchanged(ladders: Iterable[Ladder], library: Action) -> bool:
    """Whether these never ask for anything else than the library's own choice."""
    return all(_departs(ladder, library) == math.inf for ladder in ladders)


def _departs(ladder: Ladder, library: Action) -> float:
    """Bytes from which on something else than the library's own choice may be asked for."""
    rungs = zip(ladder.bounds, ladder.actions, strict=True)
    return next((low for low, action in rungs if action != library), math.inf)
