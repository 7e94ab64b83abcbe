"""Find which GPU every rank has, and the path class between those of two ranks (rank side)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpi4py import MPI

from tuner.base.errors import InputError
from tuner.core.path_classes import NVLINK, PCIE, SAME_GPU
from tuner.runtime import cuda_support

NO_DEVICE_PREFIX = "no CUDA device here: "


def assign_gpus(world: MPI.Intracomm) -> dict[str, Any]:
    """Give every rank one of its host's GPUs, in turn; return provenance; collective.

    `missing` says in one sentence why there is no GPU, `messages` how MPI accesses GPU memory.
    """
    near = world.Split_type(MPI.COMM_TYPE_SHARED, world.rank)
    known: dict[str, str] = {}
    try:
        device = cuda_support.cuda_device()
        device.select(near.rank)
        known = device.provenance()
    except InputError as reason:
        known["missing"] = NO_DEVICE_PREFIX + str(reason).removeprefix("no NVIDIA GPU: ")
    near.Free()
    rows: list[dict[str, str]] = world.allgather(known)
    missing = next((row["missing"] for row in rows if "missing" in row), "")
    if missing and all("missing" in row for row in rows):
        return {"missing": missing}
    staged = "staged through pinned host memory, without points of device memory in flight"
    messages = "direct" if all_send_device_memory(world) else staged
    some = {"missing": f"on some ranks: {missing}"} if missing else {}
    return {"gpus": rows, "messages": messages, **some}


def all_cuda_aware(comm: MPI.Intracomm) -> bool:
    """Return whether MPI accepts device pointers on all ranks; collective."""
    return bool(comm.allreduce(cuda_support.is_cuda_aware(), MPI.LAND))


def all_send_device_memory(comm: MPI.Intracomm) -> bool:
    """Return whether MPI's messages accept device pointers on all ranks; collective."""
    return bool(comm.allreduce(cuda_support.has_cuda_messages(), MPI.LAND))


def all_have_gpu(comm: MPI.Intracomm) -> bool:
    """Return whether all ranks have a device; collective."""
    return bool(comm.allreduce(cuda_support.cuda_device_or_none() is not None, MPI.LAND))


def find_rank_pair(comm: MPI.Intracomm, path_class: str) -> tuple[int, int] | None:
    """Return the first two ranks of one host with this path class between them; collective.

    All ranks need a device. Returns None where there are no two such ranks.
    """
    device = cuda_support.cuda_device()
    buses = comm.allgather(device.pci_bus_id)
    mine = first_pair_of_class(buses, path_class, device.has_nvlink) if comm.rank == 0 else None
    found: tuple[int, int] | None = comm.bcast(mine)
    return found


def first_pair_of_class(
    buses: Sequence[str], path_class: str, linked: Callable[[str, str], bool]
) -> tuple[int, int] | None:
    """Return the first two ranks whose GPUs have this path class between them.

    The GPUs are given by their bus addresses: one GPU, two GPUs joined by NVLink, or any others.
    """
    known: dict[tuple[str, str], str] = {}
    for second, other in enumerate(buses):
        for first, one in enumerate(buses[:second]):
            if (one, other) not in known:
                known[one, other] = _path_class(one, other, linked)
            if known[one, other] == path_class:
                return first, second
    return None


def _path_class(one: str, other: str, linked: Callable[[str, str], bool]) -> str:
    if one == other:
        return SAME_GPU
    return NVLINK if linked(one, other) else PCIE
