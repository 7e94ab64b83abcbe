"""Predictions from NCCL's estimate: published results, the choice, what corrects what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles

import pytest

from tests.bench.nccl_curves import POINTS, bandwidths, held_out_errors, points_of
from tests.bench.nccl_errors import BANDS, COLLECTIVES, error, predictor_of, read_rows
from tuner.core.collective import Collective
from tuner.machines import preset, preset_spec, with_gpu
from tuner.machines.model_accuracy import NCCL
from tuner.mpi_libraries.nccl import NCCL_CHANNELS, AlgoProto, NcclPredictor
from tuner.topology import NcclCosts, Placement

ALLREDUCE, BCAST = Collective.ALLREDUCE, Collective.BCAST
MIB = 1 << 20
GIB = 1 << 30
MACHINES = dict.fromkeys(point.machine for point in POINTS)


def dgx_h100(nodes: int) -> NcclPredictor:
    return NcclPredictor(Placement.block(preset("dgx-h100", nodes).topology, 8))


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
def test_published_results_are_predicted(machine: str) -> None:
    errors = [abs(bandwidths(point)[1] / point.busbw - 1) for point in points_of(machine)]
    assert median(errors) < 0.04


@pytest.mark.extended
def test_a_machine_tells_the_errors_of_constants_fitted_to_others() -> None:
    """This holds for machines with published curves; B200 has no preset to state it in."""
    errors = [abs(error) for error in held_out_errors("dgx-1p")[0]]
    told = preset_spec("dgx-1p").accuracy[NCCL]
    assert told.results == len(points_of("dgx-1p"))
    assert told.median == pytest.approx(median(errors), abs=0.001)
    assert told.worst == pytest.approx(max(errors), abs=0.01)


def test_a_machine_tells_its_errors_by_size(shared: Path) -> None:
    """Against measured times of DGX A100; those of the other machines are not all in these data."""
    data = shared / "data/aiconfigurator/nccl_one_node.csv"
    if not data.is_file():
        pytest.skip(f"{data} is not there")
    told = preset_spec("dgx-a100").accuracy[NCCL]
    rows = [
        row
        for row in read_rows([data])[0]
        if row.system == "a100_sxm" and COLLECTIVES[row.collective] in told.collectives
    ]
    assert told.results == len(rows)
    for size, band in zip(told.by_size, BANDS, strict=True):
        errors = [
            abs(error(row, predictor_of("a100_sxm", 2).costs)) for row in rows if row.band == band
        ]
        assert size.median == pytest.approx(median(errors), abs=0.001)
        assert size.p95 == pytest.approx(quantiles(errors, n=20)[-1], abs=0.001)


def test_a_prediction_on_a100_is_not_shorter_than_the_estimate() -> None:
    predictor = NcclPredictor(Placement.block(preset("dgx-a100", 4).topology, 8))
    for nbytes in (8, MIB, 16 * MIB, GIB):
        expected = predictor.expected_seconds(ALLREDUCE, nbytes)
        predicted = predictor.predicted_seconds(ALLREDUCE, nbytes)
        assert list(predicted) == list(expected)
        assert all(predicted[way] >= expected[way] for way in expected)


@pytest.mark.parametrize(
    ("product", "carried"),
    [
        ("H100", 12 * 30e9 / 2),  # where NCCL has a cap of 141
        ("B200", 282e9),  # of 32 channels, below 16 x 45 / 2 = 360
        ("A100", 12 * 20e9 / 2),  # where NCCL has a cap of 87.7
    ],
)
def test_rings_in_ll_get_half_of_their_links_or_what_their_channels_carry(
    product: str, carried: float
) -> None:
    topology = with_gpu(preset("dgx-h100", 1), product).topology
    predictor, way = NcclPredictor(Placement.block(topology, 8)), AlgoProto("ring", "LL")
    bounds = predictor.terms(Collective.ALLGATHER, way, MIB).bounds
    assert bounds[NCCL_CHANNELS] == pytest.approx(carried * 8 / 7)


def test_buffers_cost_nvls_a_share_of_small_messages_and_a_constant_of_large_ones() -> None:
    """It takes 55 % more bytes on one node, or 4 MiB more for each of eight GPUs."""
    predictor, way = dgx_h100(1), AlgoProto("nvls", "Simple")
    latency = predictor.predicted_seconds(ALLREDUCE, 1)[way]
    for nbytes, more in ((MIB, 0.55), (8 * GIB, 32 * MIB / (8 * GIB))):
        expected = predictor.expected_seconds(ALLREDUCE, nbytes)[way] - 25e-6
        predicted = predictor.predicted_seconds(ALLREDUCE, nbytes)[way] - latency
        assert predicted / expected == pytest.approx(1 + more, rel=0.001)


@pytest.mark.parametrize(("nodes", "protocol"), [(1, "LL"), (1, "Simple"), (4, "LL128")])
def test_rings_inside_a_node_and_in_ll_fill_no_buffers(nodes: int, protocol: str) -> None:
    """Each of p ranks copies its own part at 695 GB/s, LL's words with a flag for each."""
    predictor, way = dgx_h100(nodes), AlgoProto("ring", protocol)
    nbytes, p = 64 * MIB, 8 * nodes
    # of a size that fills the channels, from which on NCCL takes another latency between nodes
    small = predictor.terms(ALLREDUCE, way, MIB)
    large = predictor.terms(ALLREDUCE, way, nbytes)
    assert large.transfer / small.transfer == pytest.approx(64)
    wire = {"LL": 2.0, "LL128": 128 / 120, "Simple": 1.0}[protocol]
    assert large.own_bytes == pytest.approx(wire * nbytes / p)


