"""Find which ranks run where, open connections, and make the communicators of a plan's rank sets.

All of it runs inside the ranks.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from mpi4py import MPI

from tuner.base.errors import ProbeError
from tuner.base.units import plural
from tuner.core.path_classes import CYCLIC
from tuner.probe.clock import clock_identity
from tuner.probe.probe_plan import ON_ONE_SOCKET, ON_TWO_SOCKETS, ProbePlan, RankSet


@dataclass(frozen=True)
class RankLayout:
    """The ranks of the world by host.

    hosts       names that the hosts give themselves, in the order of their lowest ranks
    ranks       of each host, ascending
    sockets     socket of each of these ranks, -1 if it may use several; empty if not detected
    """

    hosts: tuple[str, ...]
    ranks: tuple[tuple[int, ...], ...]
    sockets: tuple[tuple[int, ...], ...] = ()

    @property
    def host_of_rank(self) -> list[int]:
        numbers = [0] * sum(map(len, self.ranks))
        for host, ranks in enumerate(self.ranks):
            for rank in ranks:
                numbers[rank] = host
        return numbers

    def select_ranks(self, rank_set: RankSet) -> list[int]:
        """Return the ranks of a rank set, host by host, or cyclically, local rank by local rank.

        In cyclic order ranks 2i and 2i+1 are on consecutive hosts. Empty where two ranks on
        different sockets are asked for and the host has none.
        """
        nodes, ppn, first, hosts, manner = rank_set
        numbers = hosts or range(first, first + nodes)
        if manner in (ON_ONE_SOCKET, ON_TWO_SOCKETS):
            sockets = self.sockets[first] if self.sockets else ()
            return [
                self.ranks[first][local] for local in socket_pair(sockets, manner == ON_TWO_SOCKETS)
            ]
        if manner == CYCLIC:
            return [self.ranks[host][local] for local in range(ppn) for host in numbers]
        return [self.ranks[host][local] for host in numbers for local in range(ppn)]


def socket_pair(sockets: Sequence[int], cross_socket: bool) -> tuple[int, ...]:
    """Return two local ranks on different sockets or on one socket.

    Without any on different sockets the result is empty; without any on one socket it is the first
    two.

    sockets     of each local rank, -1 where it is not bound to one
    """
    pairs = combinations(range(len(sockets)), 2)
    if cross_socket:
        return next((p for p in pairs if -1 < sockets[p[0]] != sockets[p[1]] > -1), ())
    return next((p for p in pairs if sockets[p[0]] == sockets[p[1]]), (0, 1))


def socket_of(cores: Collection[int], system: Path = Path("/sys/devices/system/cpu")) -> int:
    """Return the socket of all these cores; -1 for several, or if the kernel does not say."""
    files = [system / f"cpu{core}" / "topology" / "physical_package_id" for core in cores]
    found = {file.read_text(encoding="ascii").strip() for file in files if file.is_file()}
    return int(found.pop()) if len(found) == 1 else -1


def detect_layout(world: MPI.Intracomm, plan: ProbePlan) -> RankLayout:
    """Return which ranks share memory; collective. Raise ProbeError if it differs from the plan.

    For a plan of this computer alone all ranks are taken to be on one host.
    """
    if not plan.hosts:
        return RankLayout((MPI.Get_processor_name(),), (tuple(range(world.size)),))
    if world.size == 1 < plan.ranks:
        raise ProbeError(
            "the launcher started every rank as a program of its own, so it and the MPI library do"
            " not match: give --launcher the launcher of that library; for srun, export"
            " SLURM_MPI_TYPE=pmix (Open MPI) or SLURM_MPI_TYPE=pmi2 (MPICH) first"
        )
    near = world.Split_type(MPI.COMM_TYPE_SHARED, world.rank)
    lowest = near.allreduce(world.rank, MPI.MIN)
    near.Free()
    everyone = world.allgather((lowest, MPI.Get_processor_name()))
    leaders = sorted({leader for leader, _ in everyone})
    ranks = tuple(
        tuple(rank for rank, (leader, _) in enumerate(everyone) if leader == one) for one in leaders
    )
    on = world.allgather(socket_of(os.sched_getaffinity(0)))
    sockets = tuple(tuple(on[rank] for rank in host) for host in ranks)
    found = RankLayout(tuple(everyone[leader][1] for leader in leaders), ranks, sockets)
    sizes = [len(ranks) for ranks in found.ranks]
    if sizes != [plan.ppn] * len(plan.hosts):
        raise ProbeError(
            f"the launcher started {_describe_counts(sizes)}; {plan.ppn} on each of"
            f" {len(plan.hosts)} hosts were asked for: check --launcher, --hosts and --ppn"
        )
    return found


def _describe_counts(sizes: list[int]) -> str:
    each = sorted(set(sizes))
    return f"{' or '.join(map(str, each))} ranks on each of {plural(len(sizes), 'host')}"


def open_connections(world: MPI.Intracomm) -> None:
    """Open the first connections in one direction; to be called before all other communication.

    Open MPI polls its sockets whenever it waits, if it counts a connection, else every 10 ms. If
    two ranks connect to each other at once, one of them may count none (decision 0016). Distances
    are powers of two: every rank then has a partner on another host, if hosts have equally many
    ranks.
    """
    empty, distance = np.zeros(0, np.uint8), 1
    while distance < world.size:
        if world.rank + distance < world.size:
            world.Send(empty, world.rank + distance)
        if world.rank >= distance:
            world.Recv(empty, world.rank - distance)
        distance *= 2


def is_oversubscribed(comm: MPI.Intracomm) -> bool:
    """Return whether some computer has fewer cores than ranks of `comm`; collective."""
    everyone = comm.allgather((clock_identity(), os.sched_getaffinity(0)))
    for name in {name for name, _ in everyone}:
        cores = [allowed for other, allowed in everyone if other == name]
        if len(cores) > len(set().union(*cores)):
            return True
    return False


def split_by_rank_group(
    world: MPI.Intracomm, rank_groups: list[list[int]]
) -> tuple[int, MPI.Intracomm]:
    """Return the number of this rank's group and the group's communicator; collective.

    Groups are lists of ranks that do not overlap. A rank of no group gets -1 and COMM_NULL.
    """
    mine = next((number for number, ranks in enumerate(rank_groups) if world.rank in ranks), -1)
    order = rank_groups[mine].index(world.rank) if mine >= 0 else 0
    comm = world.Split(mine if mine >= 0 else MPI.UNDEFINED, order)
    return mine, MPI.Intracomm(comm)


def measure_ring(comm: MPI.Intracomm, nbytes: int, calls: int) -> float:
    """Return the least seconds in which every rank passes a message to the next, slowest rank."""
    send, receive = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    taken = []
    for _ in range(calls + 2):
        comm.Barrier()
        begin = MPI.Wtime()
        comm.Sendrecv(send, (comm.rank + 1) % comm.size, 0, receive, (comm.rank - 1) % comm.size, 0)
        taken.append(MPI.Wtime() - begin)
    return float(comm.allreduce(min(taken[2:]), MPI.MAX))
