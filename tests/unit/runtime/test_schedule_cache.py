"""What is kept of schedules, of bound buffers, and of the memory that calls need beside them."""

from unittest.mock import Mock, patch

import numpy as np
import pytest
from mpi4py import MPI

from tests.support.ladders import table_of
from tuner.algorithms import build, registry, schedule_properties
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.core.verify import verify
from tuner.runtime import schedule_cache, tune
from tuner.runtime.agreement import library_name
from tuner.runtime.memory import HOST_MEMORY
from tuner.runtime.rank_schedule import RankScheduleTemplate
from tuner.runtime.schedule_cache import ScheduleCache
from tuner.runtime.scratch import MAX_ROUNDED_BYTES, ScratchBuffer, ScratchPool

SEGMENT = 64
BYTES = np.zeros(4 * SEGMENT, np.uint8)


def bindings_of(choice: AlgorithmChoice, spaces: ScratchPool | None = None) -> ScheduleCache:
    return ScheduleCache(
        MPI.COMM_SELF, Collective.BCAST, choice, spaces or ScratchPool(HOST_MEMORY)
    )


@pytest.mark.parametrize(
    ("choice", "outlines"),
    [
        (AlgorithmChoice("binomial", {}, SCHEDULE), 1),
        (AlgorithmChoice("pipeline", {"segment": SEGMENT}, SCHEDULE), 4),
    ],
)
def test_a_schedule_is_looked_at_once_per_number_of_chunks(
    choice: AlgorithmChoice, outlines: int
) -> None:
    """Communicators of one shape share what was found."""
    with (
        patch.dict(schedule_cache._TEMPLATES, clear=True),
        patch.object(
            RankScheduleTemplate, "from_schedule", wraps=RankScheduleTemplate.from_schedule
        ) as looked,
    ):
        for _ in range(2):
            made = bindings_of(choice)
            for count in range(1, 4 * SEGMENT + 1):
                assert made.get_or_bind(BYTES, count, 1, 0) is not None
            made.release()
    assert looked.call_count == outlines


def test_more_segments_than_there_may_be_are_not_ours() -> None:
    many = np.zeros(registry.MAX_SEGMENTS + 1, np.uint8)
    made = bindings_of(AlgorithmChoice("pipeline", {"segment": 1}, SCHEDULE))
    assert made.get_or_bind(many, len(many), 1, 0) is None
    assert made.get_or_bind(BYTES, len(BYTES), 1, 0) is not None
    made.release()


def test_large_schedules_are_verified_once_per_shape() -> None:
    with (
        patch.object(registry, "MAX_VERIFIED_SLOTS", 0),
        patch.dict(registry._PROPERTIES, clear=True),
        patch.object(registry, "verify", wraps=verify) as verified,
    ):
        for nbytes in (8, 800, 8000):
            schedule_properties(build(Collective.ALLREDUCE, "ring", 5, nbytes=nbytes))
    assert verified.call_count == 1


def test_the_oldest_are_given_up_where_all_have_too_many_messages() -> None:
    spaces, bound = ScratchPool(HOST_MEMORY), [Mock(n_messages=40) for _ in "abc"]
    made = bindings_of(AlgorithmChoice("binomial", {}, SCHEDULE), spaces)
    with (
        patch.object(schedule_cache, "PersistentSchedule", side_effect=bound),
        patch.object(schedule_cache, "MAX_REQUESTS", 99),
    ):
        for count in (1, 2, 3, 2):
            assert made.get_or_bind(BYTES, count, 1, 0) is bound[count - 1]
        assert [one.free.call_count for one in bound] == [1, 0, 0]
    spaces.scratch.reserve(1000)  # is more than there was: all that may be bound to it goes
    assert [one.free.call_count for one in bound] == [1, 1, 1]


def test_memory_grows_and_those_who_are_bound_to_it_leave_first() -> None:
    space, left = ScratchBuffer(HOST_MEMORY), list[int]()
    space.release_callbacks.append(lambda: left.append(1))
    first = space.reserve(1000)
    assert (len(first), len(left)) == (1000, 1)
    for nbytes in (0, 1, 1000, 1024):
        assert np.shares_memory(space.reserve(max(nbytes, 1)), first)
        assert len(space.reserve(nbytes)) == nbytes
    assert len(left) == 1
    assert not np.shares_memory(space.reserve(1025), first)
    assert len(left) == 2
    for nbytes in (MAX_ROUNDED_BYTES + 1, MAX_ROUNDED_BYTES + 2):  # no more than is needed
        space.reserve(nbytes)
    assert len(left) == 4


def test_memory_is_given_up_with_the_table() -> None:
    ladders = {
        (Collective.ALLREDUCE, 1): [(0, AlgorithmChoice("recursive_doubling", {}, SCHEDULE))]
    }
    tuned = tune(MPI.COMM_SELF, table_of(ladders, library=library_name()))
    tuned.Allreduce(np.ones(1), np.zeros(1))
    spare = tuned._backend._spaces[0].scratch
    assert spare._content is not None
    tuned.finalize()
    assert spare._content is None