def test_a_ring_between_nodes_fills_its_buffers_in_a_fifth_of_the_time_of_all_bytes() -> None:
    """128 ranks would otherwise wait 25 us each, longer than 256 MiB take."""
    predictor = NcclPredictor(Placement.block(preset("dgx-a100", 16).topology, 8))
    small, large = (
        predictor.terms(ALLREDUCE, AlgoProto("ring", "Simple"), nbytes).transfer
        for nbytes in (256 * MIB, 64 * GIB)
    )
    assert small == pytest.approx(1.2 * 2 * 127 / 128 * 256 * MIB / (8 * 23.6e9), rel=0.05)
    assert large < 1.05 * 256 / 1.2 * small


def test_predictions_of_what_nccl_chooses_hardly_fall_with_the_size() -> None:
    predictor = dgx_h100(16)
    before = 0.0
    for nbytes in (1 << power for power in range(10, 34)):
        expected = predictor.expected_seconds(Collective.ALLGATHER, nbytes)
        chosen = min(expected, key=expected.__getitem__)
        seconds = predictor.predicted_seconds(Collective.ALLGATHER, nbytes)[chosen]
        assert seconds > 0.99 * before
        before = seconds


def test_generations_of_gpus_differ_in_their_latencies() -> None:
    """Allreduce of 8 bytes on 2, 4 and 8 GPUs, as measured on A100, H100 and B200, in us."""
    measured = {"A100": (10.0, 14.1, 21.6), "H100": (6.4, 9.8, 15.8), "B200": (9.9, 15.4, 26.3)}
    for product, times in measured.items():
        machine = with_gpu(preset("dgx-h100", 1), product)
        for gpus, microseconds in zip((2, 4, 8), times, strict=True):
            predictor = NcclPredictor(Placement.block(machine.topology, gpus))
            found = min(predictor.predicted_seconds(ALLREDUCE, 8).values())
            assert found == pytest.approx(1e-6 * microseconds, rel=0.1)


def test_gpus_that_nobody_measured_have_what_nccl_counts() -> None:
    predictor = NcclPredictor(Placement.block(preset("dgx-1v", 1).topology, 8))
    expected, predicted = (
        seconds(ALLREDUCE, 8)
        for seconds in (predictor.expected_seconds, predictor.predicted_seconds)
    )
    assert all(predicted[way] == pytest.approx(expected[way], rel=1e-4) for way in expected)


