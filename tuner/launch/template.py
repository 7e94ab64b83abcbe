"""Templates of launcher commands: words with fields in braces that are filled in at a launch.

    {n} {ppn} {nodes}     total number of ranks, ranks per host, number of hosts
    {hosts}               host1,host2       {slots}  host1:4,host2:4 for four ranks on each
    {program}             the program of the ranks, with its arguments and its environment

The program's environment is part of the program: `env NAME=VALUE python ...`. So it reaches every
host, whatever the launcher forwards by itself. The library's settings are environment variables,
too (`OMPI_MCA_...`, `MPIR_CVAR_...`), and are passed in the same way.
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
from tuner.mpi_libraries.products import MPICH, OPENMPI
from tuner.mpi_libraries.profiles import PROFILES, LibraryProfile

_BRACES = re.compile(r"\{(\w*)\}")
PROGRAM_FIELD = "{program}"
TEMPLATE_FIELDS = ("n", "ppn", "nodes", "hosts", "slots", "program")


@dataclass(frozen=True)
class LauncherTemplate:
    """The command template of a launcher, as a list of words."""

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> LauncherTemplate:
        """Parse a user's command, or return the template of a known launcher by name.

        Raises InputError for an invalid command.
        """
        if text in TEMPLATES:
            return TEMPLATES[text]
        try:
            words = tuple(shlex.split(text))
        except ValueError as reason:
            raise InputError(f"--launcher {text!r}: {reason}") from None
        unknown = [name for name in _BRACES.findall(text) if name not in TEMPLATE_FIELDS]
        if unknown:
            known = " ".join(f"{{{field}}}" for field in TEMPLATE_FIELDS)
            raise InputError(f"--launcher: there is no {{{unknown[0]}}}: use {known}")
        if words.count(PROGRAM_FIELD) != 1:
            known = ", ".join(TEMPLATES)
            raise InputError(
                f"--launcher {text!r}: it needs the word {PROGRAM_FIELD} once, such as"
                f" 'mpirun -np {{n}} --host {{slots}} {{program}}', or one of {known}"
            )
        return cls(words)

    def command(
        self, program: Sequence[str], environment: Mapping[str, str], hosts: Hosts, ppn: int
    ) -> list[str]:
        """Return the words of the command that starts `ppn` ranks on each of `hosts`."""
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


def library_template(profile: LibraryProfile) -> LauncherTemplate:
    """Return the template of a library's own launcher."""
    root = profile.root_option if os.geteuid() == 0 else ()
    ranks = (profile.ranks_option, "{n}")
    return LauncherTemplate(
        (profile.launcher_names[0], *root, *profile.hosts_options, *ranks, PROGRAM_FIELD)
    )


TEMPLATES = {
    **{name: library_template(PROFILES[name]) for name in (OPENMPI, MPICH)},
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


# An option for launchers that use ssh, which otherwise waits for minutes for a silent host. It is
# one word, so that programs that replace ssh can recognise it as an option.
SSH_TIMEOUT_OPTION = "-oConnectTimeout=20"
# Prefixes of variables that show that something other than ssh may start the ranks.
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
    """Return variables that make Open MPI's and MPICH's launchers give up on unreachable hosts.

    In a Slurm job, return the variable that lets two alternating launches share the job's cores.
    """
    if environ.get("SLURM_JOB_ID"):
        return {"SLURM_OVERLAP": "1"}
    if any(name.startswith(OTHER_LAUNCHER_PREFIXES) for name in environ):
        return {}
    return {
        "PRTE_MCA_plm_ssh_args": SSH_TIMEOUT_OPTION,
        "HYDRA_LAUNCHER_EXTRA_ARGS": SSH_TIMEOUT_OPTION,
    }


def default_template(library: str, environment: Mapping[str, str] = environ) -> LauncherTemplate:
    """Return the batch system's launcher inside its jobs; else the library's own."""
    return batch_template(environment) or LauncherTemplate.parse(library)


def batch_template(environment: Mapping[str, str] = environ) -> LauncherTemplate | None:
    """Return the batch system's launcher inside its jobs; None outside or without one."""
    for variable, name in (("SLURM_JOB_ID", "srun"), ("LSB_JOBID", "jsrun")):
        if environment.get(variable) and shutil.which(name):
            return LauncherTemplate.parse(name)
    return None
