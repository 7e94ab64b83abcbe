"""One time for NCCL's algorithms: its estimate, a prediction and a study say the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.algorithms import algorithm_names, available_capabilities
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.machines import PRESETS, preset
from tuner.machines.loader import load_machine
from tuner.mpi_libraries.nccl import AlgoProto, NcclPredictor, default_algo_proto, nccl_system_of
from tuner.prediction.block_counts import block_counts
from tuner.prediction.call_predictor import CallPredictor
from tuner.prediction.nccl_times import NCCL_NAMES, nccl_times
from tuner.topology import CUDA, HOST, SWITCH_REDUCTION, Placement
from tuner.training.call_times import CallTimes
from tuner.training.groups import Call
from tuner.training.policies import NcclChoice
from tuner.whatif.axes import apply_axes

SIZES = ("1KiB", "1MiB", "4GiB")
WITH_GPUS = (  # not found out here: that takes seconds
    *("alps", "comet", "dgx-1p", "dgx-1v", "dgx-2", "dgx-a100", "dgx-b200", "dgx-b300", "dgx-h100"),
    *("frontier", "gb200-nvl72", "gb300-nvl72", "hgx-h200", "kesch", "l40s"),
    *("mi300x", "mi325x", "mi355x", "piz-daint", "ri2", "rtx-pro-6000", "sierra", "summit"),
)


def gpus_per_node(name: str) -> int:
    inside = preset(name, 1).topology.nodes[0].node_topology
    return len(inside.device_indices("gpu")) if inside else 0


def test_every_machine_with_gpus_is_compared() -> None:
    assert [name for name in PRESETS if gpus_per_node(name)] == list(WITH_GPUS)


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    main([*words, "--json"])
    return json.loads(capsys.readouterr().out)


def study_file(folder: Path, topology: str, **keys: Any) -> str:
    """Write a study of an allreduce of 1 GiB, with other keys where they are given."""
    study = {"name": "x", "collectives": ["allreduce"], "sizes": ["1GiB"], **keys}
    path = folder / "study.yaml"
    path.write_text(json.dumps({**study, "topology": topology}))
    return str(path)


@pytest.mark.representative("dgx-1v-1", "dgx-h100-4", "frontier-1", "mi300x-4", "summit-64")
@pytest.mark.parametrize("nodes", [1, 4, 64])
@pytest.mark.parametrize("name", WITH_GPUS)
def test_estimate_prediction_and_study_agree(
    name: str, nodes: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ppn, machine = gpus_per_node(name), f"preset:{name}:{nodes}"
    placement = Placement.block(preset(name, nodes).topology, ppn)
    times = nccl_times(placement, CUDA)
    if ppn * nodes < 2:
        assert times is None
        return
    assert times is not None
    here = available_capabilities(placement.topology.capabilities, True, nodes, ppn)
    known = algorithm_names(Collective.ALLREDUCE, here)
    own = [one for one in times.algorithms(Collective.ALLREDUCE) if one in known]
    call = ["--topology", machine, "--ppn", str(ppn), "--collective", "allreduce"]
    sizes = ["--sizes", ",".join(SIZES)]
    collnet = ["--collnet"] if SWITCH_REDUCTION in placement.topology.capabilities else []
    costs = dict[tuple[AlgoProto, int], float]()
    for one in answered(capsys, "nccl", "estimate", *call, *sizes, "--all", *collnet):
        way = AlgoProto(one["algorithm"], one["protocol"])
        costs[way, one["nbytes"]] = one["predicted_seconds"]
    named = ["--algorithm", ",".join(own), "--memory", "cuda"]
    predicted = answered(capsys, "simulate", *call, *sizes, *named)
    vary = {"nodes": [nodes], "ppn": [ppn], "memory": ["cuda"]}
    study = study_file(tmp_path, machine, vary=vary, sizes=list(SIZES), algorithms=own)
    points = answered(capsys, "study", study)["points"]
    studied = {
        (one["algorithm"], point["nbytes"]): one["seconds"]
        for point in points
        for one in point["candidates"]
    }
    for one in predicted:
        of = NcclPredictor(placement, bool(collnet))
        own_name = NCCL_NAMES[one["algorithm"]]
        run = of.run_algo_proto(Collective.ALLREDUCE, own_name, one["nbytes"])
        assert one["predicted_by"] == "nccl"
        assert one["seconds"] == pytest.approx(costs[run, one["nbytes"]], rel=1e-9)
        assert studied[one["algorithm"], one["nbytes"]] == pytest.approx(one["seconds"], rel=1e-9)
    assert len(predicted) == len(studied) == len(own) * len(SIZES)


def test_what_needs_the_switches_of_the_network_can_be_left_out() -> None:
    times = nccl_times(Placement.block(preset("dgx-h100", 4).topology, 8), CUDA)
    assert times is not None
    every = set(times.algorithms(Collective.ALLREDUCE))
    plain = set(times.algorithms(Collective.ALLREDUCE, collnet=False))
    assert plain == {"nccl_ring", "nccl_tree", "nvls_tree"}
    assert every - plain == {"nvls", "collnet_direct", "collnet_chain"}


@pytest.mark.parametrize("nodes", [1, 4])
def test_all_say_the_same_of_an_all_to_all(
    nodes: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, ppn = "dgx-h100", 8
    call = ["--topology", f"preset:{name}:{nodes}", "--ppn", str(ppn), "--collective", "alltoall"]
    sizes = ["--sizes", ",".join(SIZES)]
    estimates = [
        one["predicted_seconds"]
        for one in answered(capsys, "nccl", "estimate", *call, *sizes)
        if one["chosen"]
    ]
    named = ["--algorithm", "nccl_pairwise", "--memory", "cuda"]
    simulated = answered(capsys, "simulate", *call, *sizes, *named)
    vary = {"nodes": [nodes], "ppn": [ppn], "memory": ["cuda"]}
    asked = {"collectives": ["alltoall"], "sizes": list(SIZES), "algorithms": ["nccl_pairwise"]}
    study = study_file(tmp_path, f"preset:{name}", vary=vary, **asked)
    points = answered(capsys, "study", study)["points"]
    machine = apply_axes(load_machine(f"preset:{name}"), {"nodes": nodes})
    placement = Placement.block(machine.topology, ppn)
    times = CallTimes(placement, machine.calibration, CUDA, NcclChoice())
    trained = [
        times.timed(Call("alltoall", point["nbytes"], times.world)).seconds for point in points
    ]
    assert [one["predicted_by"] for one in simulated] == ["nccl"] * len(SIZES)
    main(["simulate", *call, *sizes, *named])
    said = " ".join(capsys.readouterr().out.split())
    assert "nccl_pairwise are predicted from measured times of all-to-alls, as in `tuner" in said
    assert estimates == pytest.approx([one["seconds"] for one in simulated], rel=1e-12)
    assert [point["nccl_seconds"] for point in points] == pytest.approx(estimates, rel=1e-12)
    assert {point["nccl_choice"] for point in points} == {"nccl_pairwise"}
    assert trained == pytest.approx(estimates, rel=1e-12)


def test_blocks_of_unequal_lengths_take_as_long_as_the_busiest_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 2 receives 6 MiB from others, as of blocks of 2 MiB, and its links bind."""
    rows = [[0, 1, 3, 0], [0, 1, 2, 0], [1, 1, 1, 1], [2, 2, 1, 0]]
    counts = tmp_path / "counts"
    counts.write_text("\n".join(" ".join(str(n << 20) for n in row) for row in rows))
    words = ["simulate", "--topology", "preset:dgx-h100:1", "--ppn", "4", "--memory", "cuda"]
    words += ["--algorithm", "nccl_pairwise"]
    ragged = ["--collective", "alltoallv", "--counts", str(counts)]
    (one,) = answered(capsys, *words, "--ranks", "4", *ragged)
    even = ["--collective", "alltoall", "--sizes", "8MiB"]
    (same,) = answered(capsys, *words, "--ranks", "4", *even)
    assert one["predicted_by"] == same["predicted_by"] == "nccl"
    assert one["seconds"] == pytest.approx(same["seconds"], rel=0.02)


