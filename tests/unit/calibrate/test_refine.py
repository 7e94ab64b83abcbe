"""Refinement: collectives correct what ping-pongs got wrong, and never make a choice worse."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.support.probed import RATE, Machine, racks, truth
from tuner.base.errors import InputError
from tuner.calibrate.accuracy import (
    CollectivePrediction,
    errors_by_algorithm,
    summarise_errors,
    summarise_ranking,
)
from tuner.calibrate.measured_collectives import predict_all, simulatable_collectives, subsample
from tuner.calibrate.refine import refine
from tuner.core.calibration import Calibration, Estimate
from tuner.core.collective import Collective
from tuner.core.measurement import Measurement, Measurements
from tuner.core.table import AlgorithmChoice
from tuner.mpi_libraries.schedules import schedule_of
from tuner.sim import simulate
from tuner.topology import Placement

pytestmark = pytest.mark.slow

RACKS = racks(2, uplink=4 * RATE)
SIZES = (1024, 4096, 16384, 65536, 2**18, 2**20)
LIBRARY = truth().library
NAMES = ("binomial", "chain", "scatter_allgather_ring")


@cache
def collectives(beta: float, shape: float = 0.0) -> Measurements:
    """Of a machine whose messages take `beta` times as long per byte while others are under way.

    shape   size-dependent disturbance that no calibration can express, different by algorithm
    """
    crowded = scaled(truth(), beta)
    series = []
    for number, name in enumerate(NAMES):
        for nbytes in SIZES:
            schedule = schedule_of(LIBRARY, Collective.BCAST, AlgorithmChoice(name), 4, nbytes)
            assert schedule is not None
            seconds = simulate(schedule, Placement.block(RACKS, 1), crowded, nbytes)
            seconds *= 1 + shape * (-1) ** (number + SIZES.index(nbytes))
            rng = np.random.default_rng([number, nbytes])
            taken = tuple((seconds * (1 + 0.005 * rng.standard_normal(9))).tolist())
            series.append(Measurement("collective", "bcast", 4, 1, 4, nbytes, taken, name))
    return replace(Machine(RACKS, truth()).measured(), series=tuple(series))


def scaled(calibration: Calibration, beta: float) -> Calibration:
    path = calibration.path_cost("network")
    segments = tuple(replace(s, beta=Estimate.exact(s.beta.value * beta)) for s in path.segments)
    paths = {**calibration.paths, ("network", "host"): replace(path, segments=segments)}
    return replace(calibration, paths=paths)


def test_the_right_calibration_predicts_what_was_measured() -> None:
    found = predict_all(simulatable_collectives(collectives(1.0), RACKS), truth())
    assert len(found) == len(NAMES) * len(SIZES)
    assert summarise_errors(found).p95 < 0.02
    assert summarise_ranking(found).regret == 0.0
    assert summarise_ranking(found).tau > 0.85


def test_what_messages_cost_under_load_is_found() -> None:
    heard: list[tuple[int, int]] = []
    found = refine(truth(), collectives(1.25), RACKS, on_progress=lambda *done: heard.append(done))
    assert heard == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert found.accepted
    assert re.search(r"kept out the mean error falls from \d+\.\d% to \d\.\d%$", found.reason)
    assert found.before.errors.mean > 0.1
    assert found.after.errors.mean < 0.03
    assert found.factors["network (host) beta 1"] == pytest.approx(1.25, rel=0.05)
    record = found.calibration.provenance["refined"]
    assert record["accepted"]
    assert {line["algorithm"] for line in record["algorithms"]} == set(NAMES)


@pytest.mark.weekly
def test_a_fit_that_does_not_carry_over_is_refused() -> None:
    found = refine(truth(), collectives(1.0), RACKS, n_folds=2)
    assert found.before.errors.mean < 0.01
    if found.accepted:
        assert found.after.errors.mean < found.before.errors.mean
    odd = refine(truth(), collectives(1.0, shape=0.3), RACKS, n_folds=2)
    assert not odd.accepted
    assert odd.calibration.paths == truth().paths
    assert "kept out" in odd.reason


def test_too_few_collectives_are_refused() -> None:
    few = replace(collectives(1.0), series=collectives(1.0).series[:5])
    with pytest.raises(InputError, match="a refinement needs 6 or more"):
        refine(truth(), few, RACKS)


def test_calls_are_left_out_by_whole_points() -> None:
    own = simulatable_collectives(collectives(1.0), RACKS)
    some = subsample(own, 9)
    assert len({call.point for call in some}) == 3
    assert len(some) == 9
    assert subsample(own, 1000) == own


def case(nbytes: int, algorithm: str, measured: float, predicted: float) -> CollectivePrediction:
    point = (Collective.BCAST, 4, 1, "consecutive", "host", nbytes)
    return CollectivePrediction(point, AlgorithmChoice(algorithm), measured, predicted)


def test_error_and_ranking_are_told_apart() -> None:
    twice = [case(64, "a", 1.0, 2.0), case(64, "b", 1.5, 3.0), case(2**18, "a", 2.0, 4.0)]
    assert summarise_errors(twice).median == summarise_errors(twice).bias == 1.0
    assert summarise_ranking(twice).regret == 0.0
    assert summarise_ranking(twice).tau == 1.0
    close = [case(64, "a", 1.0, 1.01), case(64, "b", 1.2, 1.0)]
    assert summarise_errors(close).mean < 0.1
    assert summarise_ranking(close).regret == pytest.approx(0.2)
    assert summarise_ranking(close).tau == -1.0
    assert summarise_ranking(close).close == 0.0


def test_errors_are_listed_by_algorithm_and_band_of_sizes() -> None:
    found = errors_by_algorithm(
        [case(64, "a", 1.0, 1.1), case(128, "a", 1.0, 0.9), case(2**18, "a", 2.0, 3.0)]
    )
    assert [(name[1], own.cases) for name, own in found.items()] == [("a", 2), ("a", 1)]
    first, second = found.values()
    assert first.mean == pytest.approx(0.1)
    assert first.bias == pytest.approx(0.0)
    assert second.bias == pytest.approx(0.5)


@pytest.mark.weekly
def test_device_memory_that_nobody_can_price_is_left_out() -> None:
    """On a topology without GPUs, and without messages between them in the calibration."""
    taken = replace(collectives(1.25), series=collectives(1.25).series[: len(SIZES)])
    on_gpus = tuple(replace(one, memory="cuda") for one in taken.series)
    both = replace(taken, series=taken.series + on_gpus)
    assert refine(truth(), both, RACKS).factors == refine(truth(), taken, RACKS).factors
    with pytest.raises(InputError, match="a refinement needs 6 or more"):
        refine(truth(), replace(taken, series=on_gpus), RACKS)


def test_collectives_that_say_nothing_are_left_out() -> None:
    """Times below what a clock resolves, and collectives that nothing here simulates."""
    taken = collectives(1.0)
    still = replace(taken.series[0], samples=(0.0, 1e-6))
    other = replace(taken.series[0], subject="alltoallv")
    odd = replace(taken, series=(still, other, *taken.series[1:]))
    assert len(simulatable_collectives(odd, RACKS)) == len(taken.series) - 1
