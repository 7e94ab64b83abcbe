"""The environment variables of programs on the hosts of an emulated cluster.

With them the launchers of Open MPI and MPICH reach the other hosts through `netns_exec`, MPI uses
the emulated network and nothing else, and ranks sleep while they wait. A bare `mpirun` on a host
then behaves as on a cluster whose scheduler provides the list of hosts.
"""

from __future__ import annotations

from pathlib import Path


def host_environment(directory: Path, program_directory: Path) -> dict[str, str]:
    """Return the variables, the same for all hosts.

    directory           the cluster's directory
    program_directory   where the compiled programs are
    """
    enter = str(program_directory / "netns_exec")
    return {
        "TUNER_EMULATED_CLUSTER": str(directory),
        "LD_PRELOAD": str(program_directory / "netns_hold.so"),
        **openmpi_variables(enter),
        **mpich_variables(enter),
    }


def openmpi_variables(remote_shell: str) -> dict[str, str]:
    """Return the variables for Open MPI (OMPI_MCA_...) and PRRTE, its launcher since 5 (PRTE_...).

    Those for the launcher of Open MPI 4 have no effect on PRRTE.
    """
    return {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_plm_ssh_agent": remote_shell,
        "PRTE_MCA_prte_if_include": "eth0",
        "PRTE_MCA_prte_tmpdir_base": "/dev/shm",  # the host's own, gone with the cluster
        "PRTE_MCA_hwloc_default_binding_policy": "none",  # the hosts share the cores
        "OMPI_MCA_plm_rsh_agent": remote_shell,
        "OMPI_MCA_oob_tcp_if_include": "eth0",
        "OMPI_MCA_orte_tmpdir_base": "/dev/shm",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_pml": "ob1",
        # Leaves tcp, self and shared memory, which is `vader` in Open MPI 4 and `sm` in Open MPI 5.
        "OMPI_MCA_btl": "^ofi,openib,portals4,smcuda,uct,ugni,usnic",
        "OMPI_MCA_btl_tcp_if_include": "eth0",
        "OMPI_MCA_mpi_yield_when_idle": "1",  # netns_hold.c turns this into a sleep
    }


def mpich_variables(remote_shell: str) -> dict[str, str]:
    """Return the variables for MPICH (MPIR_CVAR_...), Hydra (HYDRA_...) and libfabric (FI_...)."""
    return {
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": remote_shell,
        "HYDRA_IFACE": "eth0",
        "HYDRA_BINDING": "none",
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": "eth0",
        "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",  # netns_hold.c turns this into a sleep
        "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "1",
    }
