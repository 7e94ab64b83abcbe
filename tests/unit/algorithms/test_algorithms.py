"""Every algorithm: verified for many numbers of ranks and roots, and what it computes."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.support.calls import (
    ALL,
    EVERYTHING,
    every_schedule,
    inputs,
    matrix_product,
    operator_of,
    outputs,
)
from tuner import algorithms
from tuner.algorithms.registry import MAX_VERIFIED_SLOTS
from tuner.base.errors import InputError, ScheduleError
from tuner.core.collective import Collective
from tuner.core.interpret import interpret
from tuner.core.schedule import Schedule
from tuner.core.verify import verify
from tuner.sim import simulate
from tuner.topology import Placement
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.yaml_topology import topology_from_yaml

ORDER_PRESERVING = {  # for root 0 and every p; derived by the verifier, stated here as a promise
    (Collective.ALLREDUCE, "binary_blocks"),
    (Collective.ALLREDUCE, "chain_binomial"),
    (Collective.ALLREDUCE, "chain_of_chains"),
    (Collective.ALLREDUCE, "double_tree"),
    (Collective.ALLREDUCE, "hierarchical"),
    (Collective.ALLREDUCE, "linear"),
    (Collective.ALLREDUCE, "nonoverlapping"),
    (Collective.ALLREDUCE, "rabenseifner"),
    (Collective.ALLREDUCE, "recursive_doubling"),
    (Collective.REDUCE, "binomial"),
    (Collective.REDUCE, "chain"),
    (Collective.REDUCE, "chain_binomial"),
    (Collective.REDUCE, "chain_of_chains"),
    (Collective.REDUCE, "double_tree"),
    (Collective.REDUCE, "linear"),
    (Collective.REDUCE, "pipeline"),
    (Collective.REDUCE, "rabenseifner"),
    (Collective.REDUCE_SCATTER, "binary_blocks"),
}
FEW = 12  # every root up to this number of ranks
MANY = (13, 16, 17, 23, 31, 32, 33)
LARGE = (47, 64, 97, 127, 256, 257)


@pytest.mark.parametrize(("collective", "name"), EVERYTHING)
def test_verifies_for_few_ranks_and_every_root(collective: Collective, name: str) -> None:
    """Building verifies."""
    for p in range(1, FEW + 1):
        for schedule in every_schedule(collective, name, p, few=False):
            assert schedule.p * schedule.n_chunks <= MAX_VERIFIED_SLOTS


@pytest.mark.extended
@pytest.mark.parametrize(("collective", "name"), EVERYTHING)
def test_verifies_for_many_rank_counts(collective: Collective, name: str) -> None:
    for p in MANY:
        for schedule in every_schedule(collective, name, p, few=True):
            assert schedule.p * schedule.n_chunks <= MAX_VERIFIED_SLOTS


@pytest.mark.parametrize(("collective", "name"), EVERYTHING)
def test_what_is_not_cut_into_segments_is_one_schedule_for_every_size(
    collective: Collective, name: str
) -> None:
    chosen = {key: 0 for key in algorithms.describe(collective, name).params if key == "segment"}
    small, large = (
        algorithms.build(collective, name, 8, nbytes=nbytes, params=chosen)
        for nbytes in (8, 4 << 20)
    )
    assert not algorithms.is_segmented(collective, name, chosen)
    assert moves(small) == moves(large)


@pytest.mark.parametrize(("collective", "name"), EVERYTHING)
def test_as_many_chunks_are_the_same_schedule(collective: Collective, name: str) -> None:
    """Facts, and what a rank does, are kept by the number of chunks."""
    chosen = {key: 64 for key in algorithms.describe(collective, name).params if key == "segment"}
    of_chunks: dict[int, list[list[list[int]]]] = {}
    for nbytes in (1, 1023, 1024, 1025, 4000, 4090, 4096):
        made = algorithms.build(collective, name, 8, nbytes=nbytes, params=chosen)
        assert of_chunks.setdefault(made.n_chunks, moves(made)) == moves(made)
    assert len(of_chunks) < 7


def moves(schedule: Schedule) -> list[list[list[int]]]:
    return [[column.tolist() for column in r.columns] for r in schedule.rounds()]


@pytest.mark.parametrize(("collective", "name"), ALL)
def test_who_keeps_the_order_of_operands(collective: Collective, name: str) -> None:
    for p in (9, 16, 23):
        facts = algorithms.schedule_properties(algorithms.build(collective, name, p))
        kept = (collective, name) in ORDER_PRESERVING or not collective.is_reduction
        assert facts.order_preserving == kept, p


@pytest.mark.representative(
    "bcast-binomial",
    "allreduce-ring",
    "allreduce-rabenseifner",
    "allgather-bruck",
    "reduce-chain",
    "scatter-binomial",
    "gather-binomial",
    "reduce_scatter-ring",
)
@pytest.mark.parametrize(("collective", "name"), EVERYTHING)
def test_large_ones_are_built_and_simulated(collective: Collective, name: str) -> None:
    for p in LARGE:
        made = algorithms.build(collective, name, p, root=p - 1 if collective.is_rooted else 0)
        assert algorithms.schedule_properties(made).n_rounds > 0
    record = {"name": "flat", "nodes": 47, "latency": "1us", "bandwidth": "1GB/s"}
    placement = Placement.block(topology_from_yaml(record), 1)
    for nbytes in (0, 1 << 16, (1 << 20) + 3):
        made = algorithms.build(collective, name, 47, nbytes=nbytes)
        seconds = simulate(made, placement, nominal_calibration(placement.topology), nbytes)
        assert 0 <= seconds < 1


@pytest.mark.representative("1", "3", "5", "8")
@pytest.mark.parametrize(("collective", "name"), EVERYTHING)
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 7, 8, 11, 18])
def test_interpreter_gives_what_the_collective_promises(
    collective: Collective, name: str, p: int
) -> None:
    for count, schedule in itertools.product(
        (0, 1, p - 1, p, 3 * p + 2), every_schedule(collective, name, p, few=True)
    ):
        if collective.gives_in_scratch and count % p:
            continue  # blocks change places, so that they are equally long
        buffers = inputs(p, count)
        ordered = algorithms.schedule_properties(schedule).order_preserving
        op = operator_of(collective, ordered)
        after = interpret(schedule, buffers, op)
        expected = outputs(schedule, buffers, op)
        for rank, (share, value) in enumerate(expected):
            np.testing.assert_array_equal(after[rank][share], value, err_msg=f"{schedule} {rank}")


def test_an_order_breaking_schedule_really_breaks_the_order() -> None:
    ring = algorithms.build(Collective.ALLREDUCE, "ring", 4)
    buffers = inputs(4, 8)
    after = interpret(ring, buffers, matrix_product)
    right = matrix_product(matrix_product(matrix_product(*buffers[:2]), buffers[2]), buffers[3])
    assert not verify(ring).order_preserving
    assert not np.array_equal(after[0], right)


def test_facts_are_those_of_the_schedule_itself() -> None:
    """A schedule that looks like a built one is verified all the same."""
    built = algorithms.build(Collective.BCAST, "linear", 3)
    assert algorithms.schedule_properties(built) == verify(built)
    with pytest.raises(ScheduleError, match="is not there"):
        algorithms.schedule_properties(replace(built, make_rounds=list))


def test_segments_become_chunks() -> None:
    build = algorithms.build
    whole = build(Collective.BCAST, "pipeline", 4, nbytes=1000)
    cut = build(Collective.BCAST, "pipeline", 4, nbytes=1000, params={"segment": 300})
    assert (whole.n_chunks, cut.n_chunks) == (1, 4)
    assert len(list(cut.rounds())) == 4 + 4 - 2  # S + p - 2


@pytest.mark.parametrize(
    ("name", "p", "root", "params", "sentence"),
    [
        ("quantum", 4, 0, {}, "unknown bcast algorithm 'quantum': choose one of linear, chain"),
        ("chain", 4, 0, {"radix": 3}, "has no parameter 'radix'; it has: chains, segment"),
        ("chain", 4, 0, {"segment": -1}, "segment must be at least 0, not -1"),
        ("knomial", 4, 0, {"radix": 1}, "radix must be at least 2, not 1"),
        ("chain", 0, 0, {}, "needs p >= 1"),
        ("chain", 4, 4, {}, "a root below p"),
        ("chain", 4, 0, {"segment": 1}, "a segment of 1 bytes cuts 4294967296 bytes into"),
    ],
)
def test_bad_requests_are_named(
    name: str, p: int, root: int, params: dict[str, int], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        algorithms.build(Collective.BCAST, name, p, root=root, nbytes=2**32, params=params)


def test_every_algorithm_is_described() -> None:
    for collective, name in EVERYTHING:
        entry = algorithms.describe(collective, name)
        assert entry.summary.endswith(".")
        assert "alpha" in entry.formula
        assert entry.source
