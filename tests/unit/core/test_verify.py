"""The verifier rejects every schedule that does not do what it promises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.calls import EVERYTHING, every_schedule, inputs, operator_of, outputs
from tests.support.properties import examples
from tuner import algorithms
from tuner.base.errors import ScheduleError
from tuner.core.collective import Collective
from tuner.core.interpret import interpret
from tuner.core.schedule import (
    ARRIVING_OP_DST,
    DST_OP_ARRIVING,
    Round,
    Runs,
    Schedule,
    concat,
    make_schedule,
    relabel,
)
from tuner.core.verify import verify

COLUMNS = ("src", "dst", "src_chunk", "dst_chunk", "count", "reduce")


def mutant(original: Schedule, draw: st.DataObject) -> Schedule:
    """The schedule with one row dropped, doubled, or one of its six values changed."""
    rounds = [r.consecutive() for r in original.rounds()]
    where = draw.draw(st.integers(0, len(rounds) - 1))
    row = draw.draw(st.integers(0, len(rounds[where]) - 1))
    change = draw.draw(st.sampled_from(["drop", "double", *COLUMNS]))
    rows = list(range(len(rounds[where])))
    if change in ("drop", "double"):
        rows = rows[:row] + rows[row + 1 :] if change == "drop" else [*rows, row]
        rounds[where] = rounds[where].select(np.array(rows, dtype=int))
    else:
        limit = {"src": original.p, "dst": original.p, "reduce": 3, "count": original.n_chunks + 1}
        values = getattr(rounds[where], change).copy()
        chunks = (1 + original.scratch_buffers) * original.n_chunks
        values[row] = draw.draw(st.integers(0, limit.get(change, chunks) - 1))
        rounds[where] = replace(rounds[where], **{change: values})
    return replace(original, make_rounds=lambda: rounds)


def gives_the_right_result(made: Schedule, ordered: bool) -> bool:
    """Whether the interpreter, on random input, computes what the collective promises."""
    buffers = inputs(made.p, 3 * made.n_chunks, seed=1)
    op = operator_of(made.collective, ordered)
    expected = outputs(made, buffers, op)
    try:
        after = interpret(made, buffers, op)
    except (ScheduleError, IndexError):
        return False
    return all(np.array_equal(a[s], value) for a, (s, value) in zip(after, expected, strict=True))


@settings(max_examples=examples(1000))
@given(st.data())
def test_every_mutation_that_changes_the_result_is_rejected(data: st.DataObject) -> None:
    collective, name = data.draw(st.sampled_from(EVERYTHING))
    p = data.draw(st.integers(2, 6))
    original = data.draw(st.sampled_from(list(every_schedule(collective, name, p))))
    changed = mutant(original, data)
    try:
        facts = verify(changed)
    except ScheduleError:
        return
    assert gives_the_right_result(changed, facts.order_preserving), "a wrong result was accepted"


def test_the_mutation_test_has_teeth() -> None:
    """Most single changes do change the result, so the test above is not empty."""
    rejected = 0
    original = algorithms.build(Collective.ALLREDUCE, "rabenseifner", 6)
    rounds = list(original.rounds())
    for where, victim in enumerate(rounds):
        fewer = victim.select(np.arange(1, len(victim)))
        cut = make_schedule(
            Collective.ALLREDUCE, 6, 4, [*rounds[:where], fewer, *rounds[where + 1 :]]
        )
        assert not gives_the_right_result(cut, ordered=True)
        with pytest.raises(ScheduleError):
            verify(cut)
        rejected += 1
    assert rejected == len(rounds)


BCAST, ALLREDUCE, ALLTOALL = Collective.BCAST, Collective.ALLREDUCE, Collective.ALLTOALL


@pytest.mark.parametrize(
    ("collective", "rounds", "complaint"),
    [
        (BCAST, [Round.of(1, 2, 0)], "round 0: chunk 0 of rank 1 is sent but not held"),
        (BCAST, [Round.of(0, 1, 0)], "at the end chunk 1 of rank 1 is not there"),
        (BCAST, [Round.of(0, 3, 0)], "a rank outside 0..2"),
        (BCAST, [Round.of(0, 1, 1, count=2)], "straddles"),
        (BCAST, [Round.of(0, 1, 0, count=0)], "has no chunks"),
        (BCAST, [Round.of(0, 1, 2**31 - 1)], "leaves the buffer"),
        (BCAST, [Round.of(0, 1, 0, count=2**31 - 1)], "leaves the buffer"),
        (BCAST, [Round.of(0, [1, 1], 0)], "chunk 0 of rank 1 is written more than once"),
        (BCAST, [Round.of(0, 1, 0), Round.of([0, 1], [1, 2], 0)], "overwritten while it is sent"),
        (BCAST, [Round.of(0, [1, 2], [0, 0], [1, 1])], "at the end chunk 0 of rank 1"),
        (BCAST, [Round.of(0, 1, 0, count=2, src_runs=Runs(1, 1, 2))], "only copies within ranks"),
        (
            ALLREDUCE,
            [Round.of(0, 0, 0, 2, reduce=1, dst_runs=Runs(1, 1, 2))],
            "only copies within ranks",
        ),
        (
            ALLTOALL,
            [Round.of(0, 1, 3, 4)],
            "round 0: chunk 4 of rank 1, which is given, is written",
        ),
        (ALLTOALL, [Round.of(0, 0, 5, 0, count=2)], "straddles"),
        (ALLTOALL, [Round.of(range(3), range(3), 4, range(3))], "at the end chunk"),
        (ALLREDUCE, [Round.of(0, 1, 0, 1, reduce=1)], "another chunk's value"),
        (ALLREDUCE, [Round.of(0, 1, 0, reduce=1)] * 2, "takes a contribution twice"),
        (ALLREDUCE, [Round.of(0, 1, 0, 2, reduce=1)], "is reduced with another chunk's value"),
        (ALLREDUCE, [Round.of(0, 1, [0, 1], reduce=1)], "lacks contributions"),
    ],
)
def test_mistakes_are_named(collective: Collective, rounds: list[Round], complaint: str) -> None:
    with pytest.raises(ScheduleError, match=complaint):
        verify(make_schedule(collective, 3, 3 if collective is ALLTOALL else 2, rounds))


def test_operand_order_is_derived() -> None:
    up = Round.of([2, 1], 0, 0, reduce=DST_OP_ARRIVING)
    down = Round.of(0, [1, 2], 0)
    assert not verify(make_schedule(ALLREDUCE, 3, 1, [up, down])).order_preserving  # x0 x2 x1
    in_order = Round.of([1, 2], 0, 0, reduce=DST_OP_ARRIVING)
    assert verify(make_schedule(ALLREDUCE, 3, 1, [in_order, down])).order_preserving
    turned = Round.of([1, 2], 0, 0, reduce=ARRIVING_OP_DST)
    assert not verify(make_schedule(ALLREDUCE, 3, 1, [turned, down])).order_preserving  # x2 x1 x0


def test_operands_out_of_order_count_as_a_set() -> None:
    """Nothing can be put between two operands, but all may still be there, each once."""
    gap = Round.of(2, 0, 0, reduce=DST_OP_ARRIVING)  # x0 x2
    filled = Round.of(1, 0, 0, reduce=DST_OP_ARRIVING)  # x0 x2 x1
    down = Round.of(0, [1, 2], 0)
    assert not verify(make_schedule(ALLREDUCE, 3, 1, [gap, filled, down])).order_preserving
    with pytest.raises(ScheduleError, match="round 2: chunk 0 of rank 0 takes a contribution"):
        verify(make_schedule(ALLREDUCE, 3, 1, [gap, filled, gap]))
    with pytest.raises(ScheduleError, match="at the end chunk 0 of rank 0 lacks contributions"):
        verify(make_schedule(ALLREDUCE, 3, 1, [gap, down]))
    rows = Round.of([1, 2, 3], 0, 0, reduce=[DST_OP_ARRIVING, DST_OP_ARRIVING, ARRIVING_OP_DST])
    wrapped = [rows, Round.of(0, [1, 2, 3], 0)]  # x3 x0 x1 x2
    assert not verify(make_schedule(ALLREDUCE, 4, 1, wrapped)).order_preserving


def test_one_slot_takes_many_arrivals_in_row_order() -> None:
    p = 5000
    rows = Round.of(np.arange(1, p), 0, 0, reduce=DST_OP_ARRIVING)
    facts = verify(make_schedule(Collective.REDUCE, p, 1, [rows]))
    assert facts.order_preserving
    assert facts.n_transfers == p - 1
    turned = Round.of(np.arange(1, p)[::-1], 0, 0, reduce=DST_OP_ARRIVING)
    assert not verify(make_schedule(Collective.REDUCE, p, 1, [turned])).order_preserving


def test_scratch_and_moved_chunks_are_noticed() -> None:
    via_scratch = [Round.of(0, 1, 0, 1), Round.of(1, 1, 1, 0)]
    facts = verify(make_schedule(BCAST, 2, 1, via_scratch))
    assert facts.uses_scratch
    assert not facts.even_chunks_only
    swapped = [Round.of(0, 1, [0, 1], [3, 2]), Round.of(1, 1, [3, 2], [0, 1])]
    assert verify(make_schedule(BCAST, 2, 2, swapped)).even_chunks_only


def test_numbers_too_large_for_a_column_are_not_folded() -> None:
    with pytest.raises(ScheduleError, match="too large"):
        Round.of(0, 1, 2**32)  # chunk 0, if only 32 bits of it were kept


def test_composition() -> None:
    first = algorithms.build(BCAST, "binomial", 3)
    shifted = relabel(first, [1, 2, 0], root=1)
    assert verify(shifted).n_transfers == 2
    with pytest.raises(ScheduleError, match="different"):
        concat(BCAST, first, algorithms.build(BCAST, "binomial", 4))
    with pytest.raises(ScheduleError, match="cannot be divided"):
        make_schedule(Collective.SCATTER, 3, 4, [])
    with pytest.raises(ScheduleError, match="root below p"):
        make_schedule(BCAST, 3, 4, [], root=3)
