"""Tuning within a budget: what comes first, what is borrowed, and how time is accounted for."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from mpi4py import MPI

from tests.support.budgets import (
    FLAT,
    SOCKETS,
    TWO,
    Never,
    Slow,
    borrowed,
    messages_of,
    plan_of,
    tuned,
)
from tests.support.designs import candidates as candidates_of_grid
from tests.support.designs import simulated
from tests.support.ranks import Ranks
from tests.support.waiting import be_slow, patience
from tuner.base.errors import InputError, ProbeError
from tuner.calibrate import calibrate
from tuner.core.calibration import PathCost, calibration_from_record, calibration_record
from tuner.core.measurement import REQUESTED_CALLS_KEY, Measurement, read_measurements, read_partial
from tuner.core.path_classes import CROSS_SOCKET, HOST, NETWORK, NODE
from tuner.core.table import SIMULATED, AlgorithmChoice, TuningTable, read_table, write_table
from tuner.machines.topology_files import parse_topology
from tuner.probe import pointtopoint
from tuner.probe.deadline import format_deadline, seconds_until
from tuner.probe.monitor import ProbeProgress
from tuner.probe.multi_host import earlier_run, plan_cluster, probe_cluster
from tuner.probe.p2p_points import COARSE_INDEX_BASE
from tuner.probe.probe_file import BEGAN_KEY, SPENT_KEY, TUNING_KEY
from tuner.probe.probe_plan import MAX_EAGER_BYTES, RECEIVER_DELAY_S, ProbePoint
from tuner.probe.probe_spec import ProbeShape
from tuner.select.build_table import default_table, make_table
from tuner.select.constraints import Constraints
from tuner.select.dataset import CallPoint as Call
from tuner.select.experiment_design import ExperimentDesign
from tuner.select.simulated_times import Simulator
from tuner.sim.warmup import compile_within
from tuner.topology import Topology
from tuner.workflows import active_tuning, time_limit
from tuner.workflows.active_tuning import StoppingRule, run_active_tuning
from tuner.workflows.batches import ProbeLaunches
from tuner.workflows.candidates import candidate_points, order_points
from tuner.workflows.time_limit import (
    SchedulingTimes,
    TimeLimit,
    process_age,
    read_scheduling_times,
    slowdown_between,
)

pytestmark = pytest.mark.slow

LOCAL = parse_topology(
    "{name: flat, nodes: 4, latency: 200us, bandwidth: 100Mbit/s,"
    " local: {latency: 3us, bandwidth: 2GB/s}}"
)[1]


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No compiler, so that nobody asks the ranks what the default runs."""
    monkeypatch.setenv("PATH", str(tmp_path))


def names(points: Sequence[ProbePoint]) -> list[tuple[str, str]]:
    return [(point.kind, point.subject) for point in points]


# What is measured first


def test_a_few_sizes_of_every_class_come_before_all_sizes_of_one() -> None:
    points = plan_of(TWO).points
    whole = next(
        n for n, q in enumerate(points) if q.kind == "pingpong" and q.index < COARSE_INDEX_BASE
    )
    before = names(points[:whole])
    assert before[:3] == [("call", "proc_null"), ("pingpong", NETWORK), ("pingpong", NODE)]
    assert {("burst", NETWORK), ("eager", NETWORK), ("burst", NODE), ("eager", NODE)} <= {*before}
    assert ("reduction", "sum_float32") in before
    later = {kind for kind, _ in names(points[whole:])}
    assert {"exchange", "fan", "pairs", "ahead"} <= later
    assert {kind for kind, _ in before} == {
        "call",
        "pingpong",
        "burst",
        "eager",
        "reduction",
        "sentinel",
    }


def test_few_sizes_take_a_small_part_of_the_time_of_all() -> None:
    plan = plan_of(TWO)
    coarse = sum(point.weight for point in plan.points if point.index >= COARSE_INDEX_BASE)
    assert 0 < coarse < 0.1 * plan.total_weight


@pytest.mark.representative("topology0")
@pytest.mark.parametrize("topology", [FLAT, LOCAL])
def test_wherever_messages_are_cut_off_every_call_can_be_simulated(topology: Topology) -> None:
    request = replace(TWO, topology=topology)
    points = plan_of(request).points
    for count in (2, 3, 5, 8, 9, 12, 16, 24, len(points)):
        measured = messages_of(points[:count], request)
        simulate = Simulator(calibrate(measured, topology), topology)
        for call in candidate_points(request):
            name = "binomial" if call.collective == "bcast" else "ring"
            assert simulate(call, AlgorithmChoice(name)) > 0


