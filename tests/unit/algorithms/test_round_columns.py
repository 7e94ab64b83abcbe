"""How schedules are held: columns that rounds share, views without cost, 32 bits, read-only."""

from __future__ import annotations

import tracemalloc
from itertools import islice, pairwise

import numpy as np
import pytest

from tests.support.calls import EVERYTHING, every_schedule
from tuner import algorithms
from tuner.algorithms.round_columns import RotatedColumn, column
from tuner.core.collective import Collective

ALLREDUCE, ALLGATHER = Collective.ALLREDUCE, Collective.ALLGATHER
REDUCE_SCATTER = Collective.REDUCE_SCATTER
SUMMIT = 27_648


@pytest.mark.parametrize(("collective", "name"), EVERYTHING)
def test_columns_are_read_only_and_narrow(collective: Collective, name: str) -> None:
    for made in every_schedule(collective, name, 6, few=True):
        for r in made.rounds():
            assert {len(values) for values in r.columns} == {len(r)}
            for values in r.columns:
                assert values.dtype == np.int32
                assert not values.flags.writeable


@pytest.mark.parametrize(
    ("collective", "name"),
    [
        (ALLREDUCE, "ring"),
        (ALLREDUCE, "segmented_ring"),
        (ALLGATHER, "ring"),
        (REDUCE_SCATTER, "ring"),
    ],
)
def test_a_ring_of_all_summit_holds_hardly_anything(collective: Collective, name: str) -> None:
    tracemalloc.start()
    made = algorithms.build(collective, name, SUMMIT, nbytes=1 << 20)
    for before, after in pairwise(islice(made.rounds(), 1000)):
        for values in ("src", "dst", "count", "reduce"):
            assert getattr(before, values) is getattr(after, values)
        assert after.dst_chunk is after.src_chunk
        assert np.shares_memory(before.src_chunk, after.src_chunk)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10 << 20


def test_both_halves_of_a_ring_share_their_columns() -> None:
    rounds = list(algorithms.build(ALLREDUCE, "ring", 5).rounds())
    assert rounds[0].src is rounds[-1].src
    assert rounds[0].dst is rounds[-1].dst


def test_pairwise_turns_its_receivers() -> None:
    first, second, *_ = algorithms.build(REDUCE_SCATTER, "pairwise", 7).rounds()
    assert first.src is second.src
    assert np.shares_memory(first.dst, second.dst)
    np.testing.assert_array_equal(second.dst, [2, 3, 4, 5, 6, 0, 1])


def test_a_full_pipeline_keeps_its_columns() -> None:
    made = algorithms.build(Collective.BCAST, "binary", 15, nbytes=1000, params={"segment": 50})
    rounds = list(made.rounds())
    assert rounds[5].src is rounds[12].src
    assert rounds[5].count is rounds[12].count


def test_a_wheel_turns_both_ways() -> None:
    wheel = RotatedColumn([5, 6, 7])
    assert [wheel.at(t).tolist() for t in (0, 1, -1, 4)] == [
        [5, 6, 7],
        [6, 7, 5],
        [7, 5, 6],
        [6, 7, 5],
    ]
    assert column(4, 3).tolist() == [4, 4, 4]
    with pytest.raises(ValueError, match="read-only"):
        wheel.at(0)[0] = 1
