"""The library that an interpreter loads, or why it loads none."""

from __future__ import annotations

import re
from pathlib import Path

from tuner import mpi_libraries
from tuner.base.errors import InputError, ProbeError
from tuner.diagnosis.findings import Examined, Finding, Problem, found
from tuner.diagnosis.tools import output_of
from tuner.launch import Installation, installation_of
from tuner.mpi_libraries.openmpi import DYNAMIC_RULES

OLDEST = (3, 11)  # Python that runs this program's part in the ranks
SONAME = re.compile(r"(lib\S*mpi\S*\.so\S*): cannot open shared object file")
NEEDED = {  # files that mpi4py's wheel looks for, those that distributions have instead, its name
    "libmpi.so.12": ("libmpich.so.12", "mpich", "libmpich-dev mpich"),
    "libmpi.so.40": ("libmpi.so.40", "openmpi", "libopenmpi-dev openmpi-bin"),
}


def load(python: Path) -> tuple[Installation | None, Examined]:
    """Ask the interpreter for its MPI; the installation is None where it has no usable one."""
    try:
        place = installation_of(python)
    except ProbeError as reason:
        return None, Examined((found("python", str(python)),), (_unloaded(python, str(reason)),))
    return place, Examined(_described(place), tuple(_problems(place)))


def _described(place: Installation) -> tuple[Finding, ...]:
    built = re.search(r"package: ([^,]+)", place.says)
    return (
        found("MPI", f"{place.identity}{f' ({built[1]})' if built else ''}", str(place.libmpi)),
        found("mpi4py", f"{place.mpi4py}, {_built(place)}"),
        found("python", f"{place.version}, numpy {place.numpy or 'missing'}", str(place.python)),
        *(_controls(place) if _tunable(place) else ()),
    )


def _tunable(place: Installation) -> bool:
    """Whether the library's algorithms can be forced, and so measured."""
    return place.base in mpi_libraries.LIBRARIES


def _built(place: Installation) -> str:
    if re.search(r"\.(openmpi|mpich|mpiabi|impi)\.", place.extension):
        return "a wheel that takes the MPI it finds"
    return "built for this MPI"


def _controls(place: Installation) -> list[Finding]:
    return [found("variables", *_variables(place)), *_limits(place)]


def _variables(place: Installation) -> list[str]:
    """Say which of the library's variables can be set when."""
    known, there = mpi_libraries.named(place.library), place.capabilities.variables
    missing = [name for name in known.VARIABLES if name not in there]
    at_start = [name for name, one in there.items() if not one.settable]
    running = len(there) - len(at_start)
    lines = [f"{running} of the {len(known.VARIABLES)} that matter can be set at run time"]
    if at_start:
        lines.append(f"from the environment alone: {', '.join(at_start)}")
    if missing:
        lines.append(f"missing: {', '.join(missing)}")
    return lines


def _limits(place: Installation) -> list[Finding]:
    """Say what this version lacks, and what to type about it."""
    lines = mpi_libraries.shortcomings(place.library, place.capabilities)
    if place.capabilities.only_at_start([DYNAMIC_RULES]):
        lines.append(
            "algorithms can be forced only in programs that are started for that: probes and"
            " `python -m tuner.run` do so, a program that calls tune() wants"
            f" `mpirun --mca {DYNAMIC_RULES} 1`"
        )
    return [found("limits", *lines)] if lines else []


def _problems(place: Installation) -> list[Problem]:
    problems = []
    if not place.numpy:
        owned = place.python.parent == Path("/usr/bin")  # where pip refuses to install
        install = f"{place.python} -m pip install numpy"
        remedy = "`apt-get install python3-numpy`" if owned else f"`{install}`"
        problems.append(Problem(f"{place.python} lacks numpy", remedy, fatal=True))
    if not _tunable(place):
        return [*problems, _untunable(place)]
    try:
        mpi_libraries.require_unset(mpi_libraries.named(place.library).DECIDING)
    except InputError as reason:
        text, _, remedy = str(reason).rpartition(": ")
        problems.append(Problem(text, remedy, fatal=True))
    return problems


def _untunable(place: Installation) -> Problem:
    title = place.identity.product.title
    return Problem(
        f"algorithms of {title} can be forced for whole programs alone, so they are not measured",
        "give an interpreter with Open MPI or MPICH (--python), or write the rules yourself, as"
        f" docs/formats.md shows: `tuner table export --to {place.base}` and `tuner table prove`"
        " work with them",
        fatal=True,
    )


def _unloaded(python: Path, reason: str) -> Problem:
    """Say what to type where an interpreter loads no MPI."""
    version = output_of([python, "-c", "import sys; print(*sys.version_info[:2])"]).split()
    if len(version) == 2 and tuple(map(int, version)) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        return Problem(
            f"{python} is Python {'.'.join(version)}, too old for the ranks",
            f"give one of {wanted} or newer with mpi4py (--python)",
            fatal=True,
        )
    match = SONAME.search(reason)
    if match and match[1] in NEEDED:
        return _other_name(python, match[1])
    if "cannot load MPI library" in reason:
        return Problem(
            f"mpi4py of {python} finds no MPI library",
            "install one (`apt-get install openmpi-bin libopenmpi-dev`), load its module (`module"
            " load openmpi`), or `export MPI4PY_LIBMPI=/path/of/libmpi.so`",
            fatal=True,
        )
    text, _, remedy = reason.partition(": ")
    return Problem(text, remedy or "install mpi4py there", fatal=True)


def _other_name(python: Path, wanted: str) -> Problem:
    """mpi4py's wheel looks for a file that has another name here, or is not there."""
    instead, name, packages = NEEDED[wanted]
    there = re.search(rf"{re.escape(instead)}\b.*=> (\S+)", output_of(["/sbin/ldconfig", "-p"]))
    text = f"mpi4py of {python} looks for {wanted}, which is not there"
    if there is None:
        return Problem(
            text, f"`apt-get install {packages}`, or load the module of your MPI", fatal=True
        )
    if instead == wanted:
        return Problem(text, f"`export LD_LIBRARY_PATH={Path(there[1]).parent}`", fatal=True)
    return Problem(
        f"{text}; here it is called {there[1]}",
        f"`mkdir -p ~/.local/lib/{name} && ln -sf {there[1]} ~/.local/lib/{name}/{wanted}` and"
        f" `export LD_LIBRARY_PATH=$HOME/.local/lib/{name} MPI4PY_MPIABI={name}`, or build it:"
        f" `MPICC=mpicc.{name} {python} -m pip install --force-reinstall --no-binary mpi4py"
        " mpi4py`",
        fatal=True,
    )
