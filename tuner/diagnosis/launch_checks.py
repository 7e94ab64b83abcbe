"""Checks that start ranks: the launcher, a trial on this computer, a trial on several hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.base.errors import LaunchTimeoutError, ProbeError, TunerError, shortened_repr
from tuner.diagnosis.findings import CheckResult, SetupProblem, make_finding
from tuner.launch import Hosts, Installation, Launcher, LauncherTemplate
from tuner.launch.executables import find_launcher_executable, launcher_version
from tuner.launch.rank_program import rank_arguments

RANKS_TIMEOUT_S = 20.0  # after which ranks that have not answered count as hung
TRIAL_RANKS = 2
TRIAL_PROGRAM = rank_arguments("tuner.rank_programs.trial", "multiple")
REQUIRED_EQUAL = {  # what must be the same on all ranks: key of their answers -> what it is
    "library": "MPI library",
    "mpi4py": "version of mpi4py",
    "python": "version of Python",
    "numpy": "version of numpy",
    "package": "files of tuner",
    "machine": "processor architecture",
}


def check_launcher(
    installation: Installation, *, is_required: bool
) -> tuple[Path | None, CheckResult]:
    """Find the library's launcher; None where there is none of the same library and version.

    is_required     whether nothing can be measured without it
    """
    try:
        path = find_launcher_executable(installation)
    except ProbeError as reason:
        text, _, remedy = str(reason).rpartition(": ")
        return None, CheckResult(
            (make_finding("launcher", "none"),), (SetupProblem(text, remedy, fatal=is_required),)
        )
    version = launcher_version(path, installation.base)
    told = f"{path} ({version})" if version else str(path)
    return path, CheckResult((make_finding("launcher", told),))


def check_local_ranks(installation: Installation) -> CheckResult:
    """Start two ranks on this computer and check that they communicate."""
    launch = Launcher(installation.base, installation.python)
    try:
        run = launch.run(TRIAL_RANKS, TRIAL_PROGRAM, timeout=RANKS_TIMEOUT_S)
        told = _parse_answer(run.stdout)
    except TunerError as reason:
        return CheckResult(
            (make_finding("ranks", "do not start"),), (_launch_problem(launch, reason),)
        )
    if told["size"] != TRIAL_RANKS:
        return CheckResult(
            (make_finding("ranks", "do not meet"),),
            (_separate_ranks_problem(launch, installation),),
        )
    lines = f"{TRIAL_RANKS} start and meet; threads: {told['level']} when all are asked for"
    return CheckResult((make_finding("ranks", lines),))


def check_hosts(
    installation: Installation, hosts: Hosts, template: LauncherTemplate | None
) -> CheckResult:
    """Start a rank on every host and compare what they have."""
    launch, count = Launcher(installation.base, installation.python, template), len(hosts.names)
    try:
        run = launch.run(
            count, TRIAL_PROGRAM, hosts=hosts, ppn=1, timeout=RANKS_TIMEOUT_S + count / 4
        )
        told = _parse_answer(run.stdout)
    except TunerError as reason:
        return CheckResult(
            (make_finding("hosts", "do not answer"),), (_launch_problem(launch, reason),)
        )
    if told["size"] != count:
        return CheckResult(
            (make_finding("hosts", "do not meet"),),
            (_separate_ranks_problem(launch, installation),),
        )
    ranks = told["ranks"]
    names = list(dict.fromkeys(rank["host"] for rank in ranks))
    findings = [make_finding("hosts", f"{len(names)} answer: {', '.join(names[:8])}")]
    problems = [
        problem for key in REQUIRED_EQUAL if (problem := _find_difference(key, ranks)) is not None
    ]
    if len(names) < count:
        problems.append(
            SetupProblem(
                f"{count} hosts were named, but ranks came up on {len(names)} of them",
                "look at the names of --hosts and at what the launcher makes of them",
                fatal=True,
            )
        )
    return CheckResult(tuple(findings), tuple(problems))


def _find_difference(key: str, ranks: Sequence[Mapping[str, Any]]) -> SetupProblem | None:
    """Return the problem if the hosts differ in something that must be the same, else None."""
    by_value: dict[str, list[str]] = {}
    for rank in ranks:
        by_value.setdefault(rank[key], []).append(rank["host"])
    if len(by_value) < 2:
        return None
    listed = "; ".join(
        f"{value[:60]} on {', '.join(names[:3])}" for value, names in by_value.items()
    )
    return SetupProblem(
        f"the hosts do not have the same {REQUIRED_EQUAL[key]}: {listed}",
        "install the same on all of them, or use a directory that all hosts share",
        fatal=True,
    )


def _parse_answer(stdout: str) -> dict[str, Any]:
    """Return what rank 0 printed; raises ProbeError where it printed nothing."""
    lines = [line for line in stdout.splitlines() if line.startswith('{"size"')]
    if not lines:
        raise ProbeError("the ranks ended without any output")
    # Ranks that do not communicate are each rank 0 of their own job: the first answer says enough,
    # and another may follow on its line.
    told: dict[str, Any]
    try:
        told, _ = json.JSONDecoder().raw_decode(lines[0])
    except ValueError:
        raise ProbeError(f"the ranks said something unclear: {shortened_repr(lines[0])}") from None
    return told


def _launch_problem(launch: Launcher, reason: TunerError) -> SetupProblem:
    text, _, remedy = str(reason).rpartition(": ")
    if isinstance(reason, LaunchTimeoutError):
        return SetupProblem(
            f"MPI did not start {TRIAL_RANKS} ranks within {RANKS_TIMEOUT_S:g} s",
            "it may wait for a network: try `OMPI_MCA_btl=self,sm OMPI_MCA_pml=ob1` (Open MPI 4:"
            " self,vader) or `FI_PROVIDER=tcp` (MPICH, Intel MPI), and run `tuner doctor` again",
            fatal=True,
        )
    if not text:
        text = str(reason)
        remedy = f"run `{launch.python} -m mpi4py.bench helloworld` by its launcher"
    return SetupProblem(text, remedy, fatal=True)


def _separate_ranks_problem(launch: Launcher, installation: Installation) -> SetupProblem:
    name = str(launch.executable) if launch.template is None else launch.template.words[0]
    remedy = "put the launcher of that library first on PATH"
    if Path(name).name == "srun":
        remedy = "set `export SLURM_MPI_TYPE=pmix`, or pmi2 for MPICH, whichever Slurm has"
    return SetupProblem(
        f"ranks that {name} starts do not know one another: it belongs to another MPI than"
        f" {installation.libmpi}",
        remedy,
        fatal=True,
    )
