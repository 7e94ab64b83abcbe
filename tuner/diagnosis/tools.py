"""Checks of other programs: compilers, the library's transports, the batch system."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.base.c_compiler import COMPILERS
from tuner.diagnosis.findings import CheckResult, SetupProblem, make_finding
from tuner.launch import Installation
from tuner.mpi_libraries.profiles import profile_of

COMMAND_TIMEOUT_S = 20.0  # for one of these programs
MPI_PROGRAM = """#include <mpi.h>
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    return MPI_Finalize();
}
"""
SCHEDULERS = (  # variable set in a job, program on PATH, name
    ("SLURM_JOB_ID", "sbatch", "Slurm"),
    ("PBS_JOBID", "qsub", "PBS"),
    ("LSB_JOBID", "bsub", "LSF"),
)


def command_output(command: Sequence[str | Path]) -> str:
    """Return what a program prints on both streams; "" where it cannot be started or hangs."""
    try:
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=COMMAND_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout + run.stderr


def check_compilers(wrapper: Path | None) -> CheckResult:
    """Look for a C compiler, and check that the library's `mpicc` builds a program.

    wrapper     path of mpicc; None where there is none
    """
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        missing = SetupProblem(
            "there is no C compiler, so what a library runs is found out more slowly and, for Intel"
            " MPI, not at all",
            "install gcc (`apt-get install gcc libc6-dev`)",
        )
        return CheckResult((make_finding("compiler", "none"),), (missing,))
    version = command_output([compiler, "--version"]).partition("\n")[0]
    return CheckResult((make_finding("compiler", f"{compiler}: {version}", _try_mpicc(wrapper)),))


def _try_mpicc(wrapper: Path | None) -> str:
    """Return a line on whether mpicc compiles and links a program."""
    if wrapper is None:
        return "mpicc: none beside the launcher, so an mpi4py program tries the rules, not a C one"
    with tempfile.TemporaryDirectory(prefix="tuner-doctor-") as directory:
        source, target = Path(directory, "program.c"), Path(directory, "program")
        source.write_text(MPI_PROGRAM, encoding="utf-8")
        said = command_output([wrapper, "-o", target, source])
        if target.is_file():
            return f"{wrapper}: compiles and links a program"
    last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "no reason")
    return f"{wrapper}: does not make a program ({last[:120]})"


def check_transports(installation: Installation, directories: Sequence[Path]) -> CheckResult:
    """Return the transports that the library was built with and those chosen in the environment."""
    frameworks = profile_of(installation.base).frameworks
    lines = _components(frameworks, directories) if frameworks else []
    device = re.search(r"MPICH Device:\s*(.+)", installation.version_text)
    lines += [f"device {device[1].strip()}"] if device else []
    chosen = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name.startswith(
            (
                "OMPI_MCA_pml",
                "OMPI_MCA_btl",
                "I_MPI_FABRICS",
                "I_MPI_OFI_PROVIDER",
                "FI_PROVIDER",
                "UCX_TLS",
                "UCX_NET_DEVICES",
                "MPIR_CVAR_CH4_NETMOD",
            )
        )
    ]
    return (
        CheckResult((make_finding("transports", *lines, *chosen),))
        if lines or chosen
        else CheckResult()
    )


def _components(frameworks: Sequence[str], directories: Sequence[Path]) -> list[str]:
    """Return a line for each framework of Open MPI with its components, as ompi_info lists them."""
    path = os.pathsep.join([*map(str, directories), os.environ.get("PATH", "")])
    program = shutil.which("ompi_info", path=path) or shutil.which("ompi_info.openmpi", path=path)
    said = command_output([program, "--parsable"]) if program else ""
    lines = []
    for framework in frameworks:
        names = dict.fromkeys(re.findall(rf"^mca:{framework}:(\w+):", said, re.MULTILINE))
        if names:
            lines.append(f"{framework}: {', '.join(sorted(names))}")
    return lines


def check_scheduler(environment: Mapping[str, str] = os.environ) -> CheckResult:
    """Return a finding on the batch system."""
    for variable, program, title in SCHEDULERS:
        if environment.get(variable):
            return CheckResult(
                (make_finding("scheduler", f"{title}, in job {environment[variable]}"),)
            )
        if shutil.which(program):
            return CheckResult((make_finding("scheduler", f"{title}, outside of a job"),))
    return CheckResult((make_finding("scheduler", "none"),))
