"""What limits a call: a resource twice as fast, against closed forms and machines made by hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.core.calibration import Calibration, PathCost, calibration_record
from tuner.core.collective import Collective
from tuner.machines import PRESETS, Machine, preset, preset_spec, with_fabric
from tuner.machines.machine_spec import build_machine
from tuner.machines.model_accuracy import NCCL, SizedCall, accuracy_sentence, parse_accuracy
from tuner.machines.yaml_machines import machine_from_yaml
from tuner.mpi_libraries.nccl import AlgoProto, NcclPredictor, nccl_system_of
from tuner.mpi_libraries.nccl.fabric import FabricBound
from tuner.topology import Placement
from tuner.topology.readers.fabrics import FatTree
from tuner.whatif import study_tasks
from tuner.whatif.axes import AXES
from tuner.whatif.checked_study import study_record
from tuner.whatif.machine_resources import (
    LATENCY,
    NCCL_RATES,
    NICS,
    NVLINKS,
    SWITCH_LINKS,
    limiting_resources,
    present_resources,
    with_faster,
)
from tuner.whatif.prices import count_parts
from tuner.whatif.study_result import StudyResult, result_record
from tuner.whatif.study_runner import run_study
from tuner.whatif.study_spec import FileResolver, study_from_record
from tuner.whatif.study_summary import limits_by_size

ALPHA = 4e-6
RATE = 1e9
FLAT = {"name": "flat", "nodes": 8, "latency": "4us", "bandwidth": "1GB/s"}
H100 = "preset:dgx-h100:32"

BY_SIZE = {"median": 0.1, "worst": 0.9, "results": 9, "source": "x"}


def run(**keys: Any) -> StudyResult:
    record = {"name": "x", "topology": FLAT, "collectives": ["allreduce"], "sizes": ["1MiB"]}
    return run_study(study_from_record({**record, **keys}, FileResolver(Path())))


def test_sensitivities_are_those_of_the_closed_form() -> None:
    """Recursive doubling on 8 ranks takes 3 (alpha + m beta)."""
    sizes = [1000, 4000, 1_000_000]
    points = run(algorithms=["recursive_doubling"], sizes=sizes).points
    for point in points:
        flow = point.nbytes / RATE
        whole = ALPHA + flow
        assert point.sensitivities[LATENCY] == pytest.approx(whole / (ALPHA / 2 + flow), rel=1e-9)
        assert point.sensitivities[NICS] == pytest.approx(whole / (ALPHA + flow / 2), rel=1e-9)
        assert set(point.sensitivities) == {NICS, LATENCY, "memory"}
        assert point.sensitivities["memory"] == 1.0
        assert point.shares == pytest.approx(
            {NICS: flow / whole, LATENCY: ALPHA / whole, "memory": 0.0}, abs=1e-9
        )
    assert [point.limits for point in points] == [(LATENCY,), (NICS, LATENCY), (NICS,)]


def test_narrow_links_between_switches_are_named() -> None:
    """Four nodes under each leaf send over one link of a quarter of their rate."""
    tree = {
        "name": "tree",
        "nodes": 8,
        "fabric": {
            "kind": "fat_tree",
            "per_leaf": 4,
            "uplinks": 1,
            "latency": "1us",
            "bandwidth": "10GB/s",
            "trunk": {"latency": "1us", "bandwidth": "2GB/s"},
        },
    }
    (point,) = run(topology=tree, algorithms=["recursive_doubling"], sizes=["64MiB"]).points
    assert point.limits == (SWITCH_LINKS,)
    assert point.sensitivities[SWITCH_LINKS] > 1.5
    assert point.sensitivities[NICS] < 1.3


@pytest.mark.representative("dgx-1v", "dgx-h100", "summit")
@pytest.mark.parametrize("name", PRESETS)
def test_every_resource_of_a_preset_can_be_faster(name: str) -> None:
    machine = preset(name, 2)
    for resource in present_resources(machine):
        faster = with_faster(machine, resource, 4.0)
        assert faster != machine
        assert with_faster(faster, resource, 0.25) == machine


def test_what_takes_most_of_the_time_limits_a_call() -> None:
    assert limiting_resources({}) == ()
    assert limiting_resources({NICS: 0.01, LATENCY: 0.04}) == ()
    assert limiting_resources({NICS: 0.3, LATENCY: 0.7}) == (LATENCY,)
    assert limiting_resources({SWITCH_LINKS: 0.9, NICS: 0.9, LATENCY: 0.1}) == (NICS, SWITCH_LINKS)


def test_links_of_one_rate_limit_a_call_together() -> None:
    """Each node has one link to a switch of its own, and that one link of the same rate onwards."""
    links = [
        {"between": pair, "latency": "1us", "bandwidth": "1GB/s"}
        for pair in (["a", "s"], ["s", "t"], ["t", "b"])
    ]
    line = {"name": "line", "nodes": ["a", "b"], "switches": ["s", "t"], "links": links}
    (point,) = run(topology=line, algorithms=["recursive_doubling"], sizes=["64MiB"]).points
    assert point.limits == (NICS, SWITCH_LINKS)
    assert point.sensitivities[NICS] == point.sensitivities[SWITCH_LINKS] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "limit"), [("nccl_tree", NCCL_RATES), ("nvls_tree", NICS), ("ring", NICS)]
)
def test_long_calls_of_nccl_are_limited_by_rates_and_not_by_latency(name: str, limit: str) -> None:
    """NCCL's tree is bound by a constant of NCCL, NVLS by the NICs."""
    (point,) = run(
        topology="preset:dgx-h100:16",
        algorithms=[name],
        sizes=["512MiB"],
        vary={"nodes": [16], "ppn": [8 if name != "ring" else 1]},
    ).points
    assert point.limits == (limit,)
    assert point.shares[LATENCY] < 0.1 < point.shares[limit]


