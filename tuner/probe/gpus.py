"""Which GPU every rank has, and what lies between those of two ranks (rank side)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpi4py import MPI

from tuner.base.errors import InputError
from tuner.core.path_classes import NVLINK, PCIE, SAME_GPU
from tuner.runtime import device_protocol

NO_DEVICE_PREFIX = "no CUDA device here: "


def assign_gpus(world: MPI.Intracomm) -> dict[str, Any]:
    """Give every rank one of its host's GPUs, in turn; what there is, for provenance; collective.

    `missing_requirement` says in one sentence why there is none, `messages` how MPI gets at a
    GPU's memory.
    """
    near = world.Split_type(MPI.COMM_TYPE_SHARED, world.rank)
    known: dict[str, str] = {}
    try:
        device = device_protocol.cuda_device()
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
    """Whether MPI takes device pointers on all ranks; collective."""
    return bool(comm.allreduce(device_protocol.is_cuda_aware(), MPI.LAND))


def all_send_device_memory(comm: MPI.Intracomm) -> bool:
    """Whether MPI's messages take device pointers on all ranks; collective."""
    return bool(comm.allreduce(device_protocol.has_cuda_messages(), MPI.LAND))


def all_have_gpu(comm: MPI.Intracomm) -> bool:
    """Whether all ranks have a device; collective."""
    return bool(comm.allreduce(device_protocol.cuda_device_or_none() is not None, MPI.LAND))


def find_rank_pair(comm: MPI.Intracomm, path_class: str) -> tuple[int, int] | None:
    """The first two ranks of one host between which lies this class; collective.

    All have a device. None where no two ranks are so.
    """
    device = device_protocol.cuda_device()
    buses = comm.allgather(device.pci_bus_id)
    mine = first_pair_of_class(buses, path_class, device.has_nvlink) if comm.rank == 0 else None
    found: tuple[int, int] | None = comm.bcast(mine)
    return found


def first_pair_of_class(
    buses: Sequence[str], path_class: str, linked: Callable[[str, str], bool]
) -> tuple[int, int] | None:
    """By the addresses of the ranks' GPUs: one GPU, two joined by NVLink, or all else."""
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
