"""Lines fitted to measurements, and what they change."""

import csv
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.machines import preset, with_gpu
from tuner.mpi_libraries import nccl
from tuner.mpi_libraries.nccl import AlgoProto, ChannelGraph, LatencyBandwidth, NcclSystem
from tuner.topology import NcclCosts, Placement

ALLREDUCE = Collective.ALLREDUCE
SIZES = [1 << k for k in range(10, 31)]
FLEET = NcclSystem(
    nodes=4,
    ppn=8,
    compute_capability=80,
    ring=ChannelGraph(8, 24e9, 24e9),
    tree=ChannelGraph(8, 24e9, 24e9),
    head_channels=None,
    rings_on_nvlink=True,
    cpu_vendor="amd",
)


def test_a_line_is_found_again_through_noise() -> None:
    true, rng = LatencyBandwidth(37e-6, 95e9), np.random.default_rng(1)
    samples = [(n, true.seconds(n) * rng.lognormal(0, 0.02)) for n in SIZES for _ in range(5)]
    samples += [(n, 50 * true.seconds(n)) for n in SIZES]  # a straggler each: the median ignores it
    found = nccl.fit_latency_bandwidth(samples)
    assert found.latency == pytest.approx(true.latency, rel=0.03)
    assert found.bandwidth == pytest.approx(true.bandwidth, rel=0.03)


def test_no_latency_is_negative() -> None:
    assert nccl.fit_latency_bandwidth([(1000, 0.5), (2000, 1.5)]).latency == 0.0


