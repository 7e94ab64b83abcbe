"""What is chosen after a look at the results, and what does not fit into a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.ranks import CALL, NOWHERE, REQUEST, RING, Ranks
from tuner.base.errors import InputError, ProbeError
from tuner.calibrate import calibrate
from tuner.core.collective import Collective
from tuner.core.measurement import Measurement, read_measurements, read_partial
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.probe.batches import ExperimentRequest, read_batches, request_record
from tuner.probe.multi_host import plan_cluster, plan_experiments, probe_cluster, probe_experiments
from tuner.probe.probe_spec import ProbeShape, spec_of_this_computer


def calls(series: Sequence[Measurement]) -> list[tuple[str, str, int]]:
    return [(s.kind, s.algorithm, s.launch) for s in series if s.subject == "allreduce"]


def test_a_round_measures_just_what_was_chosen_beside_the_default() -> None:
    plan = plan_experiments(
        REQUEST, [CALL, replace(CALL, choices=(AlgorithmChoice("linear"),))], launch=3
    )
    (point,) = plan.points
    assert (point.launch, point.nodes, point.nbytes) == (3, 4, 65536)
    assert [arm.choice for arm in point.candidates] == [
        AlgorithmChoice(),
        *CALL.choices,
        AlgorithmChoice("linear"),
    ]


def test_a_round_may_leave_out_the_default_and_files_say_so() -> None:
    """Records of rounds with the default are those of older programs, which always measured it."""
    without = replace(CALL, with_default=False)
    (point,) = plan_experiments(REQUEST, [without]).points
    assert tuple(arm.choice for arm in point.candidates) == CALL.choices
    assert "with_default" not in request_record(CALL)
    assert request_record(without)["with_default"] is False
    with pytest.raises(InputError, match="name what to measure"):
        plan_experiments(REQUEST, [replace(without, choices=())])


def test_messages_of_this_computer_are_measured_by_as_few_ranks_as_they_need() -> None:
    plan = plan_cluster(spec_of_this_computer("openmpi", 4))
    assert {n: plan.for_launch(n).ranks for n in range(plan.launches)} == {0: 2, 1: 4}
    assert plan.hosts == ()
    pairs = {(point.launch, point.p) for point in plan.points if point.kind == "pingpong"}
    assert pairs == {(0, 2), (1, 4)}


def test_a_batch_on_this_computer_has_a_launch_for_each_number_of_ranks(tmp_path: Path) -> None:
    spec, out = spec_of_this_computer("openmpi", 4), tmp_path / "measurements.ndjson"
    chosen = [replace(CALL, nodes=1, ppn=p, nbytes=n) for p in (4, 2) for n in (1024, 2048)]
    first = plan_cluster(spec).launches
    found = probe_experiments(out, spec, Ranks(), chosen)
    launches = {(one.launch, one.p) for one in found.series if one.subject == "allreduce"}
    assert launches == {(first, 4), (first + 1, 2)}
    again = probe_experiments(out, spec, Ranks(), chosen[:1])
    assert max(one.launch for one in again.series) == first + 2


def test_a_batch_without_messages_leaves_them_out_on_this_computer(tmp_path: Path) -> None:
    spec, out, ranks = spec_of_this_computer("openmpi", 2), tmp_path / "m.ndjson", Ranks()
    chosen = [replace(CALL, nodes=1, ppn=2)]
    found = probe_experiments(out, spec, ranks, chosen, skip_first_plan=True)
    assert {one.subject for one in found.series} == {"allreduce"}
    assert [plan.ranks for plan in ranks.plans] == [2]


def test_small_shapes_of_a_round_are_measured_side_by_side() -> None:
    small = [
        ExperimentRequest(Collective.BCAST, 2, 1, n, (AlgorithmChoice("linear"),))
        for n in (1024, 2048)
    ]
    points = plan_experiments(REQUEST, small).points
    assert {point.first_host for point in points} == {0, 2}
    assert len({point.concurrency_group for point in points} - {0}) == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"nodes": 5}, "shape 5x1 does not fit"),
        ({"nbytes": 6}, "multiples of 4"),
        ({"collective": Collective.ALLGATHER, "nbytes": 1028}, "no whole share"),
        ({"choices": (AlgorithmChoice("nonsense"),)}, "no allreduce algorithm 'nonsense'"),
        (
            {"choices": (AlgorithmChoice("nonsense", runner=SCHEDULE),)},
            "unknown allreduce algorithm 'nonsense'",
        ),
    ],
)
def test_rounds_that_cannot_be_measured(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        plan_experiments(REQUEST, [replace(CALL, **change)])


def test_rounds_append_to_one_file(tmp_path: Path) -> None:
    out, ranks = tmp_path / "m.ndjson", Ranks()
    first = probe_cluster(out, REQUEST, ranks, budget=10.0)
    second = probe_experiments(out, REQUEST, ranks, [CALL], budget=5.0)
    third = probe_experiments(out, REQUEST, ranks, [CALL], budget=6.0)
    assert second.series[: len(first.series)] == first.series
    assert calls(second.series) == [
        ("collective", "default", 1),
        ("collective", "ring", 1),
        ("schedule", "ring", 1),
    ]
    assert {launch for *_, launch in calls(third.series)} == {1, 2}
    assert ranks.budgets == pytest.approx([10.0, 5.0, 6.0])
    assert read_batches(out) == [(CALL,), (CALL,)]
    assert probe_cluster(out, REQUEST, ranks).series == third.series
    assert len(ranks.plans) == 3
    assert third.provenance["excluded"] == []


def test_a_round_that_was_killed_is_resumed_without_knowing_why_it_was_chosen(
    tmp_path: Path,
) -> None:
    out, ranks = tmp_path / "m.ndjson", Ranks()
    probe_cluster(out, REQUEST, ranks)
    other = replace(CALL, nbytes=2**18)
    mortal = Ranks(dies=lambda point: point.nbytes == other.nbytes)
    with pytest.raises(ProbeError, match="a host was lost"):
        probe_experiments(out, REQUEST, mortal, [CALL, other])
    _, before, ended = read_partial(out)
    assert not ended
    found = probe_cluster(out, REQUEST, ranks)
    assert found.series[: len(before)] == tuple(before)
    assert {s.nbytes for s in found.series if s.subject == "allreduce"} == {65536, 2**18}
    assert [point.nbytes for point in ranks.plans[-1].points] == [2**18]


def test_points_that_do_not_fit_are_left_out_and_named_until_the_budget_is_larger(
    tmp_path: Path,
) -> None:
    out = tmp_path / "m.ndjson"
    few = Ranks(fits=lambda point: point.kind != "exchange")
    found = probe_cluster(out, REQUEST, few, budget=10.0)
    (note,) = [note for note in found.provenance["notes"] if "left out for want of time" in note]
    assert "exchange network 2x1" in note
    assert "larger --budget" in note
    assert found.provenance["excluded"] == []
    assert probe_cluster(out, REQUEST, few, budget=10.0).series == found.series
    assert len(few.plans) == 1
    more = Ranks()
    whole = probe_cluster(out, REQUEST, more, budget=20.0)
    assert {point.kind for point in more.plans[0].points} == {"exchange"}
    assert 9.0 < more.budgets[0] <= 20.0
    assert len(whole.series) > len(found.series)
    assert not [note for note in whole.provenance["notes"] if "left out for want of time" in note]
    assert read_measurements(out).series == whole.series


def test_a_round_does_not_measure_what_the_plan_left_out(tmp_path: Path) -> None:
    out = tmp_path / "m.ndjson"
    few = Ranks(fits=lambda point: point.kind != "exchange")
    probe_cluster(out, REQUEST, few, budget=10.0)
    found = probe_experiments(out, REQUEST, few, [CALL], budget=50.0)
    assert [point.kind for point in few.plans[-1].points] == ["collective"]
    assert any("left out for want of time" in note for note in found.provenance["notes"])


def test_a_round_may_be_content_with_less_certainty(tmp_path: Path) -> None:
    out, ranks = tmp_path / "m.ndjson", Ranks()
    probe_cluster(out, REQUEST, ranks)
    found = probe_experiments(out, REQUEST, ranks, [CALL], ci_half_width=1.0)
    assert [plan.ci_half_width for plan in ranks.plans] == [REQUEST.ci_half_width, 1.0]
    assert found.provenance["target"] == REQUEST.ci_half_width
    assert probe_cluster(out, REQUEST, ranks).series == found.series
    probe_experiments(
        out, REQUEST, ranks, [CALL], ci_half_width=0.0
    )  # never content: the budget ends it
    assert ranks.plans[-1].ci_half_width == 0.0


def test_what_cannot_be_had_takes_no_time_from_the_rounds(tmp_path: Path) -> None:
    out, two = tmp_path / "m.ndjson", replace(REQUEST, ppn=2)
    ranks = Ranks(lacks=lambda point: point.cross_socket, refused=RING)
    probe_cluster(out, two, ranks, budget=10.0)
    assert any(point.cross_socket for point in ranks.plans[0].points)
    for nbytes in (65536, 2**18):
        found = probe_experiments(out, two, ranks, [replace(CALL, nbytes=nbytes)], budget=5.0)
    assert [{point.launch for point in plan.points} for plan in ranks.plans] == [{0}, {1}, {2}]
    assert ranks.budgets == pytest.approx([10.0, 5.0, 5.0])
    told = found.provenance["excluded"]
    assert f"pingpong cross_socket 1x2: {NOWHERE}" in told
    assert [line.partition(": ring: ")[2] for line in told if "allreduce" in line] == [
        "refused: MPI_ERR_ARG",
        "refused: MPI_ERR_ARG",
    ]
    assert not any("wrong result" in line for line in told)


def test_points_that_a_larger_budget_takes_up_are_resumed_after_a_death(tmp_path: Path) -> None:
    out = tmp_path / "m.ndjson"
    few = Ranks(fits=lambda point: point.kind != "exchange")
    found = probe_cluster(out, REQUEST, few, budget=10.0)
    with pytest.raises(ProbeError, match="a host was lost"):
        probe_cluster(out, REQUEST, Ranks(dies=lambda _: True), budget=20.0)
    more = Ranks()
    whole = probe_cluster(out, REQUEST, more, budget=20.0)
    assert {point.kind for point in more.plans[0].points} == {"exchange"}
    assert len(whole.series) > len(found.series)
    assert "left_out" not in whole.provenance


def test_other_collectives_and_our_schedules_are_planned() -> None:
    request = replace(
        REQUEST,
        parts=("collectives",),
        shapes=(ProbeShape(3, 1),),
        sizes=(4096, 2**16),
        collectives=(Collective.ALLGATHER, Collective.BCAST),
        schedules=("ring", "pipeline"),
    )
    points = [point for point in plan_cluster(request).points if point.kind == "collective"]
    assert {(q.subject, q.nbytes) for q in points} == {
        ("allgather", 4092),
        ("allgather", 65532),
        ("bcast", 4096),
        ("bcast", 2**16),
    }
    ours = {
        (q.subject, arm.algorithm) for q in points for arm in q.candidates if arm.runner == SCHEDULE
    }
    assert ours == {("allgather", "ring"), ("bcast", "pipeline")}
    keys = [
        (point.key, point.to_measurement(arm, ())) for point in points for arm in point.candidates
    ]
    assert len({repr(key) for key in keys}) == len(keys)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"collectives": ()}, "name one"),
        ({"collectives": (Collective.REDUCE_SCATTER,)}, "no candidates for reduce_scatter"),
        ({"schedules": ("nonsense",)}, "unknown algorithm 'nonsense': choose one of all, "),
    ],
)
def test_collectives_that_cannot_be_measured(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        plan_cluster(replace(REQUEST, **change))


@pytest.mark.parametrize(
    "why",
    [
        "permission denied for /opt/py: the user must be able to use it",
        "a host cannot be reached (Permission denied): check that `ssh HOST true` works",
    ],
)
def test_a_probe_does_without_two_ranks_of_one_host_and_says_so(tmp_path: Path, why: str) -> None:
    found = probe_cluster(tmp_path / "m.ndjson", REQUEST, Ranks(alone=why))
    assert {one.kind for one in found.series} >= {"pingpong", "overhead"}
    notes = found.provenance["notes"]
    assert [
        note
        for note in notes
        if note.startswith(f"two ranks on a alone could not be measured ({why})")
    ] == notes[:1]
    assert found.provenance["loopback"] == {}
    assert calibrate(found)


def test_a_probe_killed_before_its_first_sample_measures_the_loopback_again(tmp_path: Path) -> None:
    out = tmp_path / "m.ndjson"
    with pytest.raises(ProbeError, match="a host was lost"):
        probe_cluster(out, REQUEST, Ranks(dies=lambda _: True))
    assert out.exists()
    assert probe_cluster(out, REQUEST, Ranks()).provenance["loopback"] != {}


def test_a_round_without_messages_starts_no_ranks_for_the_loopback(tmp_path: Path) -> None:
    """The ranks of the loopback would end this probe."""
    ranks = Ranks(alone="host a cannot be reached (No route to host): check that it runs")
    found = probe_experiments(
        tmp_path / "m.ndjson", REQUEST, ranks, [CALL], budget=50.0, skip_first_plan=True
    )
    assert {one.kind for one in found.series} == {"collective", "schedule"}
    assert "loopback" not in found.provenance


def test_a_file_that_is_no_text_ends_a_probe_with_a_sentence(tmp_path: Path) -> None:
    out = tmp_path / "m.ndjson"
    out.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"m\.ndjson"):
        probe_cluster(out, REQUEST, Ranks())


def test_a_host_that_is_not_there_ends_a_probe_at_once(tmp_path: Path) -> None:
    ranks = Ranks(alone="host a cannot be reached (No route to host): check that it runs")
    with pytest.raises(ProbeError, match="host a cannot be reached"):
        probe_cluster(tmp_path / "m.ndjson", REQUEST, ranks)
    assert ranks.plans == []
