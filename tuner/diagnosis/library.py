"""Checks of the MPI library that an interpreter loads, or of why it loads none."""

from __future__ import annotations

import re
from pathlib import Path

from tuner import mpi_libraries
from tuner.base.errors import InputError, ProbeError
from tuner.diagnosis.findings import CheckResult, Finding, SetupProblem, make_finding
from tuner.diagnosis.tools import command_output
from tuner.launch import Installation, inspect_interpreter
from tuner.mpi_libraries.openmpi import DYNAMIC_RULES_VARIABLE

MIN_PYTHON_VERSION = (3, 11)  # for the rank programs
MISSING_LIBRARY_PATTERN = re.compile(r"(lib\S*mpi\S*\.so\S*): cannot open shared object file")
# Files that mpi4py's wheel looks for -> file that distributions have instead, the library's name,
# packages to install
DISTRIBUTION_LIBRARIES = {
    "libmpi.so.12": ("libmpich.so.12", "mpich", "libmpich-dev mpich"),
    "libmpi.so.40": ("libmpi.so.40", "openmpi", "libopenmpi-dev openmpi-bin"),
}


def check_library(python: Path) -> tuple[Installation | None, CheckResult]:
    """Ask the interpreter for its MPI; the installation is None where it has no usable one."""
    try:
        place = inspect_interpreter(python)
    except ProbeError as reason:
        return None, CheckResult(
            (make_finding("python", str(python)),), (_load_problem(python, str(reason)),)
        )
    return place, CheckResult(_describe(place), tuple(_find_problems(place)))


def _describe(installation: Installation) -> tuple[Finding, ...]:
    built = re.search(r"package: ([^,]+)", installation.version_text)
    return (
        make_finding(
            "MPI",
            f"{installation.identity}{f' ({built[1]})' if built else ''}",
            str(installation.libmpi),
        ),
        make_finding("mpi4py", f"{installation.mpi4py_version}, {_describe_build(installation)}"),
        make_finding(
            "python",
            f"{installation.python_version}, numpy {installation.numpy_version or 'missing'}",
            str(installation.python),
        ),
        *(_describe_controls(installation) if _is_tunable(installation) else ()),
    )


def _is_tunable(installation: Installation) -> bool:
    """Return whether the library's algorithms can be forced, and so measured."""
    return installation.base in mpi_libraries.LIBRARY_MODULES


def _describe_build(installation: Installation) -> str:
    if re.search(r"\.(openmpi|mpich|mpiabi|impi)\.", installation.extension_name):
        return "a wheel that takes the MPI it finds"
    return "built for this MPI"


def _describe_controls(installation: Installation) -> list[Finding]:
    return [
        make_finding("variables", *_describe_variables(installation)),
        *_describe_limits(installation),
    ]


def _describe_variables(installation: Installation) -> list[str]:
    """Return lines on which of the library's variables can be set at run time."""
    known = mpi_libraries.library_module(installation.library)
    there = installation.capabilities.variables
    missing = [name for name in known.CONTROL_VARIABLES if name not in there]
    at_start = [name for name, one in there.items() if not one.settable]
    running = len(there) - len(at_start)
    lines = [f"{running} of the {len(known.CONTROL_VARIABLES)} that matter can be set at run time"]
    if at_start:
        lines.append(f"from the environment alone: {', '.join(at_start)}")
    if missing:
        lines.append(f"missing: {', '.join(missing)}")
    return lines


def _describe_limits(installation: Installation) -> list[Finding]:
    """Return a finding on what this version lacks, and what to type about it, if anything."""
    lines = mpi_libraries.describe_missing_algorithms(
        installation.library, installation.capabilities
    )
    if installation.capabilities.startup_only([DYNAMIC_RULES_VARIABLE]):
        lines.append(
            "algorithms can be forced only in programs that are started for that: probes and"
            " `python -m tuner.run` do so, a program that calls tune() wants"
            f" `mpirun --mca {DYNAMIC_RULES_VARIABLE} 1`"
        )
    return [make_finding("limits", *lines)] if lines else []