@pytest.mark.parametrize(
    ("samples", "sentence"),
    [
        ([(8, 1e-6)], "times of two sizes"),
        ([(8, 1e-6), (8, 2e-6)], "times of two sizes"),
        ([(8, 1e-6), (16, 0.0)], "is not a measurement"),
        ([(0, 1e-6), (16, 1e-6)], "is not a measurement"),
        ([(8, float("nan")), (16, 1e-6)], "is not a measurement"),
        ([(8, 2e-6), (1 << 20, 1e-9)], "do not grow"),
    ],
)
def test_what_gives_no_line(samples: list[tuple[int, float]], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        nccl.fit_latency_bandwidth(samples)


def test_fitted_lines_replace_the_constants_and_change_the_choice() -> None:
    nbytes = 1 << 28
    before = nccl.estimate_times(FLEET, ALLREDUCE, nbytes)
    assert nccl.default_algo_proto(FLEET, ALLREDUCE, nbytes) == AlgoProto("ring", "Simple")
    way, quick = (
        AlgoProto("tree", "Simple"),
        LatencyBandwidth(50e-6, 200e9),
    )  # a tree that the constants do not know
    samples = [
        (n, nccl.estimate_times(FLEET, ALLREDUCE, n, fitted_models={way: quick})[way])
        for n in SIZES
    ]
    lines = nccl.fit_all(FLEET, ALLREDUCE, {way: samples})
    assert lines[way].latency == pytest.approx(quick.latency)
    assert lines[way].bandwidth == pytest.approx(quick.bandwidth)
    after = nccl.estimate_times(FLEET, ALLREDUCE, nbytes, fitted_models=lines)
    assert after[way] == pytest.approx(50e-6 + nbytes / (0.9 * 200e9))  # 0.9: NCCL's for this size
    assert nccl.default_algo_proto(FLEET, ALLREDUCE, nbytes, fitted_models=lines) == way
    assert {way: time for way, time in after.items() if way != AlgoProto("tree", "Simple")} == {
        way: time for way, time in before.items() if way != AlgoProto("tree", "Simple")
    }


def test_forced_algorithms_are_attributed_to_the_protocol_that_nccl_takes() -> None:
    """nccl-tests with NCCL_ALGO=Tree says no protocol."""
    times = {n: nccl.estimate_times(FLEET, ALLREDUCE, n) for n in SIZES}
    forced = [(n, min(t for way, t in times[n].items() if way.algorithm == "tree")) for n in SIZES]
    lines = nccl.attribute_samples(FLEET, ALLREDUCE, {"tree": forced})
    assert {way.protocol for way in lines} == {"LL", "LL128", "Simple"}
    assert sorted(sample for own in lines.values() for sample in own) == forced


def test_bus_bandwidth_of_nccl_tests_becomes_seconds() -> None:
    assert nccl.seconds_from_busbw(370e9, 8 << 30, 2 * 7 / 8) == pytest.approx(
        8 * 2**30 * 1.75 / 370e9
    )


def test_pairs_of_a_real_cluster_lie_on_a_line(shared: Path) -> None:
    """Sendrecv on two clusters of H100 nodes: fitted to every second size, the others follow."""
    found = defaultdict[str, list[tuple[int, float]]](list)
    with (shared / "data" / "nccl_tests_cluster_h100" / "all_pairs.csv").open() as file:
        for row in csv.DictReader(file):
            if row["test"] == "sendrecv_perf" and row["gpus_per_node"] == "8":
                found[row["cluster"]].append(
                    (int(row["size_bytes"]), float(row["out_of_place_us"]) * 1e-6)
                )
    assert set(found) == {"cluster00", "cluster01"}
    for cluster, busbw in (("cluster00", 14.5e9), ("cluster01", 43.1e9)):
        sizes = sorted({nbytes for nbytes, _ in found[cluster]})
        known = set(sizes[::2])
        line = nccl.fit_latency_bandwidth(sample for sample in found[cluster] if sample[0] in known)
        assert line.bandwidth == pytest.approx(busbw, rel=0.1)
        for nbytes in set(sizes) - known:
            measured = median(time for size, time in found[cluster] if size == nbytes)
            assert line.seconds(nbytes) == pytest.approx(measured, rel=0.1)


def test_presets_and_fleets_go_together() -> None:
    fleet = nccl.nccl_system_of(Placement.block(preset("dgx-a100", 4).topology, 8))
    assert (fleet.ring, fleet.compute_capability, fleet.cpu_vendor) == (
        ChannelGraph(8, 24e9, 24e9),
        80,
        "amd",
    )


def costs(p: int, product: str) -> tuple[nccl.NcclPredictor, NcclCosts]:
    """Return the predictor of some GPUs of a node, and costs that differ from theirs."""
    placement = Placement.block(with_gpu(preset("dgx-h100", 1), product).topology, p)
    true = NcclCosts(launch=7e-6, hop=1.1e-6, simple=12e-6, copy_rate=500e9, full_channel=4e-6)
    return nccl.NcclPredictor(placement, costs=true), true


def samples_of(gpus: tuple[int, ...]) -> list[tuple[nccl.NcclTerms, float]]:
    """Return calls of 1 KiB to 1 GiB with their times, every fifth one disturbed."""
    found = []
    for p in gpus:
        predictor, _ = costs(p, "A100")
        for number, nbytes in enumerate(SIZES):
            expected = predictor.expected_seconds(ALLREDUCE, nbytes)
            way = min(expected, key=expected.__getitem__)
            seconds = predictor.predicted_seconds(ALLREDUCE, nbytes)[way]
            disturbed = 1.5 if number % 5 == 4 else 1.0
            found.append((predictor.terms(ALLREDUCE, way, nbytes), disturbed * seconds))
    return found


def test_costs_of_gpus_are_found_again_in_times_of_two_and_eight() -> None:
    true = costs(8, "A100")[1]
    found = nccl.fit_costs(samples_of((2, 8)), nccl.COSTS_OF_GPUS[80])
    assert found.launch == pytest.approx(true.launch, rel=0.02)
    assert found.hop == pytest.approx(true.hop, rel=0.02)
    assert found.simple == pytest.approx(true.simple, rel=0.05)
    assert found.copy_rate == pytest.approx(true.copy_rate, rel=0.1)
    assert found.full_channel == pytest.approx(true.full_channel, rel=0.05)


def test_times_of_eight_gpus_alone_do_not_tell_a_launch_from_hops() -> None:
    """Fourteen hops and a launch are right together; each stays near what it was."""
    true, before = costs(8, "A100")[1], nccl.COSTS_OF_GPUS[80]
    found = nccl.fit_costs([one for one in samples_of((8,)) if not one[0].is_simple], before)
    assert found.launch + 14 * found.hop == pytest.approx(true.launch + 14 * true.hop, rel=0.02)
    assert found.simple == pytest.approx(before.simple)
    assert abs(found.launch - before.launch) < 2e-6


def test_times_without_a_copy_have_an_endless_rate_of_copies() -> None:
    """A rate that JSON and YAML can hold."""
    quick = [
        (term, term.seconds(replace(costs(2, "A100")[1], copy_rate=float("inf"))))
        for term, _ in samples_of((2, 8))
    ]
    found = nccl.fit_costs(quick, nccl.COSTS_OF_GPUS[80])
    assert 1e13 < found.copy_rate < float("inf")
