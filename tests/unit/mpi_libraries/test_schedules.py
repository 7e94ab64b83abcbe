"""What a library does under an algorithm's name, where it is not what we would do."""

from dataclasses import replace

import pytest

from tuner import algorithms, mpi_libraries
from tuner.core.calibration import Calibration, PathCost
from tuner.core.collective import Collective
from tuner.core.schedule import Schedule
from tuner.core.table import AlgorithmChoice
from tuner.core.verify import verify
from tuner.mpi_libraries.schedules import (
    EAGER_LIMIT_BYTES,
    _build,
    interleave_parts,
    leaf_children_first,
    schedule_of,
)
from tuner.sim import simulate
from tuner.topology import Placement
from tuner.topology.readers.yaml_topology import topology_from_yaml

BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE
BETA = 1e-8
LONG = 1000 * 1024
CALIBRATION = Calibration(
    "any", "openmpi 5.0", {("network", "host"): PathCost.from_alpha_beta(0.0, BETA)}
)


def seconds(schedule: Schedule | None, nbytes: int) -> float:
    """On nodes of their own at one switch; only bytes cost anything."""
    assert schedule is not None
    facts = {"name": "t", "nodes": schedule.p, "latency": "0us", "bandwidth": "1GB/s"}
    placement = Placement.block(topology_from_yaml(facts), 1)
    return simulate(schedule, placement, CALIBRATION, nbytes)


def openmpi(algorithm: str, p: int, nbytes: int, **params: int) -> Schedule | None:
    return schedule_of("openmpi 5.0.11", BCAST, AlgorithmChoice(algorithm, params), p, nbytes)


@pytest.mark.parametrize("p", [2, 3, 5, 8])
@pytest.mark.parametrize("nbytes", [1000, LONG])
@pytest.mark.parametrize("segment", [0, 2 * EAGER_LIMIT_BYTES])
@pytest.mark.parametrize("algorithm", ["chain", "pipeline", "binary", "binomial", "knomial"])
def test_every_tree_is_a_broadcast(algorithm: str, p: int, nbytes: int, segment: int) -> None:
    made = openmpi(algorithm, p, nbytes, segment=segment)
    assert made is not None
    assert (made.collective, made.algorithm, made.root) == (BCAST, algorithm, 0)
    verify(made)


@pytest.mark.parametrize("library", ["openmpi 5.0.11", "mpich 5.0.2"])
@pytest.mark.parametrize("algorithm", ["binomial", "knomial", "scatter_allgather"])
def test_every_rank_may_be_the_root(library: str, algorithm: str) -> None:
    first = schedule_of(library, BCAST, AlgorithmChoice(algorithm), 5, LONG)
    for root in range(5):
        made = schedule_of(library, BCAST, AlgorithmChoice(algorithm), 5, LONG, root)
        assert made is not None
        assert (made.algorithm, made.root) == (algorithm, root)
        verify(made)
        assert seconds(made, LONG) == seconds(first, LONG)


@pytest.mark.parametrize("library", ["openmpi 5.0.11", "mpich 5.0.2"])
@pytest.mark.parametrize("collective", [BCAST, ALLREDUCE])
def test_sizes_that_are_alike_share_a_schedule_and_no_others(
    library: str, collective: Collective
) -> None:
    shared = 0
    for choice in mpi_libraries.library_module(library).candidates(collective, 8, LONG):
        for nbytes in (8, EAGER_LIMIT_BYTES, 500_000, 3 * LONG):
            made = schedule_of(library, collective, choice, 8, nbytes)
            alone = _build(library, collective, choice, 8, nbytes, 0) if made else None
            assert (made is None) == (alone is None)
            if made and alone:
                assert told(made) == told(alone), choice
            shared += made is not None and made is schedule_of(library, collective, choice, 8, 9)
    assert shared > 5


def told(made: Schedule) -> tuple[object, ...]:
    """All that is priced."""
    moves = [[column.tolist() for column in r.columns] for r in made.rounds()]
    return made.n_chunks, made.staged, made.in_network, made.fire_and_forget, moves


def test_long_messages_to_several_children_arrive_in_turns() -> None:
    """Rank 1, first of two heads, has 1 MiB after 1.8 of it, and rank 4 after 3 more."""
    chain = openmpi("chain", 8, LONG, chains=2)
    assert seconds(chain, LONG) == pytest.approx(4.8 * LONG * BETA)
    ours = algorithms.build(BCAST, "chain", 8, nbytes=LONG, params={"chains": 2})
    assert seconds(ours, LONG) == pytest.approx(4.0 * LONG * BETA)


def test_short_messages_are_not_cut() -> None:
    made = openmpi("binary", 8, 384 * 1024)
    assert made is not None
    assert made.n_chunks == 1


def test_one_receiver_at_a_time_gets_whole_messages() -> None:
    line = algorithms.build(BCAST, "pipeline", 4, nbytes=100)
    assert [len(r) for r in interleave_parts(line, 4).rounds()] == [1, 1, 1]


def test_openmpi_posts_to_all_children_of_a_binomial_tree_at_once() -> None:
    """Rank 1 serves 3 and 5 while rank 0 still serves 2 and 4."""
    made = openmpi("binomial", 8, 1000)
    assert made is not None
    first = next(iter(made.rounds()))
    assert first.src.tolist() == [0, 0, 0]
    assert first.dst.tolist() == [1, 2, 4]


