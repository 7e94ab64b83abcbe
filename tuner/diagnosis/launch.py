"""Starting ranks: the launcher, a trial on this computer, a trial on several hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.base.errors import ProbeError, TunerError, UnendedError, quoted
from tuner.diagnosis.findings import Examined, Problem, found
from tuner.launch import Hosts, Installation, Launcher, Template
from tuner.launch.executables import launcher_of, version_of
from tuner.launch.rank_program import rank_program

LIMIT = 20.0  # seconds after which ranks that have not answered count as hung
RANKS = 2
TRIAL = rank_program("tuner.rank_programs.trial", "multiple")
ALIKE = {  # what all ranks must have alike: what they tell, and how it is called
    "library": "MPI library",
    "mpi4py": "version of mpi4py",
    "python": "version of Python",
    "numpy": "version of numpy",
    "package": "files of tuner",
    "machine": "processor architecture",
}


def launcher(place: Installation, *, needed: bool) -> tuple[Path | None, Examined]:
    """Find the library's launcher; None where there is none of the same library and version.

    needed      whether nothing can be measured without it
    """
    try:
        path = launcher_of(place)
    except ProbeError as reason:
        text, _, remedy = str(reason).rpartition(": ")
        return None, Examined((found("launcher", "none"),), (Problem(text, remedy, fatal=needed),))
    version = version_of(path, place.base)
    told = f"{path} ({version})" if version else str(path)
    return path, Examined((found("launcher", told),))


def trial(place: Installation) -> Examined:
    """Start two ranks of this computer and see whether they meet."""
    launch = Launcher(place.base, place.python)
    try:
        run = launch.run(RANKS, TRIAL, timeout=LIMIT)
        told = _answer(run.stdout)
    except TunerError as reason:
        return Examined((found("ranks", "do not start"),), (_failed(launch, reason),))
    if told["size"] != RANKS:
        return Examined((found("ranks", "do not meet"),), (_apart(launch, place),))
    lines = f"{RANKS} start and meet; threads: {told['level']} when all are asked for"
    return Examined((found("ranks", lines),))


def hosts(place: Installation, there: Hosts, template: Template | None) -> Examined:
    """Start a rank on every host and compare what they have."""
    launch, count = Launcher(place.base, place.python, template), len(there.names)
    try:
        run = launch.run(count, TRIAL, hosts=there, ppn=1, timeout=LIMIT + count / 4)
        told = _answer(run.stdout)
    except TunerError as reason:
        return Examined((found("hosts", "do not answer"),), (_failed(launch, reason),))
    if told["size"] != count:
        return Examined((found("hosts", "do not meet"),), (_apart(launch, place),))
    ranks = told["ranks"]
    names = list(dict.fromkeys(rank["host"] for rank in ranks))
    findings = [found("hosts", f"{len(names)} answer: {', '.join(names[:8])}")]
    problems = [problem for key in ALIKE if (problem := _unlike(key, ranks)) is not None]
    if len(names) < count:
        problems.append(
            Problem(
                f"{count} hosts were named, but ranks came up on {len(names)} of them",
                "look at the names of --hosts and at what the launcher makes of them",
                fatal=True,
            )
        )
    return Examined(tuple(findings), tuple(problems))


def _unlike(key: str, ranks: Sequence[Mapping[str, Any]]) -> Problem | None:
    """Say where the hosts differ in something that must be the same."""
    by_value: dict[str, list[str]] = {}
    for rank in ranks:
        by_value.setdefault(rank[key], []).append(rank["host"])
    if len(by_value) < 2:
        return None
    listed = "; ".join(
        f"{value[:60]} on {', '.join(names[:3])}" for value, names in by_value.items()
    )
    return Problem(
        f"the hosts do not have the same {ALIKE[key]}: {listed}",
        "install the same on all of them, or use a directory that all hosts share",
        fatal=True,
    )


def _answer(stdout: str) -> dict[str, Any]:
    """Return what rank 0 printed; raises ProbeError where it printed nothing."""
    lines = [line for line in stdout.splitlines() if line.startswith('{"size"')]
    if not lines:
        raise ProbeError("the ranks ended without a word")
    # Ranks that do not meet are ranks 0 of their own: the first answer says enough, and another may
    # follow on its line.
    told: dict[str, Any]
    try:
        told, _ = json.JSONDecoder().raw_decode(lines[0])
    except ValueError:
        raise ProbeError(f"the ranks said something unclear: {quoted(lines[0])}") from None
    return told


def _failed(launch: Launcher, reason: TunerError) -> Problem:
    text, _, remedy = str(reason).rpartition(": ")
    if isinstance(reason, UnendedError):
        return Problem(
            f"MPI did not start {RANKS} ranks within {LIMIT:g} s",
            "it may wait for a network: try `OMPI_MCA_btl=self,sm OMPI_MCA_pml=ob1` (Open MPI 4:"
            " self,vader) or `FI_PROVIDER=tcp` (MPICH, Intel MPI), and run `tuner doctor` again",
            fatal=True,
        )
    if not text:
        text, remedy = (
            str(reason),
            f"run `{launch.python} -m mpi4py.bench helloworld` by its launcher",
        )
    return Problem(text, remedy, fatal=True)


def _apart(launch: Launcher, place: Installation) -> Problem:
    name = str(launch.executable) if launch.template is None else launch.template.words[0]
    remedy = "put the launcher of that library first on PATH"
    if Path(name).name == "srun":
        remedy = "set `export SLURM_MPI_TYPE=pmix`, or pmi2 for MPICH, whichever Slurm has"
    return Problem(
        f"ranks that {name} starts do not know one another: it belongs to another MPI than"
        f" {place.libmpi}",
        remedy,
        fatal=True,
    )
