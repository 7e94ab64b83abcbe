"""Who answers allreduces around one that a table rules, in MPICH on two ranks: `flag_program.py`.

A commutative operator reads, while a call runs, whether the device layer may answer allreduces.
Rank 0 prints one JSON line: {"ruled": [...], "left": [...], "after": ..., "before": ...}.
"""

import json
from typing import Any

import numpy as np
from mpi4py import MPI

from tests.support.ladders import table_of
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.runtime import tune
from tuner.runtime.agreement import library_name
from tuner.runtime.control_variables import ControlVariables

FLAG, FORCED = "MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE", "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"
world, variables = MPI.COMM_WORLD, ControlVariables()
rungs = [
    (0, AlgorithmChoice()),
    (4096, AlgorithmChoice("recursive_doubling")),
    (8192, AlgorithmChoice()),
]
seen: list[tuple[int | str, ...]] = []


def state() -> tuple[int | str, ...]:
    """Both variables' present values."""
    return variables.read(FLAG), variables.read(FORCED)


def add(arriving: Any, inout: Any, _datatype: MPI.Datatype) -> None:
    """Add integers, and note what the library may do meanwhile."""
    seen.append(state())
    total = np.frombuffer(inout, np.int32)
    total += np.frombuffer(arriving, np.int32)


def seen_by(nbytes: int, calls: int = 1) -> list[tuple[int | str, ...]]:
    """Make calls; return what was seen of them on any rank."""
    seen.clear()
    part = np.ones(nbytes // 4, np.int32)
    for _ in range(calls):
        total = np.zeros_like(part)
        tuned.Allreduce(part, total, operator)
        assert (total == world.size).all()
    everywhere = world.gather(set(seen))
    return sorted(set().union(*everywhere)) if everywhere else []


operator = MPI.Op.Create(add, commute=True)
before = state()
tuned = tune(world, table_of({(Collective.ALLREDUCE, 2): rungs}, library=library_name()))
warm = seen_by(8, 10)
ruled, left, after = seen_by(4096), seen_by(8192), state()
if world.rank == 0:
    said = {"before": before, "warm": warm, "ruled": ruled, "left": left, "after": after}
    print(json.dumps(said), flush=True)
variables.write(FLAG, 0)
seen_by(8192)  # which ends the program where the MPIR layer's own rules are poisoned
