"""What is kept of schedules, of bound buffers, and of the memory that calls need beside them."""

from unittest.mock import Mock, patch

import numpy as np
import pytest
from mpi4py import MPI

from tests.support.ladders import table_of
from tuner.algorithms import build, facts_of, registry
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, Choice
from tuner.core.verify import verify
from tuner.runtime import schedule_cache, tune
from tuner.runtime.agreement import library_name
from tuner.runtime.memory import HOST_MEMORY
from tuner.runtime.rank_schedule import Outline
from tuner.runtime.schedule_cache import Bindings
from tuner.runtime.scratch import DOUBLED, Space, Spaces

SEGMENT = 64
BYTES = np.zeros(4 * SEGMENT, np.uint8)


def bindings_of(choice: Choice, spaces: Spaces | None = None) -> Bindings:
    return Bindings(MPI.COMM_SELF, Collective.BCAST, choice, spaces or Spaces(HOST_MEMORY))


@pytest.mark.parametrize(
    ("choice", "outlines"),
    [
        (Choice("binomial", {}, SCHEDULE), 1),
        (Choice("pipeline", {"segment": SEGMENT}, SCHEDULE), 4),
    ],
)
def test_a_schedule_is_looked_at_once_per_number_of_chunks(choice: Choice, outlines: int) -> None:
    made = bindings_of(choice)
    with patch.object(Outline, "of", wraps=Outline.of) as looked:
        for count in range(1, 4 * SEGMENT + 1):
            assert made.bound(BYTES, count, 1, 0) is not None
    assert looked.call_count == outlines
    made.release()


def test_more_segments_than_there_may_be_are_not_ours() -> None:
    many = np.zeros(registry.MOST_SEGMENTS + 1, np.uint8)
    made = bindings_of(Choice("pipeline", {"segment": 1}, SCHEDULE))
    assert made.bound(many, len(many), 1, 0) is None
    assert made.bound(BYTES, len(BYTES), 1, 0) is not None
    made.release()


def test_large_schedules_are_verified_once_per_shape() -> None:
    with (
        patch.object(registry, "VERIFIED_SLOTS", 0),
        patch.dict(registry._FACTS, clear=True),
        patch.object(registry, "verify", wraps=verify) as verified,
    ):
        for nbytes in (8, 800, 8000):
            facts_of(build(Collective.ALLREDUCE, "ring", 5, nbytes=nbytes))
    assert verified.call_count == 1


def test_the_oldest_are_given_up_where_all_have_too_many_messages() -> None:
    spaces, bound = Spaces(HOST_MEMORY), [Mock(messages=40) for _ in "abc"]
    made = bindings_of(Choice("binomial", {}, SCHEDULE), spaces)
    with (
        patch.object(schedule_cache, "Bound", side_effect=bound),
        patch.object(schedule_cache, "MESSAGES", 99),
    ):
        for count in (1, 2, 3, 2):
            assert made.bound(BYTES, count, 1, 0) is bound[count - 1]
        assert [one.free.call_count for one in bound] == [1, 0, 0]
    spaces.spare.take(1000)  # is more than there was: all that may be bound to it goes
    assert [one.free.call_count for one in bound] == [1, 1, 1]


def test_memory_grows_and_those_who_are_bound_to_it_leave_first() -> None:
    space, left = Space(HOST_MEMORY), list[int]()
    space.leave.append(lambda: left.append(1))
    first = space.take(1000)
    assert (len(first), len(left)) == (1000, 1)
    for nbytes in (0, 1, 1000, 1024):
        assert np.shares_memory(space.take(max(nbytes, 1)), first)
        assert len(space.take(nbytes)) == nbytes
    assert len(left) == 1
    assert not np.shares_memory(space.take(1025), first)
    assert len(left) == 2
    for nbytes in (DOUBLED + 1, DOUBLED + 2):  # no more than is needed
        space.take(nbytes)
    assert len(left) == 4


def test_memory_is_given_up_with_the_table() -> None:
    ladders = {(Collective.ALLREDUCE, 1): [(0, Choice("recursive_doubling", {}, SCHEDULE))]}
    tuned = tune(MPI.COMM_SELF, table_of(ladders, library=library_name()))
    tuned.Allreduce(np.ones(1), np.zeros(1))
    spare = tuned._backend._spaces[0].spare
    assert spare._content is not None
    tuned.finalize()
    assert spare._content is None
