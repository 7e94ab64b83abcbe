"""How the command of each launcher is written: words with braces that are filled in at a launch.

    {n} {ppn} {nodes}     ranks in all, ranks per host, hosts
    {hosts}               host1,host2       {slots}  host1:4,host2:4 for four ranks on each
    {program}             the program of the ranks, with all its words and its environment

The program's environment is part of the program: `env NAME=VALUE python ...`. So it reaches every
host whatever the launcher forwards by itself, and the library's settings, which are environment
variables too (`OMPI_MCA_...`, `MPIR_CVAR_...`), go the same way.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import environ

from tuner.base.errors import InputError
from tuner.launch.hosts import Hosts

_BRACES = re.compile(r"\{(\w*)\}")
PROGRAM_FIELD = "{program}"
TEMPLATE_FIELDS = ("n", "ppn", "nodes", "hosts", "slots", "program")


@dataclass(frozen=True)
class LauncherTemplate:
    """The command of a launcher, one word each."""

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> LauncherTemplate:
        """A user's own words or the name of a known launcher; raises InputError naming the flaw."""
        if text in TEMPLATES:
            return TEMPLATES[text]
        try:
            words = tuple(shlex.split(text))
        except ValueError as reason:
            raise InputError(f"--launch {text!r}: {reason}") from None
        unknown = [name for name in _BRACES.findall(text) if name not in TEMPLATE_FIELDS]
        if unknown:
            known = " ".join(f"{{{field}}}" for field in TEMPLATE_FIELDS)
            raise InputError(f"--launch: there is no {{{unknown[0]}}}: use {known}")
        if words.count(PROGRAM_FIELD) != 1:
            known = ", ".join(TEMPLATES)
            raise InputError(
                f"--launch {text!r}: it needs the word {PROGRAM_FIELD} once, such as"
                f" 'mpirun -np {{n}} --host {{slots}} {{program}}', or one of {known}"
            )
        return cls(words)

    @property
    def names_hosts(self) -> bool:
        """Whether the command says which hosts to use; else the launcher must know."""
        return any(f"{{{name}}}" in word for word in self.words for name in ("hosts", "slots"))

    def command(
        self, program: Sequence[str], environment: Mapping[str, str], hosts: Hosts, ppn: int
    ) -> list[str]:
        """The words of one launch of `ppn` ranks on each of `hosts`."""
        fields = {
            "nodes": str(len(hosts.names)),
            "ppn": str(ppn),
            "n": str(ppn * len(hosts.names)),
            "hosts": ",".join(hosts.names),
            "slots": ",".join(f"{name}:{ppn}" for name in hosts.names),
        }
        whole = ["/usr/bin/env", *(f"{k}={v}" for k, v in environment.items()), *program]
        command: list[str] = []
        for word in self.words:
            if word == PROGRAM_FIELD:
                command += whole
            else:
                command.append(_BRACES.sub(lambda match: fields[match[1]], word))
        return command


_OPENMPI = "mpirun {root}--host {slots} --map-by ppr:{ppn}:node -np {n} {program}"
TEMPLATES = {
    "openmpi": LauncherTemplate(
        tuple(_OPENMPI.replace("{root}", "--allow-run-as-root " * (os.geteuid() == 0)).split())
    ),
    "mpich": LauncherTemplate(
        ("mpiexec", "-hosts", "{hosts}", "-ppn", "{ppn}", "-n", "{n}", PROGRAM_FIELD)
    ),
    "srun": LauncherTemplate(
        (
            "srun",
            "--nodes={nodes}",
            "--ntasks={n}",
            "--ntasks-per-node={ppn}",
            "--nodelist={hosts}",
            "--distribution=block",
            "--kill-on-bad-exit=1",
            PROGRAM_FIELD,
        )
    ),
    "jsrun": LauncherTemplate(
        (
            "jsrun",
            "--nrs={nodes}",
            "--rs_per_host=1",
            "--tasks_per_rs={ppn}",
            "--cpu_per_rs=ALL_CPUS",
            "--bind=rs",
            PROGRAM_FIELD,
        )
    ),
}


# What ssh is given by the launchers that use it. Else it waits for minutes for a host that is
# silent. In one word, so that programs in its place can tell that it is an option.
SSH_TIMEOUT_OPTION = "-oConnectTimeout=20"
# beginnings of variables by which something else than ssh may start the ranks
OTHER_LAUNCHER_PREFIXES = (
    "SLURM_JOB",
    "LSB_",
    "PBS_",
    "PE_HOSTFILE",
    "HYDRA_",
    "OMPI_MCA_plm_",
    "PRTE_MCA_plm_",
)


def connection_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what makes Open MPI's and MPICH's launchers give up a host that cannot be reached.

    In a job of Slurm: what lets two launches that take turns share the job's cores.
    """
    if environ.get("SLURM_JOB_ID"):
        return {"SLURM_OVERLAP": "1"}
    if any(name.startswith(OTHER_LAUNCHER_PREFIXES) for name in environ):
        return {}
    return {
        "PRTE_MCA_plm_ssh_args": SSH_TIMEOUT_OPTION,
        "HYDRA_LAUNCHER_EXTRA_ARGS": SSH_TIMEOUT_OPTION,
    }


def settings_environment(library: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The library's settings as environment variables."""
    prefix = "OMPI_MCA_" if library == "openmpi" else ""
    return {prefix + name: str(value) for name, value in settings.items()}


def default_template(library: str, environment: Mapping[str, str] = environ) -> LauncherTemplate:
    """The batch system's launcher inside its jobs, where there is one; else the library's own."""
    return batch_template(environment) or LauncherTemplate.parse(library)


def batch_template(environment: Mapping[str, str] = environ) -> LauncherTemplate | None:
    """Return the batch system's launcher inside its jobs; None where there is none."""
    for variable, name in (("SLURM_JOB_ID", "srun"), ("LSB_JOBID", "jsrun")):
        if environment.get(variable) and shutil.which(name):
            return LauncherTemplate.parse(name)
    return None
