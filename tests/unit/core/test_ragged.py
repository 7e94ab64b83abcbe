"""Ragged calls: their messages carry the bytes of the blocks that travel in them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.algorithms import algorithm_names, build
from tuner.base.errors import LimitExceededError
from tuner.core import ragged
from tuner.core.collective import Collective
from tuner.core.ragged import with_block_sizes
from tuner.core.schedule import Schedule
from tuner.sim import finish_times
from tuner.topology import Placement
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.yaml_topology import topology_from_yaml

ALLTOALL, ALLTOALLV = Collective.ALLTOALL, Collective.ALLTOALLV
ALLGATHER, ALLGATHERV = Collective.ALLGATHER, Collective.ALLGATHERV
NAMES = algorithm_names(ALLTOALLV)
FOLDED = ("recursive_doubling", "bine", "recursive_multiplying")
DIRECT = ("linear", "spread_out", "pairwise", "pairwise_exchange")  # no rank forwards a block


def switch(nodes: int) -> Placement:
    record = {"name": "star", "nodes": nodes, "latency": "2us", "bandwidth": "12.5GB/s"}
    return Placement.block(topology_from_yaml(record), 1)


def sent(schedule: Schedule) -> np.ndarray:
    """Return the elements that each rank sends to each other one, over all rounds."""
    between = np.zeros((schedule.p, schedule.p), np.int64)
    for r in schedule.rounds():
        np.add.at(between, (r.src, r.dst), r.count)
    np.fill_diagonal(between, 0)
    return between


def drawn_sizes(p: int, seed: int) -> np.ndarray:
    sizes = np.random.default_rng(seed).integers(0, 50, (p, p))
    sizes[seed % p] = 0  # a rank that sends nothing
    return sizes


@pytest.mark.parametrize("name", DIRECT)
@pytest.mark.parametrize("p", [2, 5, 8, 12])
def test_direct_algorithms_send_each_block_once(name: str, p: int) -> None:
    sizes = drawn_sizes(p, seed=p)
    made = with_block_sizes(build(ALLTOALLV, name, p), sizes, 25 * p)
    off_diagonal = sizes.copy()
    np.fill_diagonal(off_diagonal, 0)
    assert (sent(made) == off_diagonal).all()
    assert all((r.count > 0).all() for r in made.rounds())


@pytest.mark.parametrize("name", NAMES)
@given(p=st.integers(1, 17), seed=st.integers(0, 1000))
def test_sizes_of_several_calls_add_up(name: str, p: int, seed: int) -> None:
    """Messages carry the sum of what each block alone would cause."""
    one, other = drawn_sizes(p, seed), drawn_sizes(p, seed + 1)
    plain = build(ALLTOALLV, name, p)
    together = sent(with_block_sizes(plain, one + other, p))
    assert (
        together == sent(with_block_sizes(plain, one, p)) + sent(with_block_sizes(plain, other, p))
    ).all()


@pytest.mark.parametrize("name", NAMES)
@given(p=st.integers(2, 17), data=st.data())
def test_a_block_leaves_its_sender_and_arrives(name: str, p: int, data: st.DataObject) -> None:
    sender, receiver = data.draw(st.permutations(range(p)))[:2]
    sizes = np.zeros((p, p), np.int64)
    sizes[sender, receiver] = 7
    flow = sent(with_block_sizes(build(ALLTOALLV, name, p), sizes, p))
    surplus = flow.sum(0) - flow.sum(1)
    expected = np.zeros(p, np.int64)
    expected[[sender, receiver]] = -7, 7
    assert (surplus == expected).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("engine", ["fast", "events"])
@pytest.mark.parametrize("p", [3, 8, 12])
def test_equal_blocks_take_as_long_as_an_alltoall(name: str, engine: str, p: int) -> None:
    placement = switch(p)
    costs, block = nominal_calibration(placement.topology), 5000
    ragged_one = with_block_sizes(build(ALLTOALLV, name, p), np.full((p, p), block), block * p)
    even = finish_times(build(ALLTOALL, name, p), placement, costs, block * p, engine=engine)
    told = finish_times(ragged_one, placement, costs, block * p, engine=engine)
    assert told == pytest.approx(even, rel=1e-12)


@given(p=st.integers(2, 12), seed=st.integers(0, 1000), name=st.sampled_from(NAMES))
def test_both_engines_agree(p: int, seed: int, name: str) -> None:
    placement = switch(p)
    costs = nominal_calibration(placement.topology)
    made = with_block_sizes(build(ALLTOALLV, name, p), 1000 * drawn_sizes(p, seed), 25_000 * p)
    fast, events = (
        finish_times(made, placement, costs, 25_000 * p, engine=engine)
        for engine in ("fast", "events")
    )
    assert fast == pytest.approx(events, rel=1e-9)


@pytest.mark.parametrize("name", algorithm_names(ALLGATHERV))
@given(p=st.integers(1, 17), seed=st.integers(0, 1000))
def test_every_rank_gets_every_block_of_an_allgatherv(name: str, p: int, seed: int) -> None:
    sizes = drawn_sizes(p, seed)[:1]
    flow = sent(with_block_sizes(build(ALLGATHERV, name, p), sizes, p))
    missing = sizes.sum() - sizes[0]
    if name in FOLDED:  # and what folded ranks give and get, or what moves to another place
        assert (flow.sum(0) >= missing).all()
    else:
        assert (flow.sum(0) == missing).all()


@pytest.mark.parametrize("name", algorithm_names(ALLGATHERV))
@pytest.mark.parametrize("engine", ["fast", "events"])
@pytest.mark.parametrize("p", [3, 8, 12])
def test_equal_blocks_take_as_long_as_an_allgather(name: str, engine: str, p: int) -> None:
    placement = switch(p)
    costs, block = nominal_calibration(placement.topology), 5000
    made = with_block_sizes(build(ALLGATHERV, name, p), np.full((1, p), block), block * p)
    even = finish_times(build(ALLGATHER, name, p), placement, costs, block * p, engine=engine)
    told = finish_times(made, placement, costs, block * p, engine=engine)
    assert told == pytest.approx(even, rel=1e-12)


def test_a_long_block_passes_all_of_a_ring() -> None:
    """Alone it takes p - 1 rounds at 2 us and 12.5 GB/s."""
    p, block = 5, 1_000_000
    sizes = np.zeros((1, p), np.int64)
    sizes[0, 2] = block
    placement = switch(p)
    made = with_block_sizes(build(ALLGATHERV, "ring", p), sizes, block)
    told = finish_times(made, placement, nominal_calibration(placement.topology), block)
    assert max(told) == pytest.approx((p - 1) * (2e-6 + block / 12.5e9), rel=1e-9)


def test_senders_to_one_rank_share_its_port() -> None:
    """All ranks send 1 MB to rank 0 at 12.5 GB/s and 2 us."""
    p, block = 8, 1_000_000
    placement = switch(p)
    sizes = np.zeros((p, p), np.int64)
    sizes[1:, 0] = block
    made = with_block_sizes(build(ALLTOALLV, "linear", p), sizes, block)
    told = finish_times(made, placement, nominal_calibration(placement.topology), block)
    assert max(told) == pytest.approx(2e-6 + (p - 1) * block / 12.5e9, rel=1e-9)


def test_too_many_places_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ragged, "MAX_PLACES", 8 * 16 - 1)
    with pytest.raises(LimitExceededError, match="128 places of blocks"):
        with_block_sizes(build(ALLTOALLV, "linear", 8), np.ones((8, 8), np.int64), 8)
