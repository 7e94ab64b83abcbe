"""Where a tuning run measures beside the sizes that it was given."""

from dataclasses import replace

from tests.unit.test_design import DEFAULT, RING, SLOW, TREE, candidates, grid, simulated
from tuner.core.collective import Collective
from tuner.core.path_classes import CONSECUTIVE, CYCLIC, PLACEMENTS
from tuner.core.table import Choice
from tuner.launch import Hosts
from tuner.probe.batches import Chosen
from tuner.probe.multi_host import plan_chosen
from tuner.probe.probe_spec import Request, Shape
from tuner.select.acquisition import Task
from tuner.select.dataset import Point, Row
from tuner.select.experiment_design import Design
from tuner.workflows.candidates import candidates as asked_for
from tuner.workflows.candidates import chosen_of, halfway

FAR = (1024, 16384, 262144)


def point(nodes: int, nbytes: int) -> Point:
    return Point("bcast", nodes, 1, "host", nbytes)


def designed(sizes: tuple[int, ...] = FAR) -> tuple[Design, list[Point]]:
    """Of 8 and 16 nodes, of which everything is known at these sizes."""
    own = {q: c for q, c in candidates().items() if q.nodes >= 8 and q.nbytes in sizes}
    design = Design(own, simulated)
    design.learn(row for row in grid().rows if row.point in own)
    return design, list(own)


def test_where_the_choice_changes_far_apart_it_is_measured_halfway() -> None:
    design, points = designed()
    rows = [row for row in grid().rows if row.point in points]
    said = {q: design.choose(q) for q in points}
    assert said[point(8, 1024)] == Choice()
    assert said[point(8, 262144)] == RING
    found = halfway(design, points, rows)
    assert found
    for q in found:
        low, high = q.at(q.nbytes // 4), q.at(q.nbytes * 4)
        assert said[low] != said[high]
    changes = sum(
        said[point(n, a)] != said[point(n, b)]
        for n in (8, 16)
        for a, b in ((1024, 16384), (16384, 262144))
    )
    assert len(found) == changes


def test_halfway_points_are_between_calls_of_one_placement() -> None:
    """Sorted by size alone the two kinds would stand between one another."""
    seconds: dict[tuple[Point, Choice], float] = {}
    for kind in PLACEMENTS:
        low = Point("bcast", 2, 2, "host", 1024, kind)
        for q, default in ((low, 1e-5), (low.at(65536), 1e-2)):
            seconds |= {(q, DEFAULT): default, (q, RING): 1e-4}
    rows = [Row(q, choice, {}, t, t, t, t) for (q, choice), t in seconds.items()]
    points = [q for q, choice in seconds if choice == RING]
    design = Design(dict.fromkeys(points, (RING,)), simulated)
    design.learn(rows)
    expected = {Point("bcast", 2, 2, "host", 8192, kind) for kind in PLACEMENTS}
    assert set(halfway(design, points, rows)) == expected


def test_both_placements_of_a_shape_are_asked_for_and_chosen() -> None:
    request = Request(
        "openmpi",
        Hosts(("a", "b")),
        2,
        shapes=(Shape(2, 1), Shape(2, 2)),
        placements=PLACEMENTS,
        sizes=(4096,),
    )
    found = asked_for(request)
    kinds = {(q.ppn, q.placement) for q in found}
    assert kinds == {(1, CONSECUTIVE), (2, CONSECUTIVE), (2, CYCLIC)}
    chosen = chosen_of([Task(q, (DEFAULT, RING), 1.0) for q in found])
    assert {(one.ppn, one.placement) for one in chosen} == kinds


def test_what_is_a_point_already_or_was_not_measured_is_left_alone() -> None:
    design, points = designed()
    rows = [row for row in grid().rows if row.point in points]
    found = halfway(design, points, rows)
    design.widen(dict.fromkeys(found, (TREE, RING, SLOW)))
    assert halfway(design, [*points, *found], rows) == []
    assert halfway(design, points, [row for row in rows if row.point.nbytes == 1024]) == []


def test_sizes_that_are_near_need_none_between() -> None:
    design, points = designed((1024, 4096, 16384))
    rows = [row for row in grid().rows if row.point in points]
    assert halfway(design, points, rows)
    doubled = [replace(row, point=row.point.at(2 * row.point.nbytes)) for row in rows]
    more = [q.at(2 * q.nbytes) for q in points]
    design.widen(dict.fromkeys(more, (TREE, RING, SLOW)))
    design.learn([*rows, *doubled])
    assert halfway(design, [*points, *more], [*rows, *doubled]) == []


def test_where_every_rank_has_a_share_sizes_are_whole_shares() -> None:
    """Of 3 ranks few of the usual sizes are; one that cannot be measured would end the tuning."""
    request = Request(
        "openmpi",
        Hosts(("a", "b", "c")),
        1,
        shapes=(Shape(2, 1), Shape(3, 1)),
        collectives=(Collective.ALLGATHER, Collective.BCAST),
    )
    found = asked_for(request)
    assert {q.nbytes for q in found if q.p == 3 and q.collective == "bcast"} == {*request.sizes}
    assert len(set(found)) == len(found)
    chosen = [Chosen(Collective(q.collective), q.nodes, q.ppn, q.nbytes, ()) for q in found]
    assert len(plan_chosen(request, chosen).points) == len(chosen)


def test_halfway_of_whole_shares_is_whole_shares() -> None:
    low = Point("allgather", 3, 1, "host", 12)
    high = low.at(540)
    seconds = {(low, DEFAULT): 1e-5, (low, RING): 2e-5, (high, DEFAULT): 1e-3, (high, RING): 1e-4}
    rows = [Row(*pair, {}, t, t, t, t) for pair, t in seconds.items()]
    design = Design({low: (RING,), high: (RING,)}, simulated)
    design.learn(rows)
    assert [design.choose(q) for q in (low, high)] == [DEFAULT, RING]
    assert halfway(design, [low, high], rows) == [low.at(72)]