def test_twice_as_many_nvlinks_are_more_for_nccl() -> None:
    """On two nodes NCCL's rings have so many channels as the NVLinks carry."""
    machine = preset("dgx-a100", 2)
    faster = with_faster(machine, NVLINKS)
    before, after = (
        nccl_system_of(Placement.block(one.topology, 8)).tree for one in (machine, faster)
    )
    assert after.channels * after.bw_intra > 1.5 * before.channels * before.bw_intra


def test_a_study_leaves_out_what_is_to_be_configured_and_named_algorithms() -> None:
    keys = {"topology": H100, "vary": {"nodes": [2]}, "limits": False}
    (point,) = run(**keys, without=["configured", "ring"]).points
    names = {candidate.algorithm for candidate in point.candidates}
    assert not any(name.startswith("collnet") for name in names)
    assert "nccl_ring" in names
    assert "ring" not in names
    assert point.nccl_choice in names
    assert run(without=["configured"]).points == run().points  # a flat network offers nothing
    with pytest.raises(InputError, match="does not offer 'wind', which is no algorithm either"):
        run(without=["wind"])


def test_limits_can_be_left_out() -> None:
    result = run(limits=False)
    assert {tuple(point.sensitivities) for point in result.points} == {()}
    with pytest.raises(InputError, match="limits must be true or false, not 3"):
        run(limits=3)


def test_costs_measured_for_certain_paths_tell_nothing_of_others() -> None:
    """A path of another latency or rate has no cost: there is no wrong answer, but none."""
    exact = {("2 links, 4us, 1e+09B/s", "host"): PathCost.from_alpha_beta(20e-6, 5e-9)}
    measured = Calibration("c", "l", exact)
    keys = {"algorithms": ["recursive_doubling"], "calibration": calibration_record(measured)}
    (point,) = run(**keys).points
    assert point.best.seconds == pytest.approx(3 * (20e-6 + 5e-9 * 2**20), rel=1e-6)
    assert point.sensitivities == {}


@pytest.mark.slow
def test_resources_are_those_of_each_machine() -> None:
    """Two nodes of a Comet hang on one switch; 288 need links between switches."""
    keys = {"topology": "preset:comet:2", "algorithms": ["recursive_doubling"]}
    few, many = run(vary={"nodes": [2, 288]}, **keys).points
    assert SWITCH_LINKS not in few.sensitivities
    assert SWITCH_LINKS in many.sensitivities