def test_a_study_without_all_that_nccl_chooses_by_itself_tells_no_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vary = {"nodes": [2], "ppn": [8], "memory": ["cuda"]}
    study = study_file(
        tmp_path, "preset:dgx-h100:2", vary=vary, without=["nccl_ring", "nccl_tree", "nvls_tree"]
    )
    (point,) = answered(capsys, "study", study)["points"]
    assert point["nccl_choice"] == ""
    assert point["candidates"]


def test_a_study_of_some_algorithms_tells_what_nccl_chooses_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes NVLSTree, which is not among the candidates here."""
    vary = {"nodes": [4], "ppn": [8], "memory": ["cuda"]}
    study = study_file(tmp_path, "preset:dgx-h100:4", vary=vary, algorithms=["nccl_ring"])
    (point,) = answered(capsys, "study", study)["points"]
    assert point["nccl_choice"] == "nvls_tree"
    own = ["--topology", "preset:dgx-h100:4", "--ppn", "8", "--memory", "cuda"]
    call = ["--collective", "allreduce", "--sizes", "1GiB", "--algorithm", "nvls_tree"]
    (one,) = answered(capsys, "simulate", *own, *call)
    assert point["nccl_seconds"] == one["seconds"] < point["candidates"][0]["seconds"]
    main(["study", study])
    said = " ".join(capsys.readouterr().out.split())
    assert "NCCL by itself" in said
    assert "What NCCL chooses by itself is faster than all of these" in said


@pytest.mark.slow
def test_what_nccl_chooses_by_itself_is_part_of_a_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = study_file(tmp_path, "preset:dgx-h100:4", vary={"nodes": [4], "ppn": [8]})
    (point,) = answered(capsys, "study", study)["points"]
    chosen = answered(
        capsys, "nccl", "estimate", "--topology", "preset:dgx-h100:4", "--sizes", "1GiB"
    )
    (default,) = [one for one in chosen if one["chosen"]]
    assert NCCL_NAMES[point["nccl_choice"]] == default["algorithm"]
    predicted = {one["algorithm"] for one in point["candidates"] if one["predicted_by"] == "nccl"}
    main(["study", study])
    said = " ".join(capsys.readouterr().out.split())
    assert "NCCL by itself" in said
    assert "as in `tuner nccl estimate`" in said
    names = said.partition("Times of ")[2].partition(" are predicted")[0]
    assert set(names.split(", ")) == predicted > {"nccl_ring", "collnet_chain"}
    assert (
        "NCCL uses collnet_direct, collnet_chain, nvls on several nodes only with"
        " NCCL_COLLNET_ENABLE=1 and SHARP" in said
    )


@pytest.mark.extended
@pytest.mark.slow
def test_what_bounds_traffic_between_nodes_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A DGX H100 reaches its NICs over PCIe Gen5, with 51 GB/s: faster NICs gain little."""
    vary = {"nodes": [4], "bandwidth": ["200Gb/s", "400Gb/s", "800Gb/s"]}
    names = ["nccl_ring", "nvls_tree"]
    study = study_file(tmp_path, "preset:dgx-h100:4", vary=vary, algorithms=names)
    result = answered(capsys, "study", study)
    assert {point["nccl_choice"] for point in result["points"]} == {"nvls_tree"}
    rates = [point["rates"] for point in result["points"]]
    assert [one["nics"] / 1e9 for one in rates] == pytest.approx([21.3, 42.6, 85.2])
    assert [one["pcie"] / 1e9 for one in rates] == pytest.approx([51, 51, 51])
    slow, fast = result["axis_steps"]
    assert slow["max_speedup"] > 1.5
    assert fast["max_speedup"] == pytest.approx(45.5 / 42.6, rel=0.01)  # NCCL's cap of NVLSTree
    assert fast["break_even"] == pytest.approx(45.5e9, rel=1e-3)
    main(["study", study])
    said = " ".join(capsys.readouterr().out.split())
    assert "bounded by NCCL's channels at 45.5GB/s, then by PCIe at 51GB/s" in said
    assert "above 45.5GB/s nothing is gained" in said


