"""Groups of ranks side by side, and their calls."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.schedule import Schedule
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.machines.loader import machine_from_record
from tuner.prediction.call_predictor import CallPredictor
from tuner.topology import HOST, Placement
from tuner.training.groups import Call, Group, _own_schedule, _side_by_side, even_group

PAIRWISE = AlgorithmChoice("pairwise", runner=SCHEDULE)
FLAT = machine_from_record({"name": "x", "nodes": 12, "latency": "1us", "bandwidth": "1GB/s"})
PREDICTOR = CallPredictor.of_machine(Placement.block(FLAT.topology, 1), FLAT.calibration, HOST)


def replay(schedule: Schedule, p: int) -> list[list[object]]:
    """Return what the chunks of each rank hold in the end; chunk c of rank r begins as (r, c)."""
    held: list[list[object]] = [
        [(rank, chunk) for chunk in range(2 * schedule.n_chunks)] for rank in range(p)
    ]
    for step in schedule.rounds():
        before = [list(chunks) for chunks in held]
        for i in range(len(step.src)):
            for k in range(int(step.count[i])):
                held[step.dst[i]][step.dst_chunk[i] + k] = before[step.src[i]][
                    step.src_chunk[i] + k
                ]
    return held


@pytest.mark.parametrize("p", [2, 3, 4, 7])
def test_every_block_of_an_exchange_arrives(p: int) -> None:
    call = Call(Collective.ALLTOALL, 64, Group(p))
    held = replay(_own_schedule(call, PAIRWISE, PREDICTOR), p)
    for rank in range(p):
        for other in range(p):
            if other != rank:
                assert held[rank][other] == (other, p + rank)


def test_groups_side_by_side_exchange_within_themselves() -> None:
    group = Group(3, 2)
    members = group.members(12)
    own = _own_schedule(Call(Collective.ALLTOALL, 64, group), PAIRWISE, PREDICTOR)
    held = replay(_side_by_side(own, members, 12), 12)
    for ranks in members:
        for i, rank in enumerate(ranks):
            for j, other in enumerate(ranks):
                if i != j:
                    assert held[rank][j] == (other, 3 + i)


def test_groups_cover_all_ranks_at_their_stride() -> None:
    members = Group(3, 2).members(12)
    assert members.tolist() == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]
    assert sorted(np.ravel(members)) == list(range(12))


def test_groups_that_do_not_fill_the_job_are_refused() -> None:
    with pytest.raises(InputError, match="10 ranks cannot be divided into groups of 3 ranks"):
        Group(3, 2).members(10)


def test_ends_of_groups_are_their_first_and_last_ranks() -> None:
    ends = Group(2, 2, ends_of=3)
    assert ends.members(12).tolist() == [[0, 4], [1, 5], [6, 10], [7, 11]]
    own = _own_schedule(Call(Collective.ALLTOALL, 64, ends), PAIRWISE, PREDICTOR)
    held = replay(_side_by_side(own, ends.members(12), 12), 12)
    assert held[10][0] == (6, 3)
    assert held[8] == [(8, chunk) for chunk in range(4)]


@pytest.mark.parametrize(
    ("tensor", "ppn", "stride"),
    [(2, 4, 2), (2, 16, 1), (4, 4, 1), (1, 4, 4)],
    ids=["half_nodes", "wide_nodes", "whole_nodes", "one_each"],
)
def test_an_uneven_group_keeps_its_nodes_and_ranks_on_each(
    tensor: int, ppn: int, stride: int
) -> None:
    """Take the ranks of a model-parallel group: `tensor` neighbours of every four or eight."""
    placement = Placement.block(FLAT.topology, ppn, 12 * ppn)
    distance = 8 if tensor == 4 else 4
    ranks = [first + one for first in range(0, 4 * distance, distance) for one in range(tensor)]
    assert even_group(ranks, placement) == Group(4 * tensor, stride)