def test_leaves_come_first_from_the_second_segment_on() -> None:
    knomial = algorithms.build(BCAST, "knomial", 8, nbytes=4, params={"radix": 4, "segment": 2})
    root = [r.dst[r.src == 0].tolist() for r in leaf_children_first(knomial).rounds()]
    assert root[:2] == [[4, 1, 2, 3], [1, 2, 3, 4]]


def test_eager_segments_keep_their_order() -> None:
    made = openmpi("chain", 8, 2 * EAGER_LIMIT_BYTES - 2, chains=2, segment=EAGER_LIMIT_BYTES - 1)
    assert made is not None
    assert [r.dst[r.src == 0].tolist() for r in made.rounds()][1] == [1, 5]


def test_what_the_library_alone_decides_has_no_schedule() -> None:
    nonoverlapping = AlgorithmChoice("nonoverlapping")
    assert schedule_of("openmpi 5.0.11", ALLREDUCE, nonoverlapping, 8, 1000) is None
    assert (
        schedule_of(
            "openmpi 5.0.11", ALLREDUCE, AlgorithmChoice("nonoverlapping", {}, "schedule"), 8, 1000
        )
        is not None
    )
    assert schedule_of("mpich 5.0.2", BCAST, AlgorithmChoice(), 8, 1000) is None
    assert schedule_of("mpich 5.0.2", BCAST, AlgorithmChoice("smp"), 8, 1000) is None


def test_other_libraries_do_what_we_do() -> None:
    made = schedule_of("mpich 5.0.2", BCAST, AlgorithmChoice("scatter_allgather_ring"), 8, LONG)
    ours = algorithms.build(BCAST, "scatter_allgather_ring", 8, nbytes=LONG)
    assert seconds(made, LONG) == seconds(ours, LONG)


@pytest.mark.parametrize("root", [0, 3])
@pytest.mark.parametrize("p", [1, 2, 5, 8])
def test_the_binomial_tree_of_mpich_sends_one_message_across_the_middle(p: int, root: int) -> None:
    made = schedule_of("mpich 5.0.2", BCAST, AlgorithmChoice("binomial"), p, LONG, root % p)
    assert made is not None
    verify(made)
    rounds = [
        {((s - root) % p, (d - root) % p) for s, d in zip(r.src, r.dst, strict=True)}
        for r in made.rounds()
    ]
    expected = {
        1: [],
        2: [{(0, 1)}],
        5: [{(0, 4)}, {(0, 2)}, {(0, 1), (2, 3)}],
        8: [{(0, 4)}, {(0, 2), (4, 6)}, {(0, 1), (2, 3), (4, 5), (6, 7)}],
    }
    assert rounds == expected[p]


@pytest.mark.parametrize("library", ["openmpi 5.0.11", "mpich 5.0.2", "given"])
@pytest.mark.parametrize("algorithm", ["binary", "binomial", "chain", "knomial", "pipeline"])
def test_trees_move_all_segments(library: str, algorithm: str) -> None:
    further = {"chain": {"chains": 2}, "knomial": {"radix": 4}}.get(algorithm, {})
    params = {"segment": 8192, **further}
    made = schedule_of(library, BCAST, AlgorithmChoice(algorithm, params), 6, 1 << 16, 1)
    assert made is not None
    assert made.n_chunks >= 8
    verify(made)


@pytest.mark.parametrize("library", ["openmpi 5.0.11", "mpich 5.0.2"])
@pytest.mark.parametrize("p", range(2, 18))
def test_an_allgather_after_a_scatter_by_doubling_gives_everybody_everything(
    library: str, p: int
) -> None:
    made = schedule_of(library, BCAST, AlgorithmChoice("scatter_allgather"), p, 4096 * p)
    assert made is not None
    verify(made)


def test_of_three_ranks_the_third_piece_is_passed_on_alone() -> None:
    """0 to 2, 0 to 1, both swap, 0 and 2 swap two for one, 0 to 1: of thirds."""
    made = schedule_of("mpich 5.0.2", BCAST, AlgorithmChoice("scatter_allgather"), 3, 3 << 20)
    assert seconds(made, 3 << 20) == pytest.approx((1 + 1 + 1 + 2 + 1) * (1 << 20) * BETA)


@pytest.mark.parametrize("engine", ["fast", "events"])
def test_mpich_streams_its_pipelines(engine: str) -> None:
    """Latency is paid once a hop and not once a segment; the bytes of all segments flow at once."""
    latency = PathCost.from_alpha_beta(1e-3, BETA)
    slow = replace(CALIBRATION, paths={("network", "host"): latency})
    facts = {"name": "t", "nodes": 4, "latency": "0us", "bandwidth": "1GB/s"}
    placement = Placement.block(topology_from_yaml(facts), 1)
    pipeline = AlgorithmChoice("pipeline", {"segment": 1000})
    made = schedule_of("mpich 5.0.2", BCAST, pipeline, 4, 100_000)
    assert made is not None
    taken = simulate(made, placement, slow, 100_000, engine=engine)
    assert taken == pytest.approx(3 * (1e-3 + 1000 * BETA) + 99 * 1000 * BETA)
