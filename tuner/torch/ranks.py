"""The ranks of MPI that the processes of `torch.distributed` are."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from tuner.base.errors import InputError
from tuner.runtime.dynamic_rules import enable_dynamic_rules
from tuner.torch import process_end
from tuner.torch.joining import has_launcher, join_ranks

_PROBE_ADDRESS = ("192.0.2.1", 9)  # nothing is sent there: it selects a network interface


def start_under_launcher() -> None:
    """Start MPI and set the variables from which PyTorch reads the ranks; collective.

    Variables that are set already stay. Without a launcher of MPI, MPI starts with the process
    group, and a program that is alone has one rank.
    """
    found: dict[str, Any] = {}
    if _is_running() or has_launcher():
        found = _found_ranks()
    elif "WORLD_SIZE" not in os.environ:
        address, port = _free_address(alone=True)
        found = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
        found |= {"MASTER_ADDR": address, "MASTER_PORT": port}
    for name, value in found.items():
        os.environ.setdefault(name, str(value))


def start_with_store(store: Any, rank: int, size: int) -> None:
    """Make this process rank `rank` of `size` ranks of MPI; collective.

    Raises InputError where MPI has other ranks than PyTorch, or too little support of threads.
    """
    if not _is_running() and not has_launcher():
        if size > 1:
            join_ranks(store, rank, size)
        _initialize()
    _check_ranks(rank, size)


def check_started(rank: int, size: int) -> None:
    """Check that MPI runs with this process as rank `rank` of `size`; raises InputError."""
    if not _is_running() and not has_launcher():
        raise InputError(
            "the first process group of the backend 'tuner' starts MPI and needs all ranks: make"
            " one of them first, by init_process_group or by new_group without ranks"
        )
    _check_ranks(rank, size)


def _check_ranks(rank: int, size: int) -> None:
    mpi = import_mpi()
    world = mpi.COMM_WORLD
    if (world.rank, world.size) != (rank, size):
        raise InputError(
            f"MPI has rank {world.rank} of {world.size} where PyTorch has rank {rank} of {size}:"
            " start the program by mpirun, or by torchrun and let it import mpi4py.MPI after"
            " init_process_group"
        )
    if mpi.Query_thread() != mpi.THREAD_MULTIPLE:
        raise InputError(
            "the backend 'tuner' needs MPI_THREAD_MULTIPLE, which mpi4py asks for unless the"
            " program sets mpi4py.rc.thread_level"
        )


def _found_ranks() -> dict[str, Any]:
    """Return the variables of PyTorch by the ranks of MPI; collective."""
    mpi = import_mpi()
    world = mpi.COMM_WORLD
    node = world.Split_type(mpi.COMM_TYPE_SHARED)
    address, port = world.bcast(_free_address(alone=node.size == world.size))
    found = {
        "RANK": world.rank,
        "WORLD_SIZE": world.size,
        "LOCAL_RANK": node.rank,
        "LOCAL_WORLD_SIZE": node.size,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }
    node.Free()
    return found


def import_mpi() -> Any:
    """Return `mpi4py.MPI`; importing it starts MPI."""
    with enable_dynamic_rules():
        from mpi4py import MPI
    return MPI


def _is_running() -> bool:
    """Return whether the program has started MPI."""
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and module.Is_initialized()


def _initialize() -> None:
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    with enable_dynamic_rules():
        from mpi4py import MPI

        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    process_end.finalize_by(lambda: None if MPI.Is_finalized() else MPI.Finalize())


def _free_address(*, alone: bool) -> tuple[str, int]:
    """Return an address of this host and a port that nobody listens at.

    alone       whether all ranks are on this host
    """
    with socket.create_server(("", 0)) as server:
        port: int = server.getsockname()[1]
    if alone:
        return "127.0.0.1", port
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_PROBE_ADDRESS)
            return probe.getsockname()[0], port
        except OSError:  # no default route
            return socket.gethostname(), port
