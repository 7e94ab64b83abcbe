"""Where a tuning run measures beside the sizes that it was given."""

from dataclasses import replace

from tests.support.designs import DEFAULT, RING, SLOW, TREE, candidates, grid, simulated
from tuner.core.call_profile import ProfiledCall, typical_sizes
from tuner.core.collective import Collective
from tuner.core.path_classes import BLOCK, CYCLIC, PLACEMENTS
from tuner.core.table import AlgorithmChoice
from tuner.launch import Hosts
from tuner.probe.batches import ExperimentRequest
from tuner.probe.multi_host import plan_experiments
from tuner.probe.probe_spec import ProbeShape, ProbeSpec
from tuner.select.dataset import CallPoint, Observation
from tuner.select.experiment_design import Experiment, ExperimentDesign
from tuner.workflows.candidates import bisection_points, chosen_calls, counts_of_calls, order_points
from tuner.workflows.candidates import candidate_points as asked_for

FAR = (1024, 16384, 262144)


def point(nodes: int, nbytes: int) -> CallPoint:
    return CallPoint("bcast", nodes, 1, "host", nbytes)


def designed(sizes: tuple[int, ...] = FAR) -> tuple[ExperimentDesign, list[CallPoint]]:
    """Of 8 and 16 nodes, of which everything is known at these sizes."""
    own = {q: c for q, c in candidates().items() if q.nodes >= 8 and q.nbytes in sizes}
    design = ExperimentDesign(own, simulated)
    design.update(row for row in grid().rows if row.point in own)
    return design, list(own)


def test_calls_of_a_program_come_first_those_that_should_take_most_time_before_others() -> None:
    points = [point(nodes, nbytes) for nodes in (8, 16) for nbytes in FAR]
    profile = (
        ProfiledCall("bcast", 8, 1, 1000, 50),
        ProfiledCall("bcast", 8, 1, 200_000, 3),
        ProfiledCall("bcast", 8, 1, 2**20, 4),
        ProfiledCall("reduce", 8, 1, 2**20, 9),  # nothing stands for it
    )
    assert counts_of_calls(points, profile) == {point(8, 1024): 50, point(8, 262144): 7}
    first, second, *others = order_points(points, profile)
    assert [first, second] == [point(8, 262144), point(8, 1024)]
    assert others == [q for q in order_points(points) if q not in (first, second)]
    frequent = (ProfiledCall("bcast", 8, 1, 1000, 500), ProfiledCall("bcast", 8, 1, 2**18, 3))
    assert order_points(points, frequent)[0] == point(8, 1024)


def test_of_a_table_for_a_profile_the_sizes_of_its_calls_alone_are_asked_for() -> None:
    profile = (ProfiledCall("bcast", 1, 4, 1000, 5), ProfiledCall("allreduce", 1, 2, 1 << 20, 1))
    request = ProbeSpec(
        "openmpi",
        Hosts(("a",)),
        4,
        shapes=(ProbeShape(1, 2), ProbeShape(1, 4)),
        sizes=(1000, 1 << 20),
        collectives=(Collective.BCAST, Collective.ALLREDUCE),
        profile=profile,
    )
    assert len(asked_for(request)) == 8
    found = asked_for(replace(request, only_profile=True))
    assert [(q.collective, q.p, q.nbytes) for q in found] == [
        ("bcast", 4, 1000),
        ("allreduce", 2, 1 << 20),
    ]


def test_every_call_of_a_profile_is_measured_at_a_size_of_its_own_octave() -> None:
    profile = (
        ProfiledCall("bcast", 1, 8, 1000, 1),
        ProfiledCall("bcast", 1, 8, 1 << 20, 1),
        ProfiledCall("allreduce", 1, 8, 900, 100),
        ProfiledCall("allgather", 1, 8, 16, 5),  # two bytes of each rank
        ProfiledCall("allgather", 1, 4, 16, 5),
    )
    request = ProbeSpec(
        "openmpi",
        Hosts(("a",)),
        8,
        shapes=(ProbeShape(1, 4), ProbeShape(1, 8)),
        sizes=typical_sizes(profile),
        collectives=(Collective.BCAST, Collective.ALLREDUCE, Collective.ALLGATHER),
        profile=profile,
        only_profile=True,
    )
    assert {(q.collective, q.p, q.nbytes) for q in asked_for(request)} == {
        ("bcast", 8, 1000),
        ("bcast", 8, 1 << 20),
        ("allreduce", 8, 900),
        ("allgather", 8, 32),
        ("allgather", 4, 16),
    }


