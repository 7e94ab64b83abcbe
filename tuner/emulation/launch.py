"""Starting programs on emulated hosts: any program on one host, ranks of MPI over all hosts.

From outside the cluster, put `launch_command` before a program and its arguments, for example

    command = launch_command(cluster, "openmpi", mpirun, ranks=8)
    subprocess.run([*command, "python", "program.py"])

`run` starts a command on the first host, with hosts files in its environment, so that there a bare
`mpirun -n 8 ...` or `mpiexec -n 8 ...` reaches all hosts.

Do not start a program that does not use MPI and ends at once (`hostname`) with Open MPI's mpirun:
its daemons then often miss the end and wait for ever.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from tuner.base import processes
from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError
from tuner.emulation import build_c
from tuner.emulation.cluster import EmulatedCluster
from tuner.launch import Hosts, LauncherTemplate
from tuner.mpi_libraries.profiles import profile_of

RUN_VARIABLE = "TUNER_LAB_RUN"  # identifies the processes of one run


def host_command(cluster: EmulatedCluster, host: str) -> list[str]:
    """Return the words that run a program on one host; raises InputError for an unknown host."""
    if host not in cluster.network.hosts:
        raise InputError(
            f"the cluster {cluster.cluster_id} has no host {host}; it has"
            f" {', '.join(cluster.network.hosts)}"
        )
    return [str(build_c.build_programs() / "netns_exec"), "--cluster", str(cluster.directory), host]


def launch_command(
    cluster: EmulatedCluster, library: str, launcher: Path, ranks: int, ppn: int = 1
) -> list[str]:
    """Return the words that start `ranks` ranks, `ppn` on each host in turn, hosts in order.

    library     "openmpi" or "mpich", whose mpirun or mpiexec `launcher` is

    Raises InputError when there are too few hosts.
    """
    hosts = cluster.network.hosts[: -(-ranks // ppn)]
    if ranks > len(hosts) * ppn:
        raise InputError(
            f"{ranks} ranks, {ppn} on each host, need more hosts than the"
            f" {len(hosts)} of the cluster {cluster.cluster_id}"
        )
    first = [*host_command(cluster, hosts[0]), str(launcher)]
    profile = profile_of(library)
    placed = LauncherTemplate(profile.hosts_options).command((), {}, Hosts(tuple(hosts)), ppn)
    return [*first, *placed, profile.ranks_option, str(ranks)]


def run(cluster: EmulatedCluster, command: Sequence[str], *, ppn: int = 1, timeout: float) -> int:
    """Run a command on the first host of an emulated cluster that is up and return its exit status.

    The status is 128 + N for signal N. When the command has ended, however it ended, or after
    `timeout` seconds, everything that it started on any host is ended too. Raises InputError on
    timeout.
    """
    mark = uuid.uuid4().hex
    variables = {**os.environ, RUN_VARIABLE: mark, **_hosts_files(cluster, ppn)}
    process = subprocess.Popen(
        [*host_command(cluster, cluster.network.hosts[0]), *command], env=variables
    )
    try:
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        raise InputError(
            f"{command[0]} did not end within {timeout:g} s and was ended; allow more"
            " with --timeout"
        ) from None
    finally:
        processes.terminate(
            lambda: processes.pids_with_variable(RUN_VARIABLE, mark) - _own_zombie(process)
        )
    return status if status >= 0 else 128 - status


def _own_zombie(process: subprocess.Popen[bytes]) -> set[int]:
    """Return the process id of our own child once it has ended and is only waited for."""
    return {process.pid} if process.poll() is not None else set()


def _hosts_files(cluster: EmulatedCluster, ppn: int) -> dict[str, str]:
    """Write hosts files with `ppn` slots per host; return variables that name them to launchers."""
    forms = {
        "PRTE_MCA_prte_default_hostfile": "{} slots={}",
        "OMPI_MCA_orte_default_hostfile": "{} slots={}",  # Open MPI 4
        "HYDRA_HOST_FILE": "{}:{}",
    }
    named = {}
    for variable, form in forms.items():
        path = cluster.directory / f"{variable.lower()}.{ppn}"
        lines = (form.format(host, ppn) for host in cluster.network.hosts)
        write_atomically(path, "".join(f"{line}\n" for line in lines))
        named[variable] = str(path)
    return named
