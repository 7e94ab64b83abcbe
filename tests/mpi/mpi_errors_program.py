"""Run by mpirun: what mpi4py and the library refuse, a tuned communicator refuses alike.

Prints one line for every call that ends otherwise, and at last how many there were.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

from tests.support.ladders import table_of
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.runtime import tune
from tuner.runtime.agreement import library_name

WORLD = MPI.COMM_WORLD
CHOICES = {
    "library": {
        Collective.BCAST: "binomial",
        Collective.ALLREDUCE: "recursive_doubling",
        Collective.ALLGATHER: "ring",
        Collective.GATHER: "binomial",
        Collective.SCATTER: "binomial",
    },
    SCHEDULE: {
        Collective.BCAST: "binomial",
        Collective.ALLREDUCE: "ring",
        Collective.REDUCE: "linear",
        Collective.ALLGATHER: "ring",
        Collective.REDUCE_SCATTER: "ring",
        Collective.GATHER: "linear",
        Collective.SCATTER: "linear",
    },
}
PAIR = MPI.DOUBLE.Create_contiguous(2).Commit()
STILL = MPI.DOUBLE.Create_resized(0, 0).Commit()  # elements all at one place
OPEN = MPI.DOUBLE.Create_vector(2, 1, 2), MPI.DOUBLE.Create_contiguous(2)  # not committed
SAME = MPI.DOUBLE.Dup()
REFUSALS = (AttributeError, BufferError, KeyError, OverflowError, TypeError, ValueError)
Call = tuple[str, tuple[Any, ...]]  # method, arguments


def displaced() -> Iterator[Any]:
    """Before, within, at the end of and beyond the memory of four elements, in more of them."""
    a = np.zeros(16)[:4]
    for displacement in (-1, 0, 3, 4, 5, 1 << 40, 1 << 62):
        for count in (0, 1, None):
            yield [a, count, displacement, MPI.DOUBLE]
    yield from ([a, (1, 5)], [a, (1, 5), MPI.DOUBLE], [a, 1, 2, PAIR], [a, 1, 3, PAIR])
    yield from ([a, 1, 1, STILL], [a, 1, 0, STILL], [a, 0, 1, STILL], [MPI.BOTTOM, 0, 1, PAIR])
    yield from ([None, 0, 1, MPI.DOUBLE], [np.zeros(0), 0, 1, MPI.DOUBLE])


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
    for wrong in (
        np.zeros((4, 4))[:, ::2],
        np.array(["x", None], object),
        np.zeros(3, ">f8"),
        np.zeros(3, "M8[s]"),
        np.zeros(3, "f8,i4"),
        3,
        "text",
        [],
        [a],
        [a, -1],
        [a, 1, 2, 3, 4],
        [a, "none such"],
        [a, 2, MPI.DATATYPE_NULL],
        *displaced(),
    ):
        yield "Bcast", (wrong,)
        yield "Allreduce", (a, wrong)
        yield "Allreduce", (wrong, b)
        yield "Allgather", (wrong, b)
    for kind in OPEN:
        yield "Bcast", ([np.zeros(8), 2, kind],)
        yield "Allgather", ([np.zeros(8), 2, kind], everything)
    for into in (fixed, np.zeros(3), np.zeros(4, "i4"), b"read-only", [b, 3]):
        yield "Allreduce", (a, into)
    for into in (np.zeros(4, "f4"), np.zeros(4, "i8"), [b, b.size, SAME], np.zeros(3), [b, 2]):
        yield "Reduce_scatter_block", (everything, into)
    for stays in (MPI.IN_PLACE, a):
        yield "Allgather", (stays, np.zeros(4 * WORLD.size + 1))
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
        ladders = {
            (collective, WORLD.size): [(0, AlgorithmChoice(name, {}, via))]
            for collective, name in names.items()
        }
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
