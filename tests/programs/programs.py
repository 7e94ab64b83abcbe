"""Programs of Debian that use MPI, how they are run, and what of their output is compared."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """A program, its input, and how two runs of it are compared.

    inputs      folder of `inputs` with its input; "" for none
    command     what follows `mpirun -n RANKS`
    packages    of Debian
    finds       regular expression of what it says where its own checks pass
    unsteady    regular expression of what differs between any two runs, such as times
    output      file with its results; "" for standard output
    prepare     shell command before the first run
    tolerance   largest relative difference of a number, as ranks may add in another order; 0 where
                the output does not depend on that order
    follows     collectives that it calls on all its ranks
    """

    name: str
    command: tuple[str, ...]
    packages: tuple[str, ...]
    finds: str
    unsteady: str
    inputs: str = ""
    output: str = ""
    prepare: str = ""
    ranks: int = 4
    tolerance: float = 0.0
    follows: frozenset[str] = frozenset({"allreduce", "bcast"})


LAMMPS_TIMES = (
    r"^(?:Loop time|Performance|Total wall time|(?:Pair|Neigh|Kspace|Comm|Output|Modify|Other) ).*"
    r"|^.*(?:CPU use with|CPU =).*"
)
PROGRAMS = (
    Program(
        "lammps-lj",
        ("lmp", "-in", "melt.in", "-log", "none"),
        ("lammps",),
        inputs="lammps",
        finds=r"Total # of neighbors = \d+",
        unsteady=LAMMPS_TIMES,
        tolerance=1e-10,
    ),
    Program(
        "lammps-pppm",
        ("lmp", "-in", "salt.in", "-log", "none"),
        ("lammps",),
        inputs="lammps",
        finds=r"Total # of neighbors = \d+",
        unsteady=LAMMPS_TIMES,
        tolerance=1e-10,
        follows=frozenset({"allreduce", "bcast", "allgather"}),
    ),
)