def test_of_sizes_that_were_measured_twice_the_ladder_of_more_sizes_counts() -> None:
    points = [q for q in plan_of(TWO).points if names([q]) == [("pingpong", NETWORK)]]
    coarse, whole = (messages_of([q], TWO).series for q in points)
    slow = [replace(one, samples=tuple(5 * t for t in one.samples)) for one in coarse]
    both, alone = (
        calibrate(replace(messages_of([], TWO), series=tuple(found)), FLAT).path_cost(NETWORK)
        for found in ([*slow, *whole], whole)
    )
    assert both.segments == alone.segments
    few = [one for one in whole if one.nbytes in (8, 4096, 2**18)]
    assert calibrate(replace(messages_of([], TWO), series=(*coarse, *few)), FLAT)


def test_any_number_of_the_first_points_is_spread_over_all() -> None:
    request = replace(
        TWO,
        shapes=tuple(ProbeShape(n, k) for n in (2, 3, 4) for k in (1, 2)),
        sizes=tuple(4**k for k in range(1, 11)),
    )
    points = order_points(candidate_points(request))
    assert sorted(points) == sorted(candidate_points(request))
    first = points[:12]
    assert {point.collective for point in first} == {"bcast", "allreduce"}
    assert first[0].p == 8  # the largest
    assert len({(q.nodes, q.ppn) for q in first}) > 1
    assert len({q.nbytes for q in first}) > 2


