"""Programs of Debian that use MPI: how they are run, and what of their results is compared."""

from __future__ import annotations

from dataclasses import dataclass

REDUCING = frozenset({"allreduce", "bcast"})


@dataclass(frozen=True)
class Program:
    """A program, its input, and how the results of two runs are compared.

    command     what follows `mpirun -n RANKS`
    packages    of Debian
    passes      regular expression of what the results have where the program finds them right
    compared    regular expression of the results that are compared, in which ^ and $ are those of a
                line: no times, for example
    inputs      folder of `inputs` with its input; "" for none
    prepare     shell command before the first run
    output      file with its results; "" for standard output
    tolerance   largest relative difference of a number: ranks may add in another order
    follows     collectives that it calls
    """

    name: str
    command: tuple[str, ...]
    packages: tuple[str, ...]
    passes: str
    compared: str
    inputs: str = ""
    prepare: str = ""
    output: str = ""
    ranks: int = 4
    tolerance: float = 0.0
    follows: frozenset[str] = REDUCING


def lammps(name: str, script: str, follows: frozenset[str] = REDUCING) -> Program:
    """Return a run of LAMMPS; positions of atoms depend on the order in which ranks add."""
    return Program(
        name,
        ("lmp", "-in", script, "-log", "none"),
        ("lammps",),
        passes=r"Dangerous builds = 0$",
        compared=r"^ +\d+( +[-.\de]+){5} *$|^Total #.*|^Neighbor list builds.*",
        inputs="lammps",
        tolerance=1e-10,
        follows=follows,
    )


def scalapack(tester: str, follows: frozenset[str] = REDUCING | {"reduce"}) -> Program:
    """Return a tester of ScaLAPACK with Debian's input for it.

    Without a table, xdllt, xdsyevr and xzheevr hang at times, and one test of xdsep fails.
    """
    return Program(
        f"scalapack-{tester.rpartition('/')[2]}",
        (f"/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests/{tester}",),
        ("scalapack-mpi-test",),
        passes=r"^ *0 +tests completed and failed|^ *\| +\w+ +(\d+) +\1 +0 +0$",
        compared=r"^ *\d+ +tests (?:completed|skipped).*|^ *\| .*|\b(?:PASSED|FAILED|BYPASS)\b",
        prepare="cp /usr/share/scalapack/*.dat /usr/share/scalapack/PBLAS/*.dat .",
        follows=follows,
    )


PROGRAMS = (
    lammps("lammps-lj", "melt.in"),
    lammps("lammps-pppm", "salt.in", REDUCING | {"allgather"}),
    Program(
        "quantum-espresso",
        ("pw.x", "-in", "si.in"),
        ("quantum-espresso", "quantum-espresso-data"),
        passes=r"convergence has been achieved in +\d+ iterations",
        compared=r"^!? .*= .* Ry$|^ *(?: -?\d+\.\d{4}){4} *$|^ *highest occupied level.*",
        inputs="pw",
        tolerance=1e-6,
        follows=REDUCING | {"reduce", "barrier", "alltoall"},
    ),
    *(scalapack(name) for name in ("xdlu", "xdqr", "xdls", "xdinv", "xdgsep", "PBLAS/dpb2tst")),
    Program(
        "petsc-cg",
        ("./poisson",),
        ("libpetsc-real-dev", "pkg-config"),
        passes="the solution is right",
        compared="^iterations: .*",
        inputs="petsc",
        prepare="mpicc.openmpi poisson.c -o poisson $(pkg-config --cflags --libs PETSc) -lm",
        tolerance=0.02,
    ),
    Program(
        "hpcc",
        ("hpcc",),
        ("hpcc",),
        passes="Success=1",
        compared=r"^Found \d+ errors .*|^ *\d+ tests (?:completed|skipped).*"
        r"|\.\.\. (?:PASSED|FAILED)$|.*Errors=.*",
        prepare="sed 's/^1000 *Ns/200 Ns/' /usr/share/doc/hpcc/examples/_hpccinf.txt >hpccinf.txt",
        output="hpccoutf.txt",
        follows=REDUCING | {"reduce", "barrier"},
    ),
    Program(
        "mpqc",
        ("mpqc", "water.in"),
        ("mpqc",),
        passes="Value of the MolecularEnergy: +-76.0101028",
        compared=r"^ *iter +\d+ energy = +\S+|^ *(?:HOMO|LUMO) is.*|^ *total scf energy.*"
        r"|^ +\d+ +[OH](?: +-?\d+\.\d+){3}",
        inputs="mpqc",
        ranks=2,
        tolerance=1e-6,
    ),
    Program(
        "fftw",
        ("./transform",),
        ("libfftw3-mpi-dev", "libfftw3-dev"),
        passes="the cube is as before",
        compared="the cube is .*",
        inputs="fftw",
        prepare="mpicc.openmpi transform.c -o transform -lfftw3_mpi -lfftw3 -lm",
        # Its planner takes MPI_Alltoall only if it finds that faster than messages.
        follows=frozenset({"allreduce"}),
    ),
    Program(
        "abinit",
        ("abinit", "si.abi"),
        ("abinit",),
        passes="Calculation completed",
        compared=r"^ *ETOT +\d+ +\S+|^ *etotal +\S+",
        inputs="abinit",
        tolerance=1e-9,
    ),
    Program(
        "code-saturne",
        ("/usr/lib/code_saturne/cs_solver", "--quality"),
        ("code-saturne-bin",),
        passes="End of coherency check of the mesh structure",
        compared=r"^ *(?:minimum|maximum) value =.*|^ *\d+ : \[.*|.*Number of .*: +\d+$",
        inputs="code-saturne",
        prepare="python3 cube.py >cube.msh && /usr/lib/code_saturne/cs_preprocess cube.msh",
        output="run_solver.log",
        tolerance=1e-4,
    ),
)
