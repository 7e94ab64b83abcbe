"""What-if studies: what they read, what they find, how they end."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tuner import algorithms
from tuner.base.errors import InputError, ScheduleError
from tuner.cli.main import main
from tuner.core.calibration import (
    Calibration,
    CostSegment,
    Estimate,
    PathCost,
    calibration_record,
    write_calibration,
)
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster
from tuner.core.schedule import Schedule
from tuner.core.table import (
    AlgorithmChoice,
    Evidence,
    Rule,
    RuleKey,
    TuningTable,
    table_record,
    write_table,
)
from tuner.machines import preset
from tuner.machines.topology_files import load_topology
from tuner.machines.yaml_machines import machine_from_yaml
from tuner.prediction.call_candidates import (
    Candidate,
    build_schedule,
    estimate_transfers,
    list_candidates,
    segment_count,
)
from tuner.sim import simulate
from tuner.topology import CUDA, HOST, NETWORK, NODE, NODE_OVERSUBSCRIBED, Placement, Topology
from tuner.topology.readers import nominal_calibration, topology_to_record
from tuner.topology.readers.yaml_topology import topology_from_yaml
from tuner.whatif import study_runner, study_spec, study_tasks
from tuner.whatif.axes import apply_axes, place_ranks
from tuner.whatif.checked_study import Study, study_record
from tuner.whatif.study_result import crossovers, result_record
from tuner.whatif.study_runner import CancelledError, run_study
from tuner.whatif.study_spec import study_from_record

BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE
LOCAL = {"latency": "300ns", "bandwidth": "10GB/s"}
FLAT = {
    "name": "flat8",
    "nodes": 8,
    "latency": "2us",
    "bandwidth": "12.5GB/s",
    "cores": 4,
    "local": LOCAL,
}
SPEC: dict[str, Any] = {
    "name": "twice",
    "topology": FLAT,
    "collectives": ["bcast", "allreduce"],
    "vary": {"nodes": [2, 8], "ppn": [1, 2], "bandwidth": ["12.5GB/s", "25GB/s"]},
    "sizes": ["1KiB", "256KiB"],
}
TREE = {
    "name": "tree",
    "nodes": ["a", "b", "c"],
    "switches": ["s", "t"],
    "links": [
        {"between": ["a", "s"], "latency": "1us", "bandwidth": "10GB/s"},
        {"between": ["b", "s"], "latency": "1us", "bandwidth": "10GB/s"},
        {"between": ["c", "t"], "latency": "1us", "bandwidth": "10GB/s"},
        {"between": ["s", "t"], "latency": "3us", "bandwidth": "40GB/s"},
    ],
}
ALONE = {"name": "alone", "nodes": ["a"], "links": []}
FEW = {"nodes": [2, 8]}  # places, where each is as good as another
NOWHERE = study_spec.FileResolver(Path("/nonexistent"))


def made(**changed: Any) -> Study:
    return study_from_record({**SPEC, **changed}, NOWHERE)


def table(*rules: tuple[Collective, int, int, AlgorithmChoice]) -> TuningTable:
    """One choice for all sizes of each (collective, nodes, ppn)."""
    return TuningTable(
        Cluster("old", 8, 4, "any", 2**30),
        "openmpi 5.0.11",
        tuple(
            Rule(RuleKey(c, nodes, ppn), 0, math.inf, choice, Evidence("measured"))
            for c, nodes, ppn, choice in rules
        ),
    )


@pytest.mark.extended
@pytest.mark.slow
def test_every_time_is_what_the_simulator_says() -> None:
    asked = made(vary={**SPEC["vary"], "bandwidth": ["25GB/s"]})
    result = run_study(asked)
    assert len(result.points) == 4 * 2 * 2 == asked.number_of_points
    for point in result.points:
        topology = topology_from_yaml(
            {
                **FLAT,
                "nodes": int(point.axis_values["nodes"]),
                "bandwidth": f"{point.axis_values['bandwidth']}B/s",
            }
        )
        placement = Placement.block(topology, int(point.axis_values["ppn"]))
        for timing in point.candidates:
            schedule = algorithms.build(
                point.collective,
                timing.algorithm,
                placement.p,
                nbytes=point.nbytes,
                params=timing.params,
            )
            expected = simulate(schedule, placement, nominal_calibration(topology), point.nbytes)
            assert timing.seconds == pytest.approx(expected, rel=1e-12)
        assert point.best.seconds <= min(t.seconds for t in point.candidates) * (1 + 1e-9)
        names = {timing.algorithm for timing in point.candidates}
        assert names == {
            name
            for name in algorithms.algorithm_names(point.collective)
            if placement.p > 2  # the least group is one of four: of all eight nodes, one per rank
            or "group" not in algorithms.describe(point.collective, name).params
        }


@pytest.mark.slow
def test_the_same_study_gives_the_same_record_and_records_come_back() -> None:
    asked = made(vary=FEW, table=table_record(table((BCAST, 2, 1, AlgorithmChoice("binomial")))))
    result = run_study(asked)
    text = json.dumps(result_record(result))
    assert json.dumps(result_record(run_study(asked))) == text
    again = study_from_record(json.loads(json.dumps(study_record(asked))), NOWHERE)
    assert study_record(again) == study_record(asked)
    assert result_record(run_study(again)) == result_record(result)


def test_switches_are_where_the_best_one_changes() -> None:
    """Along the size: few messages for short vectors, few bytes for long ones."""
    asked = made(
        vary={},
        collectives=["allreduce"],
        sizes=["8B", "64B", "1MiB", "16MiB"],
        algorithms=["recursive_doubling", "ring"],
    )
    result = run_study(asked)
    best = [point.best.algorithm for point in result.points]
    assert best == ["recursive_doubling"] * 2 + ["ring"] * 2
    (switch,) = result.crossovers
    assert (switch.axis, switch.lower_value, switch.upper_value) == ("nbytes", 64, 2**20)
    assert (switch.lower_best.algorithm, switch.upper_best.algorithm) == (
        "recursive_doubling",
        "ring",
    )
    assert switch.axis_values == {"nodes": 8, "ppn": 1, "memory": "host"}


def test_steps_along_an_axis_say_what_they_gain() -> None:
    """Twice the bandwidth is twice as fast for large messages, and gains nothing for small ones."""
    vary = {"nodes": [2], "bandwidth": ["10GB/s", "20GB/s", "40GB/s"]}
    study = made(vary=vary, collectives=["bcast"], sizes=[4, "1GiB"])
    steps = run_study(study).axis_steps
    assert [(step.axis, step.lower_value, step.upper_value) for step in steps] == [
        ("bandwidth", 10e9, 20e9),
        ("bandwidth", 20e9, 40e9),
    ]
    for step in steps:
        assert step.min_speedup == pytest.approx(1.0, abs=0.01)
        assert step.max_speedup == pytest.approx(2.0, abs=0.05)
        assert step.max_at["nbytes"] == 1 << 30


def test_a_step_from_one_rank_gains_nothing_that_can_be_said() -> None:
    study = made(vary={"nodes": [1, 2, 4]}, collectives=["bcast"], sizes=[1024])
    steps = run_study(study).axis_steps
    assert [(step.lower_value, step.upper_value) for step in steps] == [(2, 4)]


def test_a_tie_is_no_switch() -> None:
    """With two ranks every tree is the same; which name comes first means nothing."""
    points = run_study(made(vary={"nodes": [2]}, collectives=["bcast"])).points
    first, second = points[0], points[1]
    tied = [t for t in second.candidates if t.seconds == second.best.seconds]
    assert len(tied) > 1
    turned = replace(second, candidates=(*tied[::-1], *second.candidates[len(tied) :]))
    assert list(crossovers((first, turned), {"nodes": (2,)})) == []


def test_segments_are_offered_where_they_cut() -> None:
    def offered(nbytes: int) -> list[str]:
        names = ("pipeline", "segmented_ring", "ring")
        return [str(c) for c in list_candidates(ALLREDUCE, names[1:], 4, 1, nbytes)] + [
            str(c) for c in list_candidates(BCAST, names[:1], 4, 1, nbytes)
        ]

    assert offered(1024) == ["segmented_ring(segment=1MiB)", "ring", "pipeline"]
    assert offered(2**16) == [
        "segmented_ring(segment=1MiB)",
        "segmented_ring(segment=8KiB)",
        "ring",
        "pipeline",
        "pipeline(segment=8KiB)",
        "pipeline(segment=32KiB)",
    ]
    longer = [f"pipeline(segment={size}MiB)" for size in (2, 4, 8, 16, 32)]
    assert offered(2**28)[-6:] == ["pipeline", *longer]  # no thousands of pieces
    longest = [f"pipeline(segment={size}MiB)" for size in (8, 16, 32, 64, 128)]
    assert offered(2**30)[-6:] == ["pipeline", *longest]


@pytest.mark.parametrize(("taper", "gain"), [(1, 1.0), (2, 1.57), (4, 2.70)])
def test_serving_the_farthest_ranks_first_pays_on_tapered_fat_trees(
    taper: float, gain: float
) -> None:
    """Expect a gain: in four of seven rounds of `binomial` all ranks of a leaf send to others."""
    fabric = {"kind": "fat_tree", "per_leaf": 8, "latency": "1us", "bandwidth": "12.5GB/s"}
    tree = {"name": "tree", "nodes": 96, "fabric": {**fabric, "taper": taper}}
    trees = ["linear", "binary", "binomial", "binomial_distance_halving", "knomial"]
    asked = made(
        topology=tree, vary={}, collectives=["bcast"], sizes=["64KiB", "4MiB"], algorithms=trees
    )
    short, long = run_study(asked).points
    seconds = {str(one): one.seconds for one in long.candidates}
    ratio = seconds["binomial"] / seconds["binomial_distance_halving"]
    assert ratio == pytest.approx(gain, abs=0.01)
    assert (short.best.algorithm == "binomial_distance_halving") == (taper > 1)


def test_other_parameters_are_offered_where_they_differ() -> None:
    def offered(name: str, nodes: int, ppn: int) -> list[str]:
        return [str(c) for c in list_candidates(BCAST, (name,), nodes, ppn, 8)]

    assert offered("knomial", 64, 1) == ["knomial(radix=4)", "knomial(radix=8)"]
    assert offered("knomial", 4, 2) == ["knomial(radix=4)"]  # 8 is all of them
    assert offered("hierarchical", 4, 6) == ["hierarchical(group=6)"]  # the ranks of a node
    assert offered("hierarchical", 6, 1) == ["hierarchical(group=4)"]  # its own
    assert offered("hierarchical", 4, 1) == []  # that is all of them
    assert offered("hierarchical", 1, 6) == []  # one node
    assert offered("multicast", 6, 1) == ["multicast(group=1)"]  # to every node at once


def test_reductions_on_the_way_are_for_gpus_that_are_behind_such_switches() -> None:
    def offered(memory: str, nodes: int, ppn: int) -> set[str]:
        vary = {"nodes": [nodes], "ppn": [ppn], "memory": [memory]}
        asked = made(topology=asked_for, vary=vary, collectives=["allreduce"])
        return {
            n
            for n in asked.algorithm_names(ALLREDUCE, asked.grid[0])
            if n.startswith(("nvls", "col"))
        }

    asked_for: dict[str, Any] = {"preset": "dgx-h100", "nodes": 2}
    assert offered("host", 1, 8) == set()
    assert offered("cuda", 1, 8) == {"nvls"}
    assert offered("cuda", 2, 8) == {"nvls", "nvls_tree", "collnet_direct", "collnet_chain"}
    assert offered("cuda", 2, 1) == set()
    asked_for["gpu"] = "A100"
    assert offered("cuda", 2, 8) == {"collnet_direct", "collnet_chain"}


def test_what_a_preset_offers_can_be_withdrawn() -> None:
    def offered(*without: str) -> set[str]:
        asked = made(
            topology="preset:dgx-h100:2",
            vary={},
            collectives=["allreduce", "bcast"],
            **({"without": [*without]} if without else {}),
        )
        again = study_from_record(study_record(asked), NOWHERE)
        assert again.without == asked.without == without
        return {
            name
            for collective in (ALLREDUCE, BCAST)
            for name in again.algorithm_names(collective, again.grid[0])
            if name.startswith(("nvls", "collnet", "multicast"))
        }

    collnet, multicast = {"collnet_direct", "collnet_chain"}, {"multicast", "multicast_staged"}
    assert offered() == {"nvls", "nvls_tree", *collnet, *multicast}
    assert offered("multicast") == {"nvls", "nvls_tree", *collnet}
    assert offered("switch_reduction") == {"nvls_tree", *multicast}
    assert offered("multicast", "switch_reduction", "nvswitch_reduction") == set()


def test_what_is_withdrawn_is_so_for_every_gpu() -> None:
    """NVSwitches that reduce come with GPUs that can."""
    asked = made(
        topology="preset:dgx-a100:2",
        vary={"gpu": ["A100", "H100"]},
        collectives=["allreduce"],
        without=["nvswitch_reduction"],
    )
    for at in asked.grid:
        assert "nvls_tree" not in asked.algorithm_names(ALLREDUCE, at)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {
                "topology": "preset:dgx-h100:2",
                "vary": {},
                "algorithms": ["ring", "nvls_tree"],
                "collectives": ["allreduce"],
                "without": ["nvswitch_reduction"],
            },
            "allreduce nvls_tree needs NVSwitches that reduce, and the study is without nvswitch",
        ),
        (
            {"algorithms": ["ring", "nvls"], "collectives": ["allreduce"]},
            "allreduce nvls needs buffers in GPU memory: ask for memory cuda",
        ),
        (
            {"algorithms": ["multicast"], "collectives": ["bcast"]},
            (
                "needs a network that .* where flat8 has that, say `offers: .multicast.` in its"
                " topology"
            ),
        ),
    ],
)
def test_what_a_named_algorithm_lacks_is_said(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        made(**changed)


def everything() -> list[tuple[Collective, str]]:
    return [
        (c, name)
        for c in Collective
        for name in algorithms.algorithm_names(c, algorithms.REQUIREMENTS)
    ]


@pytest.mark.parametrize(("collective", "name"), everything())
def test_transfers_are_estimated_within_a_few_times(collective: Collective, name: str) -> None:
    for nodes, ppn in ((2, 8), (5, 8), (16, 8)):
        for nbytes in (1, 100_000):
            for candidate in list_candidates(collective, (name,), nodes, ppn, nbytes):
                try:
                    schedule = build_schedule(collective, candidate, nodes * ppn, nbytes)
                except (InputError, ScheduleError):
                    continue
                real = sum(map(len, schedule.rounds()))
                assert (
                    real / 8
                    <= estimate_transfers(collective, candidate, nodes * ppn, nbytes)
                    <= 8 * real
                )


@pytest.mark.parametrize("collective", [BCAST, ALLREDUCE])
def test_no_algorithm_is_lost_as_messages_grow(collective: Collective) -> None:
    """More than 256 MiB were once too many segments for every one of them."""
    names = algorithms.algorithm_names(collective)

    def segmented(nbytes: int) -> set[str]:
        offered = list_candidates(collective, names, 8, 8, nbytes)
        return {one.algorithm for one in offered if "segment" in one.params}

    assert segmented(1 << 28) == segmented((1 << 28) + 1) == segmented(1 << 36)


def test_a_byte_more_changes_no_time_much() -> None:
    machine = machine_from_yaml({"name": "x", "nodes": 8, "latency": "1us", "bandwidth": "12GB/s"})
    placement, names = Placement.block(machine.topology, 1), algorithms.algorithm_names(BCAST)

    def best(nbytes: int) -> float:
        candidates = list_candidates(BCAST, names, 8, 1, nbytes)
        schedules = (
            build_schedule(BCAST, one, 8, nbytes)
            for one in candidates
            if not algorithms.describe(BCAST, one.algorithm).requires
        )
        return min(simulate(made, placement, machine.calibration, nbytes) for made in schedules)

    assert best((1 << 28) + 1) < 1.06 * best(1 << 28)


@pytest.mark.parametrize(("collective", "name"), everything())
def test_a_schedule_depends_on_the_size_through_the_number_of_segments_alone(
    collective: Collective, name: str
) -> None:
    """On which rests that one schedule prices many sizes."""
    params = algorithms.describe(collective, name).params
    for p in (6, 8, 16):
        for size, other, segment, another in (
            (90_000, 900_000, 30_000, 300_000),
            (64_001, 96_000, 32_000, 32_000),
            (1 << 20, 1 << 14, 0, 0),
        ):
            one, two = (
                Candidate(name, {**params, **({"segment": cut} if "segment" in params else {})})
                for cut in (segment, another)
            )
            if segment_count(name, one.params, p, size) == segment_count(
                name, two.params, p, other
            ):
                assert rows(collective, one, p, size) == rows(collective, two, p, other)


def rows(collective: Collective, candidate: Candidate, p: int, nbytes: int) -> object:
    """Everything that a schedule says; nothing where it is not for so many ranks."""
    try:
        made: Schedule = build_schedule(collective, candidate, p, nbytes)
    except (InputError, ScheduleError):
        return None
    rounds = [[column.tolist() for column in r.columns] for r in made.rounds()]
    return (made.n_chunks, made.staged, made.in_network, rounds)


@pytest.mark.slow
def test_keeping_a_table_costs_what_its_choices_cost() -> None:
    """Rules of other ranks say nothing, as in a file; what cannot be known is not guessed."""
    kept = table(
        (BCAST, 2, 1, AlgorithmChoice("linear")),
        (BCAST, 16, 1, AlgorithmChoice("pipeline", {"segment": 50_000})),
        (ALLREDUCE, 8, 1, AlgorithmChoice()),
        (ALLREDUCE, 16, 1, AlgorithmChoice("ring")),
    )
    asked = made(
        topology={**FLAT, "nodes": 16},
        vary={"nodes": [2, 8, 16]},
        sizes=["256KiB"],
        table=table_record(kept),
    )
    result = run_study(asked)
    by = {(p.collective, p.axis_values["nodes"]): p for p in result.points}
    for nodes, choice in ((2, "linear"), (16, "pipeline")):
        point = by[BCAST, nodes]
        assert point.table_regret is not None
        assert point.table_regret.algorithm == choice
        own = point.seconds(Candidate(choice, point.table_regret.params))
        assert own is not None
        assert point.table_regret.regret == own / point.best.seconds - 1
    says = [one for nodes in (2, 8, 16) if (one := by[ALLREDUCE, nodes].table_regret)]
    assert [one.nodes for one in says] == [0, 8, 16]
    assert [one.regret is None for one in says] == [True, True, False]
    assert "no rules for this call on so many ranks" in says[0].reason
    assert "how is not known" in says[1].reason
    between = by[BCAST, 8].table_regret
    assert between is not None
    assert (between.algorithm, between.nodes, between.regret) == ("default", 0, None)
    assert result.table_regret is not None
    assert (result.table_regret.known_points, result.table_regret.unknown_points) == (3, 3)


def test_a_choice_no_schedule_describes_has_no_cost() -> None:
    kept = table((BCAST, 8, 1, AlgorithmChoice("quantum")))
    (point,) = run_study(
        made(vary={}, collectives=["bcast"], sizes=[8], table=table_record(kept))
    ).points
    assert point.table_regret is not None
    assert (point.table_regret.regret, point.table_regret.reason) == (
        None,
        "no schedule describes it",
    )


CALIBRATION = calibration_record(
    Calibration("old", "openmpi 5.0.11", {(NODE, "host"): PathCost.from_alpha_beta(5e-6, 1e-9)})
)
TABLE = table_record(table((BCAST, 2, 1, AlgorithmChoice("chain", {"segment": 4096}))))


def ends(topology: Topology) -> dict[tuple[str, str], tuple[float, float]]:
    return {(li.source, li.target): (li.latency, li.capacity) for li in topology.links}


def changed(record: dict[str, Any], **at: float | str) -> Topology:
    return apply_axes(machine_from_yaml(record), at).topology


def test_axes_of_a_flat_topology() -> None:
    flat = topology_from_yaml(FLAT)
    fewer = changed(FLAT, nodes=3, latency=4e-6)
    assert len(fewer.nodes) == 3
    assert ends(fewer) == ends(topology_from_yaml({**FLAT, "nodes": 3, "latency": "4us"}))
    more = changed(FLAT, nodes=40, bandwidth=1e9)
    assert Placement.block(more, 1).p == 40
    assert set(ends(more).values()) == {(1e-6, 1e9)}
    assert {node.cores for node in more.nodes} == {4}
    assert (more.local_latency, more.local_bandwidth) == (flat.local_latency, 10e9)


def test_axes_of_linked_topologies() -> None:
    other = changed(TREE, nodes=2, latency=1e-6, uplink_bandwidth=80e9)
    assert [node.name for node in other.nodes] == ["a", "b"]
    assert ends(other) == {
        ("a", "s"): (0.5e-6, 10e9),
        ("s", "a"): (0.5e-6, 10e9),
        ("b", "s"): (0.5e-6, 10e9),
        ("s", "b"): (0.5e-6, 10e9),
        ("s", "t"): (3e-6, 80e9),
        ("t", "s"): (3e-6, 80e9),
    }
    tree = {
        "name": "tree",
        "nodes": 8,
        "fabric": {"kind": "fat_tree", "per_leaf": 4, "latency": "1us", "bandwidth": "1GB/s"},
    }
    with pytest.raises(InputError, match="write the largest number of nodes into its file, and"):
        changed(tree, nodes=16)
    assert len(changed({**tree, "nodes": 16}, nodes=8).nodes) == 8
    link = {"between": ["a", "b"], "latency": "1us", "bandwidth": "1GB/s"}
    cable = {"name": "pair", "nodes": ["a", "b"], "links": [link]}
    joined = changed(cable, nodes=2, latency=5e-6)
    assert {latency for latency, _ in ends(joined).values()} == {5e-6}


def test_axes_of_a_preset() -> None:
    """Nodes grow, and GPUs, NICs and taper become others; the costs go with them."""
    a100 = preset("dgx-a100", 4)
    assert apply_axes(a100, {"nodes": 4}) is a100
    other = apply_axes(a100, {"nodes": 40, "gpu": "H100", "nics": 2, "taper": 2.0})
    assert len(other.topology.nodes) == 40
    interior = other.topology.nodes[0].node_topology
    assert interior is not None
    assert {d.product for d in interior.devices if d.kind == "gpu"} == {"H100"}
    assert len(other.topology.nodes[0].ports) == 2
    assert other.calibration != a100.calibration


def test_the_network_of_a_preset_follows_its_axes() -> None:
    """One message between nodes: half the bandwidth doubles beta, a latency is that of a byte."""
    h100 = preset("dgx-h100", 2)

    def seconds(nbytes: int, **at: float) -> float:
        machine = apply_axes(h100, {"nodes": 2, **at})
        made = algorithms.build(BCAST, "linear", 2)
        costs = replace(machine.calibration, pointer_query_seconds=0.0)
        return simulate(made, place_ranks(machine, {"ppn": 1}), costs, nbytes, memory=CUDA)

    port = next(link for link in h100.topology.links if link.source in h100.topology.ports)
    large, half = seconds(1 << 30), seconds(1 << 30, bandwidth=port.capacity / 2)
    assert half == pytest.approx(large * 2, rel=0.01)
    shorter, longer = seconds(1, latency=3e-6), seconds(1, latency=9e-6)
    assert longer - shorter == pytest.approx(6e-6, rel=1e-6)
    assert longer == pytest.approx(9e-6, rel=0.1)


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_what_the_ends_take_of_a_short_message_stays_on_another_network(factor: float) -> None:
    """Short messages are copied after one another, which is lag; from 8 KiB on copies and network
    work at once, and what the first copies take is in alpha. Neither is the network's: a message of
    8 KiB still takes as long by both lines, as it would not if only one of them followed."""
    flat = machine_from_yaml({**FLAT, "nodes": 2})
    exact, seam, beta, lag = Estimate.exact, 8192.0, 8e-11, 2e-11
    short = CostSegment(0.0, seam, exact(2e-6), exact(beta), latency_per_byte=exact(lag))
    long = CostSegment(seam, math.inf, exact(2e-6 + lag * seam), exact(beta))
    paths = {**flat.calibration.paths, (NETWORK, HOST): PathCost((short, long))}
    measured = replace(flat, calibration=replace(flat.calibration, paths=paths))
    other = apply_axes(measured, {"nodes": 2, "bandwidth": factor / beta}).calibration
    below, above = other.path_cost(NETWORK, HOST).segments
    assert below.beta.value == pytest.approx(beta / factor)
    assert below.latency_per_byte.value == lag
    per_byte = below.beta.value + below.latency_per_byte.value
    whole = below.alpha.value + per_byte * seam
    assert whole == pytest.approx(above.alpha.value + above.beta.value * seam)


def test_ranks_are_placed_as_the_study_says() -> None:
    machine = machine_from_yaml({**FLAT, "nodes": 2})
    assert place_ranks(machine, {"ppn": 2}).node_of.tolist() == [0, 0, 1, 1]
    assert place_ranks(machine, {"ppn": 2, "placement": "cyclic"}).node_of.tolist() == [0, 1, 0, 1]
    asked = made(
        vary={"ppn": [2], "placement": ["cyclic", "consecutive"]},
        collectives=["bcast"],
        algorithms=["binomial"],
        sizes=["1MiB"],
    )
    cyclic, consecutive = run_study(asked).points
    assert (cyclic.axis_values["placement"], consecutive.axis_values["placement"]) == (
        "cyclic",
        "consecutive",
    )
    assert cyclic.best.seconds != consecutive.best.seconds


def test_what_is_left_out_stays_as_the_machine_has_it() -> None:
    assert made(vary={}).axes == {"nodes": (8,), "ppn": (1,), "memory": ("host",)}
    gpus = made(vary={}, topology="preset:dgx-1v:2", collectives=["bcast"])
    assert gpus.axes == {"nodes": (2,), "ppn": (8,), "memory": ("cuda",)}
    assert "knomial_staged" in gpus.algorithm_names(BCAST, gpus.grid[0])
    on_host = made(vary={"memory": ["host"]}, topology="preset:dgx-1v:2", collectives=["bcast"])
    assert "knomial_staged" not in on_host.algorithm_names(BCAST, on_host.grid[0])


def test_measured_costs_hold_inside_a_node_and_the_topology_between_nodes() -> None:
    costs = {
        (name, "host"): PathCost.from_alpha_beta(5e-6, 1e-9) for name in (NODE, NODE_OVERSUBSCRIBED)
    }
    measured = Calibration("old", "openmpi 5.0.11", costs)
    bare = {key: value for key, value in FLAT.items() if key != "local"}
    asked = made(
        topology=bare,
        vary={"nodes": [1, 2], "ppn": [1, 2]},
        collectives=["bcast"],
        sizes=[1000],
        algorithms=["linear"],
        calibration=calibration_record(measured),
    )
    alone, inside, across, _ = run_study(asked).points
    assert alone.best.seconds == 0
    assert inside.best.seconds == pytest.approx(5e-6 + 1000 * 1e-9)
    assert across.best.seconds == pytest.approx(2e-6 + 1000 / 12.5e9)


def test_progress_and_cancelling() -> None:
    seen: list[float] = []
    run_study(made(vary=FEW), lambda done, _: seen.append(done))
    assert seen == sorted(seen)
    assert seen[0] == 0.0
    assert seen[-1] == pytest.approx(1.0)
    calls: list[str] = []
    with pytest.raises(CancelledError):
        run_study(made(vary=FEW), lambda _, text: calls.append(text), lambda: len(calls) == 5)
    assert calls[-1].startswith("4 of ")


def test_what_is_too_much_is_said_before_anything_is_simulated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(study_tasks, "MAX_CALL_TRANSFERS", 1000)
    asked = made(vary={"nodes": [64]}, collectives=["allgather"], algorithms=["ring"])
    with pytest.raises(InputError, match="allgather on 64 ranks: every candidate has more than"):
        run_study(asked, lambda _, text: seen.append(text))
    monkeypatch.setattr(study_tasks, "MAX_CALL_TRANSFERS", 1 << 30)
    monkeypatch.setattr(study_runner, "MAX_CORE_SECONDS", 0.5)
    counted: list[int] = []

    def cancelled() -> bool:
        counted.append(1)
        return False

    with pytest.raises(InputError, match="more than 0 hours on one core: give fewer"):
        run_study(
            made(sizes=[2**i for i in range(28)], vary={"ppn": [1, 2, 3, 4]}),
            lambda _, text: seen.append(text),
            cancelled,
        )
    assert seen == []
    assert sum(counted) < 8  # what is already too much is not planned to its end


def test_a_candidate_that_is_too_much_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_tasks, "MAX_CALL_TRANSFERS", 1000)
    asked = made(
        vary={"nodes": [64]}, collectives=["allreduce"], sizes=[8], algorithms=["ring", "linear"]
    )
    (point,) = run_study(asked).points
    assert point.skipped == ("ring",)
    assert [timing.algorithm for timing in point.candidates] == ["linear"]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"name": ""}, "name must be a name"),
        ({"colour": "red"}, "the study has an unknown key 'colour'"),
        ({"collectives": []}, "collectives must be a list of names"),
        ({"collectives": ["gossip"]}, "unknown collective 'gossip': choose one of bcast"),
        ({"sizes": []}, "sizes must be a list such as"),
        ({"sizes": ["1kb"]}, "'1kb' is not a size"),
        ({"sizes": [2**61]}, "a message has 0 to"),
        ({"algorithms": ["ring"]}, "none of the algorithms is one of bcast; it has: linear"),
        ({"algorithms": ["ring", "pipeline", "quantum"]}, "unknown algorithm 'quantum'"),
        ({"ppn": 4}, r"ppn is an axis and not a key .*: write `vary: {ppn: \[4\]}`"),
        ({"bandwidth": ["1GB/s"]}, r"write `vary: {bandwidth: \['1GB/s'\]}`"),
        ({"without": "multicast"}, "without must be a list of names, not 'multicast'"),
        (
            {"without": ["switch_reduction"]},
            "does not offer 'switch_reduction', which is no algorithm either; it offers: nothing",
        ),
        (
            {"without": ["sharp"], "topology": "preset:dgx-a100:2", "vary": {}},
            "dgx-a100 does not offer 'sharp', which is no algorithm either; it offers: multicast",
        ),
        ({"vary": {"nodes": 4}}, "vary: nodes must be a list of values, not 4"),
        ({"vary": {"nodes": [0]}}, "vary: nodes must be a whole number from 1"),
        ({"vary": {"ppn": [True]}}, "vary: ppn must be a whole number"),
        ({"vary": {"latency": [2]}}, "vary: latency: 2 is not a time"),
        ({"vary": {"weight": [2]}}, "vary has an unknown key 'weight'"),
        ({"vary": {"uplink_bandwidth": ["1GB/s"]}}, "that has some, not flat8"),
        ({"vary": {"nodes": [8192], "ppn": [32]}}, "machines of 262144 ranks, more than 131072"),
        ({"vary": {"nodes": [16385]}}, "machines of 16385 nodes, more than 16384"),
        ({"vary": {"nodes": list(range(1, 16002)), "ppn": [1, 2]}}, "128008 points, more than"),
        ({"vary": {"nics": [2]}}, "nics can be varied in presets"),
        ({"vary": {"gpu": ["H100"]}}, "gpu can be varied in presets"),
        ({"vary": {"gpu": ["Voodoo"]}}, "vary: gpu is one of K80"),
        ({"vary": {"taper": [0.5]}}, "vary: taper must be a number from 1"),
        ({"vary": {"taper": [2]}}, "taper can be varied in presets"),
        ({"vary": {"placement": ["random"]}}, "placement is one of consecutive, cyclic, not"),
        ({"vary": {"memory": ["cuda"]}}, "has no GPU"),
        ({"topology": "preset:cray-1"}, "cray-1"),
        ({"topology": ALONE, "vary": {"bandwidth": ["1GB/s"]}}, "are of links at nodes"),
        ({"topology": TREE, "vary": {"nodes": [4]}}, "tree has 3 nodes, not 4: only one in which"),
        ({"topology": TREE, "vary": {"ppn": [2]}}, "does not say what a message inside a node"),
        ({"topology": "absent.yaml"}, r"absent\.yaml: cannot be read"),
        ({"topology": 5}, "the topology must be a mapping"),
        ({"topology": {"kind": "table"}}, "not the record of a topology"),
        ({"calibration": 5}, "calibration must be a name or a calibration"),
        ({"calibration": {}}, "calibration must be a name or a calibration"),
        ({"table": {"kind": "topology"}}, "not a tuning table"),
    ],
)
def test_bad_studies_are_named(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        made(**changed)


@pytest.mark.slow
def test_whatif_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything by reference, beside the study's file; table, CSV and JSON agree."""
    (tmp_path / "flat8.yaml").write_text(json.dumps(FLAT))
    write_table(table((BCAST, 2, 1, AlgorithmChoice("linear"))), tmp_path / "table.json")
    write_calibration(
        nominal_calibration(load_topology(tmp_path / "flat8.yaml")), tmp_path / "costs.json"
    )
    asked = {
        **SPEC,
        "vary": FEW,
        "topology": "flat8.yaml",
        "table": "table.json",
        "calibration": "costs.json",
    }
    path = tmp_path / "study.yaml"
    path.write_text(json.dumps(asked))
    assert main(["study", str(path), "--csv", str(tmp_path / "s.csv")]) == 0
    text = capsys.readouterr().out
    assert "twice: the best algorithm on flat8" in text
    assert "where the algorithm changes" in text
    words = " ".join(text.split())
    assert "(rules for just the numbers of ranks that it has): on average" in words
    assert (
        "not counted, 6 of 8 points: the table has no rules for this call on so many ranks" in words
    )
    assert main(["study", str(path), "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    with (tmp_path / "s.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(len(point["candidates"]) for point in points)
    best = [row for row in rows if row["best"] == "1"]
    assert [float(row["seconds"]) for row in best] == [
        min(one["seconds"] for one in point["candidates"]) for point in points
    ]


def test_bad_study_files_get_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.yaml"
    for content, sentence in (
        (b"name: x", "study.yaml: the study lacks 'collectives'"),
        (b"a: [", "study.yaml: line 1: not YAML"),
        (b"\xff\xfe", "study.yaml: not text in UTF-8"),
    ):
        path.write_bytes(content)
        assert main(["study", str(path)]) == 1
        assert sentence in capsys.readouterr().err
    assert main(["study", str(tmp_path / "absent.yaml")]) == 1
    assert "absent.yaml: cannot be read" in capsys.readouterr().err


def test_an_embedded_topology_record_is_that_topology() -> None:
    tree = topology_from_yaml(TREE)
    asked = made(topology=topology_to_record(tree), vary={})
    assert asked.topology == tree


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["1us", "1GB/s", "8B", "ring", "bcast", 2, 1]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=6) | st.sampled_from([*FLAT, *TREE, "kind", "version"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)
SOUND = json.dumps(
    {
        **study_record(made()),
        "topology": TREE,
        "algorithms": ["linear"],
        "vary": {"nodes": [1, 2]},
        "calibration": CALIBRATION,
        "table": TABLE,
    }
)


@settings(max_examples=examples(300))
@given(st.data())
def test_whatever_json_says_is_a_study_or_an_input_error(data: st.DataObject) -> None:
    """One value anywhere in a sound study is replaced by anything at all."""
    inside = record = json.loads(SOUND)
    while isinstance(inside, dict | list) and inside:
        key = data.draw(
            st.sampled_from(list(inside) if isinstance(inside, dict) else range(len(inside)))
        )
        if data.draw(st.integers(0, 2)) == 0 or not isinstance(inside[key], dict | list):
            inside[key] = data.draw(ANYTHING)
            break
        inside = inside[key]
    said = ""
    try:
        study_from_record(record, NOWHERE)
    except InputError as reason:
        said = str(reason)
    assert len(said) < 2000