@pytest.mark.parametrize("limit", [1, 700, 1024, 4096, 65480, 65536, 2**20 - 1, 2**21])
def test_the_eager_limit_is_found_without_messages_much_longer_than_it(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []

    def sends(_comm: object, buffer: bytes) -> list[float]:
        sent.append(len(buffer))
        return [RECEIVER_DELAY_S if len(buffer) >= limit else 0.0] * pointtopoint.EAGER_TRIALS

    monkeypatch.setattr(pointtopoint, "_measure_blocked_sends", sends)
    found, blocked = pointtopoint.measure_eager_limit(MPI.COMM_SELF, MAX_EAGER_BYTES)
    assert max(sent) <= max(2 * limit, pointtopoint.EAGER_START_BYTES)
    if limit > MAX_EAGER_BYTES:
        assert (found, blocked[0]) == (MAX_EAGER_BYTES, 0.0)
        return
    assert blocked[0] == RECEIVER_DELAY_S
    assert limit <= found <= limit * (1 + 1 / pointtopoint.EAGER_PRECISION) + 1
    for power in (2**k for k in range(21)):  # sizes of collectives are powers of two
        assert (power >= found) == (power >= limit)


# What is borrowed


def test_messages_within_a_node_are_those_of_the_topology_file() -> None:
    found = borrowed(LOCAL)
    cost = found.path_cost(NODE).segments[0]
    assert (cost.alpha.value, cost.beta.value) == pytest.approx((3e-6, 5e-10))
    assert cost.alpha.low < 0.6 * cost.alpha.value < cost.alpha.value < 0.6 * cost.alpha.high
    notes = found.borrowed_costs
    assert notes[NODE] == (
        "no time was left to measure messages within a node: taken from the topology file"
    )
    assert calibration_from_record(calibration_record(found)).borrowed_costs == notes
    assert found.borrowed_costs[""].startswith("no time was left to measure reductions")
    assert found.reduction[HOST].gamma.value > 0


def test_without_a_topology_file_that_says_it_they_are_typical() -> None:
    for topology in (FLAT, None):
        found = borrowed(topology)
        cost = found.path_cost(NODE).segments[0]
        assert cost.beta.high >= 50 * cost.beta.low > 0
        assert found.borrowed_costs[NODE].endswith(
            "taken from what is typical of a computer's memory"
        )


def test_another_class_within_the_node_is_nearer_than_the_topology_file() -> None:
    found = borrowed(SOCKETS, NODE)
    assert found.path_cost(CROSS_SOCKET).seconds(8) == pytest.approx(
        found.path_cost(NODE).seconds(8)
    )
    assert found.borrowed_costs[CROSS_SOCKET].endswith("taken from messages within a node")
    assert NODE not in found.borrowed_costs
    assert borrowed(SOCKETS).borrowed_costs[CROSS_SOCKET].endswith("taken from the topology file")


def test_nothing_is_borrowed_by_files_of_other_probes_nor_where_all_was_measured() -> None:
    measured = messages_of(plan_of(TWO).points, TWO)
    assert calibrate(measured, FLAT).borrowed_costs == {}
    other = replace(messages_of(plan_of(TWO).points[:2], TWO), provenance={})
    assert (NODE, HOST) not in calibrate(other, FLAT).paths
    with pytest.raises(InputError, match="lacks what a calibration needs"):
        calibrate(replace(other, series=()), FLAT)


def test_without_any_message_the_topology_says_what_they_cost() -> None:
    found = calibrate(messages_of([], TWO), FLAT)
    assert 1 / found.path_cost(NETWORK).segments[0].beta.value == pytest.approx(12.5e6)
    assert found.borrowed_costs[NETWORK].endswith("taken from the topology file")
    with pytest.raises(InputError, match="lacks what a calibration needs"):
        calibrate(messages_of([], TWO))


@pytest.mark.parametrize("damaged", [None, "x", [1], [{"nodes": "2", "ppn": 1}], [{}]])
def test_damaged_wishes_borrow_nothing(damaged: object) -> None:
    measured = messages_of(plan_of(TWO).points[:2], TWO)
    spoiled = replace(measured, provenance={**measured.provenance, REQUESTED_CALLS_KEY: damaged})
    assert calibrate(spoiled, FLAT).borrowed_costs == {}


def test_no_rule_rests_on_a_simulation_with_borrowed_costs_alone() -> None:
    """The pipeline wins by far on two hosts; on four it was not measured, only simulated."""
    shapes = (ProbeShape(2, 2), ProbeShape(4, 2))
    request = replace(TWO, sizes=(4096, 65536, 2**18, 2**20), shapes=shapes)
    measured = messages_of(plan_of(request).points, request)
    truth = Simulator(calibrate(measured, FLAT), FLAT)
    fast, slow = AlgorithmChoice("pipeline", {"segment": 8192}), AlgorithmChoice("linear")
    series = list(measured.series)
    for nodes, sizes, choices in (
        (2, request.sizes, (AlgorithmChoice(), fast, slow)),
        (4, (4096, 2**20), (AlgorithmChoice(), slow)),
    ):
        for call in (Call("bcast", nodes, 2, HOST, nbytes) for nbytes in sizes):
            for choice in choices:
                seconds = truth(call, slow if choice.is_default else choice)
                taken = tuple(seconds * (1 + 0.001 * k) for k in range(8))
                series.append(
                    Measurement(
                        "collective",
                        "bcast",
                        nodes,
                        2,
                        call.p,
                        call.nbytes,
                        taken,
                        choice.algorithm,
                        choice.params,
                        launch=1,
                    )
                )
    about = {**measured.provenance, "rounds": [[{}]]}
    whole = replace(measured, series=tuple(series), provenance=about)
    cheap = PathCost.from_alpha_beta(1e-6, 1e-10)
    calibration = calibrate(whole, FLAT)
    trusted = replace(calibration, paths={**calibration.paths, (NODE, HOST): cheap})
    note = [{"path": NODE, "memory": HOST, "note": "taken from elsewhere"}]
    doubted = replace(trusted, provenance={**trusted.provenance, "borrowed": note})
    tables = [make_table(whole, one, topology=FLAT)[1] for one in (trusted, doubted)]
    bases = [
        {rule.evidence.basis for rule in table.rules if not rule.choice.is_default}
        for table in tables
    ]
    assert SIMULATED in bases[0]
    assert SIMULATED not in bases[1]
    assert tables[1].provenance["borrowed"] == ["taken from elsewhere"]
    assert "borrowed" not in tables[0].provenance


# A table under every budget


def first_points(count: int) -> Callable[[ProbePoint], bool]:
    """Time for so many messages, and for every collective."""
    own = {point.key for point in plan_of(TWO).points[:count]}
    return lambda point: point.kind == "collective" or point.key in own


@pytest.mark.representative("0", "8")
@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8, 10, 16, 30])
def test_however_many_messages_there_is_time_for_there_is_a_table(
    count: int, tmp_path: Path
) -> None:
    found, listener = tuned(tmp_path / "m.ndjson", Ranks(fits=first_points(count)))
    write_table(found.table, tmp_path / "t.json")
    keys = {(k.collective, k.nodes, k.ppn) for k in read_table(tmp_path / "t.json").keys}
    assert keys == {(name, n, k) for name in ("bcast", "allreduce") for n, k in ((2, 1), (4, 2))}
    assert found.calibration is not None
    measured = {(s.kind, s.subject) for s in found.measurements.series}
    assert ("collective", "bcast") in measured
    lacking = ("pingpong", NODE) not in measured
    assert lacking == any("messages within a node" in note for note in listener.notes)
    assert lacking == (NODE in found.calibration.borrowed_costs)