def _find_problems(installation: Installation) -> list[SetupProblem]:
    problems = []
    if not installation.numpy_version:
        owned = installation.python.parent == Path("/usr/bin")  # pip refuses to install there
        install = f"{installation.python} -m pip install numpy"
        remedy = "`apt-get install python3-numpy`" if owned else f"`{install}`"
        problems.append(SetupProblem(f"{installation.python} lacks numpy", remedy, fatal=True))
    if not _is_tunable(installation):
        return [*problems, _untunable_problem(installation)]
    try:
        mpi_libraries.require_no_override(
            mpi_libraries.library_module(installation.library).OVERRIDING_PATTERN
        )
    except InputError as reason:
        text, _, remedy = str(reason).rpartition(": ")
        problems.append(SetupProblem(text, remedy, fatal=True))
    return problems


def _untunable_problem(installation: Installation) -> SetupProblem:
    title = installation.identity.product.title
    return SetupProblem(
        f"algorithms of {title} can be forced for whole programs alone, so they are not measured",
        "give an interpreter with Open MPI or MPICH (--python), or write the rules yourself, as"
        " docs/reference/library-formats.md shows: `tuner table export --format"
        f" {installation.base}` and `tuner table validate` work with them",
        fatal=True,
    )


def _load_problem(python: Path, reason: str) -> SetupProblem:
    """Return the problem where an interpreter loads no MPI, with what to type about it."""
    version = command_output([python, "-c", "import sys; print(*sys.version_info[:2])"]).split()
    if len(version) == 2 and tuple(map(int, version)) < MIN_PYTHON_VERSION:
        wanted = ".".join(map(str, MIN_PYTHON_VERSION))
        return SetupProblem(
            f"{python} is Python {'.'.join(version)}, too old for the ranks",
            f"give one of {wanted} or newer with mpi4py (--python)",
            fatal=True,
        )
    match = MISSING_LIBRARY_PATTERN.search(reason)
    if match and match[1] in DISTRIBUTION_LIBRARIES:
        return _missing_library_problem(python, match[1])
    if "cannot load MPI library" in reason:
        return SetupProblem(
            f"mpi4py of {python} finds no MPI library",
            "install one (`apt-get install openmpi-bin libopenmpi-dev`), load its module (`module"
            " load openmpi`), or `export MPI4PY_LIBMPI=/path/of/libmpi.so`",
            fatal=True,
        )
    text, _, remedy = reason.partition(": ")
    return SetupProblem(text, remedy or "install mpi4py there", fatal=True)


def _missing_library_problem(python: Path, soname: str) -> SetupProblem:
    """Return the problem where the file that mpi4py's wheel looks for is missing.

    It may have another name here, or not be installed.
    """
    instead, name, packages = DISTRIBUTION_LIBRARIES[soname]
    there = re.search(
        rf"{re.escape(instead)}\b.*=> (\S+)", command_output(["/sbin/ldconfig", "-p"])
    )
    text = f"mpi4py of {python} looks for {soname}, which is not there"
    if there is None:
        return SetupProblem(
            text, f"`apt-get install {packages}`, or load the module of your MPI", fatal=True
        )
    if instead == soname:
        return SetupProblem(text, f"`export LD_LIBRARY_PATH={Path(there[1]).parent}`", fatal=True)
    return SetupProblem(
        f"{text}; here it is called {there[1]}",
        f"`mkdir -p ~/.local/lib/{name} && ln -sf {there[1]} ~/.local/lib/{name}/{soname}` and"
        f" `export LD_LIBRARY_PATH=$HOME/.local/lib/{name} MPI4PY_MPIABI={name}`, or build it:"
        f" `MPICC=mpicc.{name} {python} -m pip install --force-reinstall --no-binary mpi4py"
        " mpi4py`",
        fatal=True,
    )
