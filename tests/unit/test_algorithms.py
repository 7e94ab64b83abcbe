"""Every algorithm: verified for p = 1..33 with every root, and what it computes."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.support.calls import ALL, every_schedule, inputs, matrix_product, outputs
from tuner import algorithms
from tuner.collective import Collective
from tuner.errors import InputError, ScheduleError
from tuner.interpret import interpret
from tuner.verify import verify

ORDER_PRESERVING = {  # for root 0 and every p; derived by the verifier, stated here as a promise
    (Collective.ALLREDUCE, "linear"), (Collective.ALLREDUCE, "nonoverlapping"),
    (Collective.ALLREDUCE, "recursive_doubling"), (Collective.ALLREDUCE, "rabenseifner"),
    (Collective.ALLREDUCE, "hierarchical"),
    (Collective.REDUCE, "linear"), (Collective.REDUCE, "chain"), (Collective.REDUCE, "pipeline"),
    (Collective.REDUCE, "binomial"),
}  # fmt: skip


@pytest.mark.parametrize(("collective", "name"), ALL)
def test_verifies_for_every_rank_count_and_root(collective: Collective, name: str) -> None:
    for p in range(1, 34):
        for schedule in every_schedule(collective, name, p):
            facts = algorithms.facts_of(schedule)  # building it verified it
            if collective.reduces and schedule.root == 0 and p > 3:
                assert facts.order_preserving == ((collective, name) in ORDER_PRESERVING), schedule
            if not collective.reduces:
                assert facts.order_preserving


@pytest.mark.parametrize(("collective", "name"), ALL)
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 7, 8, 11])
def test_interpreter_gives_what_the_collective_promises(
    collective: Collective, name: str, p: int
) -> None:
    for count, schedule in itertools.product(
        (0, 1, p - 1, p, 3 * p + 2), every_schedule(collective, name, p)
    ):
        buffers = inputs(p, count)
        op = matrix_product if verify(schedule).order_preserving else np.maximum
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
    assert algorithms.facts_of(built) == verify(built)
    with pytest.raises(ScheduleError, match="is not there"):
        algorithms.facts_of(replace(built, make=list))


def test_segments_become_chunks() -> None:
    build = algorithms.build
    whole = build(Collective.BCAST, "pipeline", 4, nbytes=1000)
    cut = build(Collective.BCAST, "pipeline", 4, nbytes=1000, params={"segment": 300})
    assert (whole.n_chunks, cut.n_chunks) == (1, 4)
    assert len(list(cut.rounds())) == 4 + 4 - 2  # S + p - 2


@pytest.mark.parametrize(
    ("name", "p", "root", "params", "sentence"),
    [
        ("quantum", 4, 0, {}, "there is no bcast algorithm 'quantum'; known: linear, chain"),
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
    for collective, name in ALL:
        entry = algorithms.describe(collective, name)
        assert entry.summary.endswith(".")
        assert "alpha" in entry.formula
        assert entry.source