@pytest.mark.extended
def test_without_time_for_any_call_the_table_leaves_everything_to_the_library(
    tmp_path: Path,
) -> None:
    found, listener = tuned(tmp_path / "m.ndjson", Ranks(fits=lambda _: False))
    write_table(found.table, tmp_path / "t.json")
    table = read_table(tmp_path / "t.json")
    assert table.rules
    assert all(rule.choice.is_default and rule.stop_bytes == math.inf for rule in table.rules)
    assert any("no call was measured" in note for note in listener.notes)


@pytest.mark.extended
def test_a_short_budget_measures_calls_without_messages_and_a_longer_one_messages_too(
    tmp_path: Path,
) -> None:
    out, ranks = tmp_path / "m.ndjson", Ranks()
    found, listener = tuned(out, ranks, 15.0)
    assert {one.kind for one in found.measurements.series} == {"collective"}
    assert found.calibration is None
    assert found.regret_bound is None
    assert any("too little time to measure messages" in note for note in listener.notes)
    assert [{point.launch for point in plan.points} for plan in ranks.plans] == [{1}]
    assert not [
        p
        for plan in ranks.plans
        for q in plan.points
        for p in q.candidates
        if "segment" in p.params
    ]
    more, _ = tuned(out, ranks, 60.0)
    assert {"pingpong", "collective"} <= {one.kind for one in more.measurements.series}
    assert more.measurements.series[: len(found.measurements.series)] != ()
    assert TUNING_KEY not in read_measurements(out).provenance


@pytest.mark.parametrize("second", ["", "no time was left to compile"])
def test_a_simulation_that_cannot_be_compiled_at_once(
    second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not compile_within(patience(60))  # so that it takes no time below
    answers = iter(["no time was left to compile", second])
    monkeypatch.setattr(active_tuning, "compile_within", lambda *_: next(answers))
    large = replace(TWO, sizes=(1024, 1 << 20))
    found, listener = tuned(tmp_path / "m.ndjson", Ranks(), patience(60), large)
    sizes = [one.nbytes for one in found.measurements.series if one.kind == "collective"]
    assert {1024, 1 << 20} <= set(sizes)
    assert sizes[0] == 1024
    is_simulated = not second
    assert (found.calibration is not None) == is_simulated
    assert ("pingpong" in {one.kind for one in found.measurements.series}) == is_simulated
    assert listener.notes.count("no time was left to compile: some calls are measured without it")


def test_a_budget_for_nothing_is_refused_at_once_with_the_least_that_will_do(
    tmp_path: Path,
) -> None:
    out = tmp_path / "m.ndjson"
    sentence = (
        r"^3s do not suffice to measure anything: starting 8 ranks .* give --budget 10s or more$"
    )
    with pytest.raises(InputError, match=sentence):
        tuned(out, Never(), 3.0)
    with pytest.raises(InputError, match="give --budget 50s or more"):
        tuned(out, Never(), 3.0, slowdown=6.0)
    assert not out.exists()
    tuned(out, Ranks(), 10.0)


@pytest.mark.parametrize("budget", [20.0, 30.0, 34.0])
def test_calls_are_measured_even_where_a_busy_machine_seems_too_slow(
    budget: float, tmp_path: Path
) -> None:
    ranks = Slow()
    found, listener = tuned(tmp_path / "m.ndjson", ranks, budget, slowdown=6.0)
    assert {one.kind for one in found.measurements.series} == {"collective"}
    assert len(ranks.ends) == 1
    assert 0 < ranks.ends[0] < budget - 3.0  # the rest is for the table
    assert not [note for note in listener.notes if "no call was measured" in note]


def test_ranks_are_not_started_again_without_time_for_as_long_a_start_as_before(
    tmp_path: Path,
) -> None:
    launches = ProbeLaunches(
        tmp_path / "m.ndjson", TWO, Never(), TimeLimit(10.0), {}, lambda _: None
    )
    launches.limit.record_step("start", 12.0)
    assert launches.measure_without_messages(()) is None


@pytest.mark.extended
def test_what_was_measured_before_makes_a_table_under_any_budget(tmp_path: Path) -> None:
    out = tmp_path / "m.ndjson"
    before, _ = tuned(out, Ranks())
    found, listener = tuned(out, Never(), 1.0)
    assert found.measurements.series == before.measurements.series
    assert found.table.rules
    assert any(note.startswith("kept ") for note in listener.notes)


@pytest.mark.extended
def test_a_busy_machine_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, listener = tuned(tmp_path / "a.ndjson", Ranks(), 100.0, slowdown=3.0)
    assert listener.notes.count("the machine is busy: this takes about 3.0 times as long") == 1
    monkeypatch.setattr(
        time_limit, "read_scheduling_times", SchedulingTimes
    )  # whatever else runs here
    _, listener = tuned(tmp_path / "b.ndjson", Ranks(), slowdown=1.2)
    assert not [note for note in listener.notes if "busy" in note]


def test_a_machine_that_becomes_busy_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(
        [
            SchedulingTimes(0, 0),
            SchedulingTimes(3 * 10**8, 9 * 10**8),
            SchedulingTimes(),
            SchedulingTimes(1, 8),
        ]
    )
    monkeypatch.setattr(time_limit, "read_scheduling_times", lambda: next(times))
    limit = TimeLimit(100.0)
    for _ in range(2):  # the second one is too short to tell
        with limit.measure_step("choose"):
            pass
        assert limit.slowdown == 4.0


def test_fewer_rules_than_calls_and_shapes_are_refused_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match="has 4 rules at least, not 3: allow more"):
        run_active_tuning(
            tmp_path / "m.ndjson",
            TWO,
            Never(),
            StoppingRule(60.0, 1e-9),
            constraints=Constraints(max_rules=3),
        )


