"""Find what Open MPI's coll/tuned runs by default on any number of ranks (one rank is enough).

For each number of ranks the size of this process's communicator is overwritten while the library's
fixed decision function is called, whose choice the watcher (tuner/validation/openmpi_trace.c) only
records. REQUEST is the JSON record {collectives, max_ranks, max_bytes}. A line is printed for each
collective and number of ranks from which on the choice differs from that for fewer ranks:
{collective, ranks, steps}, with the steps of `tuner.rank_programs.default_algorithms`, but the
bytes of a block where ranks exchange blocks.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mpi4py import MPI

from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective
from tuner.rank_programs.bisection import find_change_points
from tuner.rank_programs.default_algorithms import Step
from tuner.rank_programs.validate import observed_calls, watch_communicator

GROUP_INTS = 32  # of the library's structure of a group that are searched for its size
UNUSUAL_SIZE = 12345  # of a group, to recognise the field


@contextmanager
def group_size(comm: MPI.Comm) -> Iterator[ctypes.c_int]:
    """Give access to the field with the number of ranks in the communicator of a single rank.

    Raises RuntimeError where the field is not found.
    """
    group = comm.Get_group()
    fields = (ctypes.c_int * GROUP_INTS).from_address(MPI._handleof(group))
    for place in range(GROUP_INTS):
        if fields[place] != 1:
            continue
        fields[place] = UNUSUAL_SIZE
        found = comm.Get_size() == UNUSUAL_SIZE
        fields[place] = 1
        if found:
            size = ctypes.c_int.from_address(ctypes.addressof(fields) + 4 * place)
            try:
                yield size
            finally:
                size.value = 1
            return
    raise RuntimeError("the size of a communicator is not where it was looked for")


def decision_function(comm: MPI.Comm, collective: str, max_ranks: int) -> Callable[[int], None]:
    """Return a function that has the library decide on a call of so many bytes.

    Where ranks exchange blocks (`Collective.moves_blocks`), these are the bytes of a block. Where
    each rank gets a block of a reduction, the library adds up all blocks: the first is given all.
    """
    decide = getattr(ctypes.CDLL("libmpi.so.40"), f"ompi_coll_tuned_{collective}_intra_dec_fixed")
    spec = Collective(collective)
    handles = {"comm": comm, "type": MPI.INT32_T, "op": MPI.SUM}
    pointers = {name: ctypes.c_void_p(MPI._handleof(what)) for name, what in handles.items()}
    data = ctypes.create_string_buffer(8)  # whose content is never looked at
    operator = [pointers["op"]] * spec.is_reduction
    root = [ctypes.c_size_t(0)] * spec.is_rooted
    blocks = (ctypes.c_int * max_ranks)()

    def ask(nbytes: int) -> None:
        blocks[0] = nbytes // PROBE_ELEMENT_BYTES
        added_up = spec.has_blocks and spec.is_reduction
        count = blocks if added_up else ctypes.c_size_t(blocks[0])
        part = data, count, pointers["type"]
        buffers = [*part, *part] if spec.moves_blocks else [data] * spec.is_reduction + [*part]
        decide(*buffers * spec.has_data, *operator, *root, pointers["comm"], None)

    return ask


def find_steps(
    comm: MPI.Comm, collective: str, max_ranks: int, max_bytes: int
) -> Iterator[tuple[int, list[Step]]]:
    """Yield the numbers of ranks from which on other steps hold, with these."""
    decide = decision_function(comm, collective, max_ranks)
    with group_size(comm) as size:

        def steps(ranks: int) -> list[Step]:
            def seen(nbytes: int) -> list[int]:
                size.value = ranks
                decide(nbytes)
                size.value = 1
                (call,) = observed_calls()
                return call

            return find_change_points(seen, max_bytes)

        yield from find_change_points(steps, max_ranks, step=1)


def main(request: str) -> None:
    """Find and print the steps of all collectives."""
    asked, comm = json.loads(request), MPI.COMM_SELF.Dup()
    watch_communicator(comm)
    ctypes.CDLL(None).tuner_watch(ctypes.c_void_p(MPI._handleof(comm)), 0)
    for collective in asked["collectives"]:
        for ranks, steps in find_steps(comm, collective, asked["max_ranks"], asked["max_bytes"]):
            print(json.dumps({"collective": collective, "ranks": ranks, "steps": steps}))
    comm.Free()


if __name__ == "__main__":
    main(sys.argv[1])