def test_machines_are_built_once_for_all_calls_of_a_resource(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[str] = []

    def watched(machine: Machine, resource: str, factor: float) -> Machine:
        built.append(resource)
        return with_faster(machine, resource, factor)

    monkeypatch.setattr(f"{study_tasks.__name__}.with_faster", watched)
    run(sizes=[8, 64, 1024, "1MiB", "64MiB"])
    assert sorted(built) == sorted(2 * [NICS, "memory", LATENCY])


def test_limits_in_the_middle_say_from_where_to_where() -> None:
    points = run(algorithms=["linear"], sizes=[8, 16, 64, 256, 1024]).points
    names = ["latency", NICS, NICS, NICS, "memory"]
    told = [replace(point, shares={name: 0.9}) for point, name in zip(points, names, strict=True)]
    assert limits_by_size(told) == "latency to 8B, NICs from 16B to 256B, memory from 1KiB"


def test_explanations_say_what_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--topology", "preset:dgx-h100:2", "--ppn", "8", "--explain"]
    words += ["--collective", "allreduce", "--sizes", "1GiB"]
    for name, expected in (("nccl_ring", NICS), ("rabenseifner", "nvlink")):
        main([*words, "--algorithm", name, "--json"])
        (one,) = json.loads(capsys.readouterr().out)
        assert max(one["sensitivities"], key=one["sensitivities"].__getitem__) == expected
        main([*words, "--algorithm", name])
        assert f"{name} at 1GiB: times as fast with" in " ".join(capsys.readouterr().out.split())


def test_line_rates_are_what_the_nics_of_the_machine_reach() -> None:
    """An NDR port of 400 Gb/s reaches 42.6 GB/s."""
    vary = {"nodes": [2], "bandwidth": ["800Gb/s", "400Gb/s", "42.6GB/s"]}
    study = study_from_record(
        {"name": "x", "topology": H100, "vary": vary, "collectives": ["bcast"], "sizes": [8]},
        FileResolver(Path()),
    )
    slow, fast = study.axes["bandwidth"]
    assert (slow, fast) == (42.6e9, 85.2e9)
    shown = [AXES["bandwidth"].format(rate) for rate in (slow, fast)]
    assert shown == ["400Gb/s (42.6GB/s)", "800Gb/s (85.2GB/s)"]
    again = study_from_record(json.loads(json.dumps(study_record(study))), FileResolver(Path()))
    assert again.digest == study.digest


def test_rates_of_a_file_without_costs_are_taken_as_they_are() -> None:
    result = run(vary={"bandwidth": ["8Gb/s"]}, algorithms=["ring"])
    assert result.axes["bandwidth"] == (1e9,)


def test_uplinks_narrower_than_the_nics_bound_nccl() -> None:
    """Two groups of 32 nodes: in a ring one flow per rail leaves each, which one link carries."""
    wide = preset("dgx-h100", 64)
    (point,) = run(
        topology="preset:dgx-h100:64",
        vary={"nodes": [64], "uplink_bandwidth": ["0.1GB/s"]},
        algorithms=["nccl_ring"],
        sizes=["1GiB"],
    ).points
    usual = NcclPredictor(Placement.block(wide.topology, 8))
    before = min(usual.predicted_seconds(Collective.ALLREDUCE, 1 << 30).values())
    assert point.best.seconds > 2 * before
    assert point.limits == (SWITCH_LINKS,)


def test_the_fabric_bounds_nothing_where_there_are_no_switches_between() -> None:
    placement = Placement.block(preset("dgx-h100", 2).topology, 8)
    assert FabricBound(placement).bandwidth(Collective.ALLREDUCE, AlgoProto("ring", "LL")) == float(
        "inf"
    )


@pytest.mark.parametrize("nodes", [4, 8])
@pytest.mark.parametrize("taper", [1, 8])
def test_flows_in_a_torus_share_the_links_of_their_routes(nodes: int, taper: int) -> None:
    """Each link of 2 x 2 or 2 x 2 x 2 routers carries the eight NICs of one node at most.

    A ring has 2 (p - 1) / p bytes on a link for one of the buffer.
    """
    machine = with_fabric(preset("dgx-h100", nodes), f"torus:{taper}")
    bound = FabricBound(Placement.block(machine.topology, 8))
    p = 8 * nodes
    whole = 8 * 42.6e9 / taper * p / (2 * (p - 1))
    found = bound.bandwidth(Collective.ALLREDUCE, AlgoProto("ring", "Simple"))
    assert found == pytest.approx(whole)


def test_flows_of_a_ring_share_the_links_of_their_part_of_a_fat_tree() -> None:
    """Eight flows leave each half of eight nodes, whose 16 links upwards are as wide as four NICs.

    A leaf of two nodes, of which eight flows leave too, has 16 whole links.
    """
    spec = preset_spec("dgx-h100")
    tree = FatTree(spec.fabric.node_cable, (16, 2), (16.0, 0.25))
    topology = build_machine(replace(spec, fabric=tree), 8).topology
    bound = FabricBound(Placement.block(topology, 8))
    found = bound.bandwidth(Collective.ALLREDUCE, AlgoProto("ring", "Simple"))
    assert found == pytest.approx(8 * 42.6e9 / 2 * 64 / (2 * 63))


def test_prices_tell_the_best_value() -> None:
    """Twice the rate for twice the price is worth it where only bytes count, less than that not."""
    vary = {"nodes": [8], "bandwidth": ["1GB/s", "2GB/s"]}
    prices = {"node": 1000, "nic": {"1GB/s": 0, "2GB/s": 500}, "cable": 10, "switch": 100}
    result = run(vary=vary, algorithms=["ring"], sizes=["64MiB"], cost=prices)
    slow, fast = result.machine_values
    assert slow.parts == {"node": 8, "gpu": 0, "nic": 8, "switch": 1, "cable": 8}
    assert (slow.price, fast.price) == (8 * 1000 + 8 * 10 + 100, 8 * 1500 + 8 * 10 + 100)
    assert fast.relative_cost == {Collective.ALLREDUCE: 1.0}
    ratio = slow.price / fast.price * 2
    assert slow.relative_cost[Collective.ALLREDUCE] == pytest.approx(ratio, rel=0.01)
    assert "Bandwidth 2GB/s gives the best value for its price" in result.summary
    record = json.loads(json.dumps(result_record(result)))
    assert [one["price"] for one in record["machine_values"]] == [slow.price, fast.price]


def test_prices_count_the_switches_that_nodes_need() -> None:
    """Eight rails: a leaf each for 32 nodes; spines join more, as many as the file describes."""
    few, many = (count_parts(preset("dgx-h100", nodes).topology) for nodes in (32, 64))
    assert few == {"node": 32, "gpu": 256, "nic": 256, "switch": 8, "cable": 256}
    assert many["switch"] == 16 + 32
    assert many["cable"] == 2 * 64 * 8


@pytest.mark.parametrize(
    ("cost", "sentence"),
    [
        (3, "cost must be a mapping with cable, gpu, nic, node, switch"),
        ({"rack": 1}, "cost has an unknown key 'rack'"),
        ({"node": -1}, "cost: node must be a number from 0"),
        ({"node": {"a": 1}}, "cost: node must be one price"),
        ({"gpu": {"H100": 1}}, "cost: gpu must be one price; for several, vary gpu"),
        ({"nic": {"1GB/s": 1}}, "cost: nic lacks a price for bandwidth 2GB/s"),
        ({"nic": {"fast": 1}}, "cost: nic: 'fast' is not a bandwidth"),
        (
            {"nic": {"1GB/s": 1, "1000MB/s": 2, "2GB/s": 3}},
            "cost: nic: 1000MB/s is there twice: give one price",
        ),
    ],
)
def test_wrong_prices_are_refused(cost: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        run(vary={"bandwidth": ["1GB/s", "2GB/s"]}, cost=cost)


@pytest.mark.slow
def test_the_answers_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vary = {"bandwidth": ["1GB/s", "2GB/s"]}
    study = {
        "name": "x",
        "topology": FLAT,
        "vary": vary,
        "collectives": ["bcast"],
        "sizes": [8, "64MiB"],
        "cost": {"node": 1000},
    }
    path = tmp_path / "study.yaml"
    path.write_text(json.dumps(study))
    main(["study", str(path)])
    said = " ".join(capsys.readouterr().out.split())
    assert "what limits the best algorithms" in said
    assert "price of each machine, and of its speed" in said
    assert "In short: bcast:" in said
    assert re.search(
        r"Verdict: bcast: bandwidth 2GB/s (is at most 2\.00 times as fast|gains at most 9\d%)", said
    )
    assert "latency to 8B, NICs from 64MiB" in said
    assert "Accuracy on flat as it is: simulated times were not compared with measurements." in said


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"wind": {}}, "accuracy has an unknown key 'wind'"),
        ({"nccl": {"median": 0.1}}, "accuracy: nccl lacks 'results'"),
        (
            {"nccl": {"median": -1, "worst": 1, "results": 1, "source": "x"}},
            "accuracy: nccl: median must be a fraction",
        ),
        (
            {"nccl": {"median": 0.1, "worst": 1, "results": 0, "source": "x"}},
            "accuracy: nccl: results must be a whole number from 1",
        ),
        (
            {"nccl": {**BY_SIZE, "by_size": {"1MiB": 0.1}}},
            "by_size: 1MiB must be the median and the 95th percentile",
        ),
        ({"nccl": {**BY_SIZE, "by_size": {"big": [0.1, 0.2]}}}, "accuracy: nccl: by_size"),
    ],
)
def test_a_wrong_accuracy_is_refused(entry: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        machine_from_yaml({"preset": "dgx-h100", "accuracy": entry})


def test_an_accuracy_is_told_of_the_sizes_that_were_asked_for() -> None:
    sizes = {"1MiB": [0.1, 0.2], "64KiB": [0.03, 0.4], "16MiB": [0.05, 0.6]}
    told = parse_accuracy({"nccl": {**BY_SIZE, "by_size": sizes}})["nccl"]
    allreduce = partial(SizedCall, Collective.ALLREDUCE)
    asked = told.of_calls([allreduce(1, 8), allreduce(1, 1 << 16), allreduce(1, 1 << 24)])
    assert asked.startswith("off by 3.0% to 64KiB, 5.0% to 16MiB on one node (median; 95th")
    assert asked.endswith("percentile 40%, 60%) in 9 measurements (x)")
    assert "3.0% to 64KiB, 10.0% to 1MiB, 5.0% to 16MiB" in told.of_calls([])


def test_an_accuracy_says_for_what_calls_there_is_none() -> None:
    sizes, compared = {"1MiB": [0.1, 0.2], "16MiB": [0.05, 0.6]}, ["allreduce"]
    record = {"nccl": {**BY_SIZE, "by_size": sizes, "collectives": compared}}
    told = parse_accuracy(record)["nccl"]
    large = SizedCall(Collective.ALLREDUCE, 4, 1 << 30)
    assert told.of_calls([large]).startswith(
        "not compared for 4 nodes, more than 16MiB; the nearest were off by 5.0% to 16MiB on one"
    )
    both = told.of_calls([large, SizedCall(Collective.ALLREDUCE, 1, 8)])
    assert both.startswith("off by 10.0% to 1MiB on one node")
    assert both.endswith(", and not compared for 4 nodes, more than 16MiB")
    other = told.of_calls([SizedCall(Collective.BCAST, 1, 8)])
    assert other.startswith("not compared for bcast; the nearest were off by")


def test_an_all_to_all_of_nccl_has_an_accuracy_of_its_own() -> None:
    sizes, apart = {"16MiB": [0.05, 0.6]}, {"16MiB": [0.2, 0.3]}
    own = {**BY_SIZE, "by_size": apart, "results": 7, "collectives": ["alltoall"]}
    known = parse_accuracy({"nccl": {**BY_SIZE, "by_size": sizes}, "nccl_alltoall": own})
    asked = [SizedCall(one, 1, 8) for one in (Collective.ALLREDUCE, Collective.ALLTOALL)]
    both = accuracy_sentence("x", known, {NCCL: asked})
    assert "times of NCCL were off by 5.0% to 16MiB" in both
    assert "; times of NCCL's all-to-all were off by 20.0% to 16MiB" in both
    alone = accuracy_sentence("x", known, {NCCL: asked[1:]})
    assert alone.startswith("Accuracy on x: times of NCCL's all-to-all were off by 20.0%")
    assert "all-to-all" not in accuracy_sentence("x", known, {NCCL: asked[:1]})


def test_errors_of_other_collectives_are_not_told_of_an_all_to_all_of_nccl() -> None:
    known = parse_accuracy({"nccl": BY_SIZE})
    asked = [SizedCall(one, 1, 8) for one in (Collective.ALLTOALL, Collective.ALLTOALLV)]
    told = accuracy_sentence("x", known, {NCCL: asked})
    assert told == (
        "Accuracy on x: times of NCCL's all-to-all were not compared with measurements."
    )
    own = {**BY_SIZE, "by_size": {"1MiB": [0.2, 0.3]}, "collectives": ["alltoall"]}
    uneven = accuracy_sentence(
        "x", {**known, **parse_accuracy({"nccl_alltoall": own})}, {NCCL: asked[1:]}
    )
    assert "all-to-all were not compared for alltoallv; the" in uneven


def test_a_median_error_is_that_of_the_collective() -> None:
    machine = preset("dgx-h100", 1)
    assert machine.spec is not None
    known = machine.spec.accuracy
    assert machine.median_errors(Collective.ALLREDUCE)["nccl"] == known["nccl"].median
    assert machine.median_errors(Collective.ALLTOALL)["nccl"] == known["nccl_alltoall"].median
    assert "nccl" not in preset("mi300x", 1).median_errors(Collective.ALLTOALLV)


def test_a_changed_preset_is_another_machine() -> None:
    assert "off by" in preset("dgx-h100", 1).accuracy_sentence({"nccl": ()})
    other = machine_from_yaml({"preset": "dgx-h100", "gpu": "B200"})
    assert "not compared" in other.accuracy_sentence({"nccl": ()})