def test_the_default_table_has_a_rule_for_each_call_and_no_more_than_asked_for() -> None:
    measured = messages_of([], TWO)
    assert len(default_table(measured).rules) == 4
    assert len(default_table(measured, 3).rules) == 3
    assert isinstance(default_table(measured), TuningTable)


def test_a_design_asks_for_nothing_that_takes_longer_than_there_is() -> None:
    design = ExperimentDesign(candidates_of_grid(), simulated)
    assert sum(task.seconds for task in design.next_batch(1e-9)) > 1e-9
    assert design.next_batch(1e-9, 1e-9) == ()
    (task,) = ExperimentDesign(candidates_of_grid(), simulated).next_batch(1e-9, 10.0)
    assert 1e-9 < task.seconds <= 10.0


# Time


@pytest.mark.extended
def test_every_launch_is_to_end_within_the_budget(tmp_path: Path) -> None:
    ranks, budget = Slow(), 30.0
    tuned(tmp_path / "m.ndjson", ranks, budget)
    assert len(ranks.ends) > 1
    assert all(0 < end <= budget for end in ranks.ends)
    assert max(ranks.ends[1:]) < budget - 1.5 * 2.0


def test_what_ranks_take_to_start_is_learned_and_kept_free(tmp_path: Path) -> None:
    rooms = []
    for start in (1.0, 6.0):
        limit = TimeLimit(100.0)
        launches = ProbeLaunches(
            tmp_path / f"{start}.ndjson",
            replace(TWO, parts=("messages",)),
            Slow(start=start),
            limit,
            {},
            lambda _: None,
        )
        launches.measure_messages((), True)
        assert launches.start_seconds == pytest.approx(1.5 * start)
        rooms.append(limit.elapsed + launches.measuring_seconds)
    assert rooms[0] - rooms[1] == pytest.approx(1.5 * 5.0, abs=0.5)


def test_a_time_limit_counts_what_is_spent_and_what_steps_take() -> None:
    limit = TimeLimit(100.0, time.monotonic() - 10.0, slowdown=2.0)
    limit.spent_before = 30.0
    assert limit.elapsed == pytest.approx(10.0, abs=0.5)
    assert limit.remaining == pytest.approx(60.0, abs=0.5)
    assert limit.expected_duration("table", 3.0) == 6.0
    assert limit.expected_duration("other") == 0.0
    with limit.measure_step("table"):
        be_slow(0.01)
    assert 0.01 <= limit.latest_duration("table") < limit.expected_duration("table") < 1.0