def test_where_the_choice_changes_far_apart_it_is_measured_halfway() -> None:
    design, points = designed()
    rows = [row for row in grid().rows if row.point in points]
    said = {q: design.choose(q) for q in points}
    assert said[point(8, 1024)] == AlgorithmChoice()
    assert said[point(8, 262144)] == RING
    found = bisection_points(design, points, rows)
    assert found
    for q in found:
        low, high = q.with_size(q.nbytes // 4), q.with_size(q.nbytes * 4)
        assert said[low] != said[high]
    changes = sum(
        said[point(n, a)] != said[point(n, b)]
        for n in (8, 16)
        for a, b in ((1024, 16384), (16384, 262144))
    )
    assert len(found) == changes


def test_halfway_points_are_between_calls_of_one_placement() -> None:
    """Sorted by size alone the two kinds would stand between one another."""
    seconds: dict[tuple[CallPoint, AlgorithmChoice], float] = {}
    for kind in PLACEMENTS:
        low = CallPoint("bcast", 2, 2, "host", 1024, kind)
        for q, default in ((low, 1e-5), (low.with_size(65536), 1e-2)):
            seconds |= {(q, DEFAULT): default, (q, RING): 1e-4}
    rows = [Observation(q, choice, {}, t, t, t, t) for (q, choice), t in seconds.items()]
    points = [q for q, choice in seconds if choice == RING]
    design = ExperimentDesign(dict.fromkeys(points, (RING,)), simulated)
    design.update(rows)
    expected = {CallPoint("bcast", 2, 2, "host", 8192, kind) for kind in PLACEMENTS}
    assert set(bisection_points(design, points, rows)) == expected


def test_both_placements_of_a_shape_are_asked_for_and_chosen() -> None:
    request = ProbeSpec(
        "openmpi",
        Hosts(("a", "b")),
        2,
        shapes=(ProbeShape(2, 1), ProbeShape(2, 2)),
        placements=PLACEMENTS,
        sizes=(4096,),
    )
    found = asked_for(request)
    kinds = {(q.ppn, q.placement) for q in found}
    assert kinds == {(1, BLOCK), (2, BLOCK), (2, CYCLIC)}
    chosen = chosen_calls([Experiment(q, (DEFAULT, RING), 1.0) for q in found])
    assert {(one.ppn, one.placement) for one in chosen} == kinds


def test_what_is_a_point_already_or_was_not_measured_is_left_alone() -> None:
    design, points = designed()
    rows = [row for row in grid().rows if row.point in points]
    found = bisection_points(design, points, rows)
    design.add_points(dict.fromkeys(found, (TREE, RING, SLOW)))
    assert bisection_points(design, [*points, *found], rows) == []
    assert bisection_points(design, points, [row for row in rows if row.point.nbytes == 1024]) == []


def test_sizes_that_are_near_need_none_between() -> None:
    design, points = designed((1024, 4096, 16384))
    rows = [row for row in grid().rows if row.point in points]
    assert bisection_points(design, points, rows)
    doubled = [replace(row, point=row.point.with_size(2 * row.point.nbytes)) for row in rows]
    more = [q.with_size(2 * q.nbytes) for q in points]
    design.add_points(dict.fromkeys(more, (TREE, RING, SLOW)))
    design.update([*rows, *doubled])
    assert bisection_points(design, [*points, *more], [*rows, *doubled]) == []


def test_where_every_rank_has_a_share_sizes_are_whole_shares() -> None:
    """Of 3 ranks few of the usual sizes are; one that cannot be measured would end the tuning."""
    request = ProbeSpec(
        "openmpi",
        Hosts(("a", "b", "c")),
        1,
        shapes=(ProbeShape(2, 1), ProbeShape(3, 1)),
        collectives=(Collective.ALLGATHER, Collective.BCAST),
    )
    found = asked_for(request)
    assert {q.nbytes for q in found if q.p == 3 and q.collective == "bcast"} == {*request.sizes}
    assert len(set(found)) == len(found)
    chosen = [
        ExperimentRequest(Collective(q.collective), q.nodes, q.ppn, q.nbytes, ()) for q in found
    ]
    assert len(plan_experiments(request, chosen).points) == len(chosen)


def test_halfway_of_whole_shares_is_whole_shares() -> None:
    low = CallPoint("allgather", 3, 1, "host", 12)
    high = low.with_size(540)
    seconds = {(low, DEFAULT): 1e-5, (low, RING): 2e-5, (high, DEFAULT): 1e-3, (high, RING): 1e-4}
    rows = [Observation(*pair, {}, t, t, t, t) for pair, t in seconds.items()]
    design = ExperimentDesign({low: (RING,), high: (RING,)}, simulated)
    design.update(rows)
    assert [design.choose(q) for q in (low, high)] == [DEFAULT, RING]
    assert bisection_points(design, [low, high], rows) == [low.with_size(72)]


def test_an_experiment_asks_for_the_default_only_where_it_is_one_of_the_choices() -> None:
    point = CallPoint("bcast", 2, 1, "host", 1024)
    with_default, without = chosen_calls(
        [Experiment(point, (DEFAULT, RING), 1.0), Experiment(point, (RING,), 1.0)]
    )
    assert with_default.with_default
    assert not without.with_default
    assert with_default.choices == without.choices == (RING,)
