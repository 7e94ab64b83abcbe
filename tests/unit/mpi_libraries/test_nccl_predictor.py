"""Predictions from NCCL's estimate: published results, the choice, what corrects what."""

from __future__ import annotations

from statistics import median

import pytest

from tests.bench.nccl_curves import POINTS, bandwidths, held_out_errors, points_of
from tuner.core.collective import Collective
from tuner.machines import preset
from tuner.machines.model_accuracy import NCCL
from tuner.mpi_libraries.nccl import AlgoProto, NcclPredictor
from tuner.topology import Placement

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
@pytest.mark.parametrize("machine", [machine for machine in MACHINES if machine != "B200"])
def test_machines_tell_the_errors_of_constants_fitted_to_others(machine: str) -> None:
    """B200 is no machine known by name."""
    errors = [abs(error) for error in held_out_errors(machine)[0]]
    spec = preset(machine, 1).spec
    assert spec is not None
    told = spec.accuracy[NCCL]
    assert told.results == len(points_of(machine))
    assert told.median == pytest.approx(median(errors), abs=0.001)
    assert told.worst == pytest.approx(max(errors), abs=0.01)


def test_a_prediction_is_not_shorter_than_the_estimate() -> None:
    predictor = dgx_h100(4)
    for nbytes in (8, MIB, 16 * MIB, GIB):
        expected = predictor.expected_seconds(ALLREDUCE, nbytes)
        predicted = predictor.predicted_seconds(ALLREDUCE, nbytes)
        assert list(predicted) == list(expected)
        assert all(predicted[way] >= expected[way] for way in expected)


def test_buffers_cost_a_share_of_small_messages_and_a_constant_of_large_ones() -> None:
    """One node: 65 % more bytes, or 4 MiB more for each of eight GPUs; none for trees."""
    predictor = dgx_h100(1)
    for nbytes, more in ((MIB, 0.65), (8 * GIB, 32 * MIB / (8 * GIB))):
        expected = predictor.expected_seconds(ALLREDUCE, nbytes)
        predicted = predictor.predicted_seconds(ALLREDUCE, nbytes)
        for way in expected:
            latency = predictor.predicted_seconds(ALLREDUCE, 1)[way]
            ratio = (predicted[way] - latency) / (expected[way] - latency)
            wanted = 1.0 if way.algorithm == "tree" else 1.0 + more
            if (way.algorithm, way.protocol) != ("ring", "Simple"):  # its latency grows with size
                assert ratio == pytest.approx(wanted, rel=0.02)


def test_a_broadcast_passes_every_hop_of_a_ring() -> None:
    """NCCL counts one hop; in Simple one over NVLink has 3.4 us, one between nodes 14."""
    way = AlgoProto("ring", "Simple")
    for nodes, hops in ((1, 8 * 3.4e-6), (4, 28 * 3.4e-6 + 4 * 14e-6)):
        predictor = dgx_h100(nodes)
        counted = 3.4e-6 if nodes == 1 else 14e-6
        more = (
            predictor.predicted_seconds(BCAST, 1)[way] - predictor.expected_seconds(BCAST, 1)[way]
        )
        assert more == pytest.approx(hops - counted, rel=0.1)


def test_latencies_can_be_scaled() -> None:
    placement = Placement.block(preset("dgx-h100", 1).topology, 8)
    usual, half = (NcclPredictor(placement, latency_factor=f) for f in (1.0, 0.5))
    for way, seconds in usual.predicted_seconds(ALLREDUCE, 1).items():
        assert half.predicted_seconds(ALLREDUCE, 1)[way] == pytest.approx(seconds / 2, rel=1e-4)
