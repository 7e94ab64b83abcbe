"""Run by mpirun: what mpi4py and the library refuse, a tuned communicator refuses alike.

Prints one line for every call that ends otherwise, and at last how many there were.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

from tests.support.ladders import table_of
from tuner.collective import Collective
from tuner.runtime import tune
from tuner.runtime.agreement import library_name
from tuner.table import SCHEDULE, Choice

WORLD = MPI.COMM_WORLD
CHOICES = {
    "library": {Collective.BCAST: "binomial", Collective.ALLREDUCE: "recursive_doubling"},
    SCHEDULE: {
        Collective.BCAST: "binomial", Collective.ALLREDUCE: "ring", Collective.REDUCE: "linear",
        Collective.ALLGATHER: "ring", Collective.REDUCE_SCATTER: "ring",
        Collective.GATHER: "linear", Collective.SCATTER: "linear",
    },
}  # fmt: skip
REFUSALS = (AttributeError, BufferError, KeyError, OverflowError, TypeError, ValueError)
Call = tuple[str, tuple[Any, ...]]  # method, arguments


def calls(a: Any, b: Any) -> Iterator[Call]:
    """Wrong in one way each, on every rank."""
    everything, fixed = np.zeros(4 * WORLD.size), np.zeros(4)
    fixed.flags.writeable = False
    for op in (None, 3, "sum", MPI.OP_NULL, MPI.REPLACE, MPI.NO_OP, MPI.MINLOC, MPI.BAND):
        yield "Allreduce", (a, b, op)
        yield "Allreduce", (MPI.IN_PLACE, b, op)
        yield "Reduce", (a, b, op, 0)
        yield "Reduce_scatter_block", (everything, b, op)
    for root in (-1, WORLD.size, 1 << 20, None, "0"):
        yield "Bcast", (a, root)
        yield "Bcast", ([a, MPI.DOUBLE], root)
        yield "Reduce", (a, b, MPI.SUM, root)
        yield "Gather", (a, everything, root)
        yield "Scatter", (everything, b, root)
    for wrong in (np.zeros((4, 4))[:, ::2], np.array(["x", None], object), np.zeros(3, ">f8"),
                  np.zeros(3, "M8[s]"), np.zeros(3, "f8,i4"), 3, "text", [], [a], [a, -1],
                  [a, 1, 2, 3, 4], [a, "none such"], [a, 2, MPI.DATATYPE_NULL]):  # fmt: skip
        yield "Bcast", (wrong,)
        yield "Allreduce", (a, wrong)
        yield "Allreduce", (wrong, b)
        yield "Allgather", (wrong, b)
    for into in (fixed, np.zeros(3), np.zeros(4, "i4"), b"read-only", [b, 3]):
        yield "Allreduce", (a, into)
    yield "Allreduce", (MPI.IN_PLACE, fixed)
    yield "no_such_method", ()


def outcome(comm: Any, call: Call) -> str:
    """What a call ends with: its exception's type and, but for MPI's own, text."""
    try:
        getattr(comm, call[0])(*call[1])
    except MPI.Exception as error:
        return f"MPI error class {error.Get_error_class()}"
    except REFUSALS as error:
        name = f"'mpi4py.MPI.{type(MPI.COMM_SELF).__name__}'"
        return f"{type(error).__name__}: {error}".replace(f"'{type(comm).__name__}'", name)
    return "fine"


def main() -> None:
    number = 0
    for via, names in CHOICES.items():
        ladders = {(collective, WORLD.size): [(0, Choice(name, {}, via))]
                   for collective, name in names.items()}  # fmt: skip
        plain, tuned = WORLD.Dup(), tune(WORLD.Dup(), table_of(ladders, library=library_name()))
        for call in calls(np.ones(4), np.zeros(4)):
            number += 1
            expected, got = outcome(plain, call), outcome(tuned, call)
            if got != expected and WORLD.rank == 0:
                print(f"{via} {call}: {got!r}, not {expected!r}")
        tuned.Free()
        plain.Free()
    if WORLD.rank == 0:
        print(f"{number} calls")


main()