def test_nccl_has_no_times_where_it_cannot_run() -> None:
    topology = preset("dgx-a100", 2).topology
    assert nccl_times(Placement.block(topology, 8), HOST) is None
    assert nccl_times(Placement.block(topology, 16), CUDA) is None  # more ranks than GPUs
    times = nccl_times(Placement.block(topology, 8), CUDA)
    assert times is not None
    assert times.algorithms(Collective.SCATTER) == ()
    assert times.seconds(Collective.ALLREDUCE, "nccl_ring", 0) > 0


def test_algorithms_that_nccl_cannot_run_are_said_to_be_simulated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Seven ranks are not equally many on three nodes."""
    words = ["simulate", "--topology", "preset:dgx-a100:3", "--collective", "allreduce"]
    words += ["--algorithm", "nccl_ring,ring", "--sizes", "1MiB", "--memory", "cuda", "--ppn", "3"]
    main([*words, "--ranks", "7"])
    said = " ".join(capsys.readouterr().err.split())
    assert "nccl_ring: simulated as a schedule, since NCCL cannot do it: NCCL wants one GPU" in said
    for more in (["--ranks", "9"], ["--ranks", "7", "--runner", "schedule"]):
        main([*words, *more])
        assert "NCCL cannot do it" not in " ".join(capsys.readouterr().err.split())


def test_as_tuner_runs_it_a_schedule_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topology", "preset:dgx-a100:2", "--ppn", "8", "--memory", "cuda"]
    words += ["--collective", "allreduce", "--algorithm", "nccl_ring", "--sizes", "1MiB"]
    for more in (["--runner", "schedule"], ["--param", "channels=8"]):
        (one,) = answered(capsys, "simulate", *words, *more)
        assert one["predicted_by"] == "simulation"
        assert "channels" in one["params"]


def test_a_time_of_nccls_model_is_not_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--topology", "preset:dgx-a100:1", "--ppn", "8", "--collective", "alltoall"]
    words += ["--algorithm", "nccl_pairwise", "--sizes", "1MiB"]
    drawn = [*words, "--gantt", str(tmp_path / "run.svg")]
    assert main(["simulate", *drawn]) == 2
    assert "--gantt draws messages, which NCCL's model of nccl_pairwise does not have" in " ".join(
        capsys.readouterr().err.split()
    )
    scheduled = ["--runner", "schedule"]
    assert answered(capsys, "simulate", *drawn, *scheduled) == answered(
        capsys, "simulate", *words, *scheduled
    )
    assert (tmp_path / "run.svg").exists()


@pytest.mark.extended
@pytest.mark.slow
def test_axes_of_links_that_two_nodes_lack_can_be_varied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two nodes of a Comet hang on one switch, and have no links between switches."""
    vary = {"nodes": [80], "uplink_bandwidth": ["5GB/s", "10GB/s"]}
    names = ["nccl_ring", "binomial"]
    study = study_file(tmp_path, "preset:comet", vary=vary, collectives=["bcast"], algorithms=names)
    points = answered(capsys, "study", study)["points"]
    assert len(points) == 2