def test_the_age_and_the_slowdown_of_a_process_are_plausible() -> None:
    assert 0 < process_age() < 1e6
    assert 1.0 <= slowdown_between(read_scheduling_times()) < 1e3
    assert slowdown_between(SchedulingTimes(300, 450), SchedulingTimes(100, 50)) == 3.0
    assert slowdown_between(SchedulingTimes(), SchedulingTimes()) == 1.0


def test_a_moment_is_the_same_for_programs_of_one_computer_alone() -> None:
    told = format_deadline(time.monotonic() + 5.0)
    assert seconds_until(told) == pytest.approx(5.0, abs=0.5)
    assert seconds_until(f"other-{told}") == math.inf


# Going on


def interrupted(out: Path, points: int, budget: float, seconds: float) -> None:
    """A run that was killed after so many points and seconds."""
    seen: list[ProbePoint] = []

    def dies(point: ProbePoint) -> bool:
        seen.append(point)
        return len(seen) > points

    with pytest.raises(ProbeError, match="a host was lost"):
        tuned(out, Ranks(dies=dies), budget)
    header = read_partial(out)[0]
    assert header is not None
    began = header["provenance"][TUNING_KEY][BEGAN_KEY]
    os.utime(out, (began + seconds, began + seconds))


def test_going_on_says_what_was_kept_and_begins_where_the_bar_was(tmp_path: Path) -> None:
    out = tmp_path / "m.ndjson"
    interrupted(out, 16, 60.0, 20.0)
    _, listener = tuned(out, Ranks(), 60.0)
    planned = len(plan_of(TWO).points)
    assert f"kept 16 of {planned} message points from the earlier run" in listener.notes
    fractions = [progress.fraction for progress in listener.shown]
    assert 0.33 <= fractions[0] < 0.45
    assert fractions == sorted(fractions)
    assert TUNING_KEY not in read_measurements(out).provenance


@pytest.mark.extended
def test_what_an_interrupted_run_spent_is_not_spent_again(tmp_path: Path) -> None:
    out, ranks = tmp_path / "m.ndjson", Slow()
    interrupted(out, 3, 60.0, 28.0)
    interrupted(out, 3, 60.0, 5.0)
    header = read_partial(out)[0]
    assert header is not None
    assert header["provenance"][TUNING_KEY][SPENT_KEY] == pytest.approx(28.0, abs=1.0)
    _, listener = tuned(out, ranks, 60.0)
    assert max(ranks.ends) < 60.0 - 33.0
    assert listener.shown[0].fraction > 33 / 60
    _, listener = tuned(out, ranks, 60.0)  # that run has ended: another budget
    assert listener.shown[0].fraction < 0.2


@pytest.mark.extended
def test_what_a_run_left_out_the_next_one_measures(tmp_path: Path) -> None:
    out = tmp_path / "m.ndjson"
    tuned(out, Ranks(fits=first_points(5)))
    again = Ranks()
    found, _ = tuned(out, again)
    assert {"exchange", "pairs"} <= {one.kind for one in found.measurements.series}
    assert all(budget > 0 for budget in again.budgets)


def test_a_probe_goes_on_where_its_bar_was_and_with_what_it_had_left(tmp_path: Path) -> None:
    out = tmp_path / "m.ndjson"
    request = replace(TWO, parts=("messages",))
    with pytest.raises(ProbeError, match="a host was lost"):
        probe_cluster(out, request, Ranks(dies=lambda q: q.kind == "exchange"), budget=60.0)
    header = read_partial(out)[0]
    assert header is not None
    began = header["provenance"][BEGAN_KEY]
    os.utime(out, (began + 20.0, began + 20.0))
    held = earlier_run(out, plan_cluster(request))
    assert (
        str(held) == f"kept {held.measured_points} of {held.planned_points} message points from the"
        " earlier run"
    )
    assert 0 < held.measured_points < held.planned_points
    ranks, shown = Ranks(), list[ProbeProgress]()
    found = probe_cluster(out, request, ranks, budget=60.0, on_progress=shown.append)
    assert ranks.budgets == pytest.approx([40.0], abs=0.5)
    assert 0.33 <= shown[0].fraction < 0.36
    assert found.provenance["seconds"] == pytest.approx(20.0, abs=1.0)
    assert not {BEGAN_KEY, SPENT_KEY} & {*found.provenance}


def test_nothing_is_said_of_an_earlier_run_where_there_was_none(tmp_path: Path) -> None:
    assert str(earlier_run(tmp_path / "m.ndjson", plan_of(TWO))) == ""