def test_costs_of_gpus_can_be_given() -> None:
    placement = Placement.block(preset("dgx-h100", 1).topology, 8)
    usual = NcclPredictor(placement)
    slower = NcclPredictor(placement, costs=replace(usual.costs, launch=usual.costs.launch + 3e-6))
    for way, seconds in usual.predicted_seconds(ALLREDUCE, MIB).items():
        assert slower.predicted_seconds(ALLREDUCE, MIB)[way] == pytest.approx(seconds + 3e-6)


GIVEN = NcclCosts(launch=5e-6, hop=1e-6, simple=0.0, copy_rate=500e9, full_channel=2e-6)


@pytest.mark.parametrize(("nbytes", "full"), [(4 * 4096 - 4, 0.0), (4 * 4096, 2e-6)])
def test_a_ring_in_ll_takes_longer_once_a_part_occupies_all_threads(
    nbytes: int, full: float
) -> None:
    """That is 8 bytes for each of 512: of an allgather on four H100 it is 4 KiB of a rank.

    It takes a launch and three hops, three quarters of the bytes at half of 12 channels of 30 GB/s,
    and two bytes of a copy for each of the part.
    """
    placement = Placement.block(preset("dgx-h100", 1).topology, 4)
    predictor, way = NcclPredictor(placement, costs=GIVEN), AlgoProto("ring", "LL")
    seconds = 5e-6 + 3 * 1e-6 + nbytes * 3 / 4 / 180e9 + 2 * nbytes / 4 / 500e9
    found = predictor.seconds(Collective.ALLGATHER, way, nbytes)
    assert found == pytest.approx(seconds + full, rel=1e-6)


def test_what_besides_rings_in_ll_occupies_all_threads() -> None:
    """Others have them at all sizes that NCCL gives them; of all-to-alls it is counted apart."""
    predictor = NcclPredictor(Placement.block(preset("dgx-h100", 1).topology, 8), costs=GIVEN)
    ways = predictor.algo_protos(ALLREDUCE)
    full = {way for way in ways if predictor.terms(ALLREDUCE, way, MIB).is_full}
    assert full == {AlgoProto("ring", "LL")}
    assert not predictor.terms(BCAST, AlgoProto("ring", "LL"), MIB).is_full
    for way in predictor.algo_protos(Collective.ALLTOALL):
        assert predictor.terms(Collective.ALLTOALL, way, 8).is_full


def test_rings_of_amd_have_no_known_size_that_occupies_all_threads() -> None:
    predictor = NcclPredictor(Placement.block(preset("mi300x", 1).topology, 8), costs=GIVEN)
    assert not predictor.terms(ALLREDUCE, AlgoProto("ring", "LL"), MIB).is_full


def test_costs_without_a_full_channel_have_that_of_the_generation() -> None:
    placement = Placement.block(preset("dgx-a100", 1).topology, 8)
    found = NcclPredictor(placement, costs=replace(GIVEN, full_channel=None)).costs
    assert found == replace(GIVEN, full_channel=2.5e-6)


def test_a_broadcast_passes_every_hop_of_a_ring() -> None:
    """NCCL counts one hop; in Simple one over NVLink has 3.4 us, one between nodes 14.

    H100 takes 0.24 us more for each hop inside a node, 1.9 us less to begin, 6.8 us more for
    Simple.
    """
    way = AlgoProto("ring", "Simple")
    for nodes, hops in ((1, 8 * 3.64e-6), (4, 28 * 3.64e-6 + 4 * 14e-6)):
        predictor = dgx_h100(nodes)
        counted = 3.4e-6 if nodes == 1 else 14e-6
        more = (
            predictor.predicted_seconds(BCAST, 1)[way] - predictor.expected_seconds(BCAST, 1)[way]
        )
        assert more == pytest.approx(hops - counted + 4.9e-6, rel=1e-3)


def test_latencies_can_be_scaled() -> None:
    placement = Placement.block(preset("dgx-h100", 1).topology, 8)
    usual, half = (NcclPredictor(placement, latency_factor=f) for f in (1.0, 0.5))
    for way, seconds in usual.predicted_seconds(ALLREDUCE, 1).items():
        assert half.predicted_seconds(ALLREDUCE, 1)[way] == pytest.approx(seconds / 2, rel=1e-4)