@pytest.mark.parametrize("name", ["dgx-h100", "gb200-nvl72", "dgx-a100"])
def test_by_itself_nccl_does_not_let_the_network_reduce(name: str) -> None:
    """On several nodes NVLS, too, needs switches that reduce."""
    for nodes in (1, 2, 16):
        placement = Placement.block(preset(name, nodes).topology, gpus_per_node(name))
        times = nccl_times(placement, CUDA)
        assert times is not None
        system = nccl_system_of(placement)
        for nbytes in (8, 1 << 10, 1 << 20, 16 << 20, 1 << 30):
            own = default_algo_proto(system, Collective.ALLREDUCE, nbytes).algorithm
            names = times.algorithms(Collective.ALLREDUCE)
            assert NCCL_NAMES[times.choice(Collective.ALLREDUCE, names, nbytes)] == own


def test_what_is_nccls_is_not_divided(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topology", "preset:dgx-a100:2", "--ppn", "8", "--collective", "allreduce"]
    words += ["--algorithm", "nccl_ring", "--sizes", "1MiB", "--explain"]
    main(["simulate", *words])
    assert "NCCL's model does not divide its times" in " ".join(capsys.readouterr().out.split())
    (one,) = answered(capsys, "simulate", *words, "--runner", "schedule")
    assert sum(one["parts"].values()) == pytest.approx(one["seconds"])


@pytest.mark.parametrize(
    "rows",
    [
        [[0, 1], [1, 0]],  # nothing for itself
        [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]],
        [[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]],
    ],
)
def test_an_uneven_exchange_takes_as_long_as_its_busiest_links(
    rows: list[list[int]], tmp_path: Path
) -> None:
    """Simulations of the same messages say so, too: one rank on each node."""
    path, p = tmp_path / "counts.txt", len(rows)
    path.write_text("\n".join(" ".join(str(10**9 * one) for one in row) for row in rows))
    machine, ragged = preset("dgx-h100", p), Collective.ALLTOALLV
    known = CallPredictor.of_machine(
        Placement.block(machine.topology, 1), machine.calibration, CUDA
    )
    counts = block_counts(str(path), p, ragged)
    predictor = replace(known, counts=counts)
    taken, simulated = (
        predictor.predict(ragged, choice, counts.mean_bytes)
        for choice in (AlgorithmChoice("nccl_pairwise"), AlgorithmChoice("pairwise", {}, SCHEDULE))
    )
    assert taken == pytest.approx(simulated, rel=0.05)


def test_an_exchange_inside_nodes_uses_no_network() -> None:
    """Ranks of a node have all that a rank sends in the rows of an FFT in pencils."""
    machine, ragged = preset("dgx-h100", 4), Collective.ALLTOALLV
    placement = Placement.block(machine.topology, 8)
    known = CallPredictor.of_machine(placement, machine.calibration, CUDA)
    even, near = (
        replace(known, counts=block_counts(name, placement.p, ragged)).predict(
            ragged, AlgorithmChoice("nccl_pairwise"), 1 << 28
        )
        for name in ("zipf:0", "pencils")
    )
    assert isinstance(near, float)
    assert isinstance(even, float)
    assert near < even / 4
