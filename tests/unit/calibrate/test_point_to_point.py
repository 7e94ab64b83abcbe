"""Known parameters must come back from noisy synthetic samples."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tuner.base.errors import InputError
from tuner.calibrate import calibrate
from tuner.calibrate.bootstrap import Bootstrap
from tuner.calibrate.latency_curve import MAX_SIZES, fit_latency_curve
from tuner.calibrate.piecewise import break_points, fit_piecewise
from tuner.calibrate.series_index import SeriesIndex
from tuner.core.calibration import Calibration, Estimate, read_calibration, write_calibration
from tuner.core.measurement import Cluster, Measurement, Measurements
from tuner.probe.single_host import PINGPONG_SIZES, REDUCTION_SIZES

pytestmark = pytest.mark.slow

EAGER = 4000
OVERHEAD = 1e-7
CALL = 2e-7
# Latency (overhead included) and seconds per byte of messages up to EAGER, and of longer ones.
SHORT = (5e-7, 4e-10)
LONG = (3e-6, 5e-11)
LAUNCH = 5e-8
GAMMA = 3e-11
CLUSTER = Cluster("box", 1, 2, "cpu", 2**33)


def one_way(nbytes: int, slowdown: float = 1.0) -> float:
    alpha, beta = SHORT if nbytes < EAGER else LONG
    return alpha + beta * slowdown * nbytes


def series(
    kind: str, subject: str, p: int, nbytes: int, seconds: float, seed: int, **params: int
) -> Measurement:
    rng = np.random.default_rng([seed, nbytes, p, *params.values()])
    samples = seconds * (1 + 0.02 * rng.standard_normal(41))
    outliers = rng.random(41) < 0.05
    samples = np.where(outliers, samples * 20, samples)
    return Measurement(kind, subject, 1, p, p, nbytes, tuple(samples.tolist()), params=params)


def probed(slowdown: float = 1.5, seed: int = 0) -> Measurements:
    found = [series("call", "proc_null", 1, 0, CALL, seed)]
    found.append(series("eager", "node", 2, EAGER, 2e-3, seed))
    for subject, p, slow in (("node", 2, 1.0), ("node_oversubscribed", 4, slowdown)):
        found += [
            series("pingpong", subject, p, n, one_way(n, slow) + CALL, seed) for n in PINGPONG_SIZES
        ]
        for count in (1, 33):
            seconds = 3e-6 + count * (OVERHEAD + 8 * LONG[1])
            found.append(series("burst", subject, p, 8, seconds, seed, messages=count))
    found += [
        series("reduction", "sum_float32", 1, n, 4e-7 + (LAUNCH + GAMMA * n if n else 0), seed)
        for n in REDUCTION_SIZES
    ]
    return Measurements(CLUSTER, "openmpi 5.0.11", {}, tuple(found))


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    return calibrate(probed())


def near(estimate: Estimate, value: float, tolerance: float) -> None:
    assert estimate.low <= estimate.value <= estimate.high
    assert estimate.value == pytest.approx(value, rel=tolerance)


def test_the_break_lies_at_the_eager_limit_and_nowhere_else(calibration: Calibration) -> None:
    path = calibration.path_cost("node")
    assert [segment.start_bytes for segment in path.segments] == [0.0, EAGER]
    assert path.segments[-1].stop_bytes == math.inf
    assert path.eager_limit == EAGER


def test_alpha_beta_and_overhead_come_back(calibration: Calibration) -> None:
    path = calibration.path_cost("node")
    near(path.overhead, OVERHEAD, 0.25)
    near(path.segments[0].alpha, SHORT[0] - OVERHEAD, 0.1)
    near(path.segments[0].beta, SHORT[1], 0.1)
    near(path.segments[1].alpha, LONG[0] - OVERHEAD, 0.1)
    near(path.segments[1].beta, LONG[1], 0.05)


def test_predicted_times_are_the_true_ones_at_sizes_that_were_not_measured(
    calibration: Calibration,
) -> None:
    path = calibration.path_cost("node")
    for nbytes in (100, 3000, 5000, 100_000, 3_000_000):
        assert path.seconds(nbytes) == pytest.approx(one_way(nbytes), rel=0.05)


def test_a_port_is_no_longer_busy_than_messages_in_a_row_show() -> None:
    """Of what more bytes take alone, most is latency here: a pipeline of short ones is fast."""
    busy = SHORT[1] / 4
    rows = [
        series("burst", "node", 2, 3000, 3e-6 + count * (OVERHEAD + 3000 * busy), 0, messages=count)
        for count in (1, 33)
    ]
    whole = probed()
    path = calibrate(replace(whole, series=(*whole.series, *rows))).path_cost("node")
    short, long = path.segments
    near(short.beta, busy, 0.1)
    near(short.latency_per_byte, SHORT[1] - busy, 0.1)
    assert short.latency_per_byte.high < 1.2 * short.latency_per_byte.value
    assert long.latency_per_byte.value == 0.0
    for nbytes in (4, 1024, 2048, 3072):
        assert path.seconds(nbytes) == pytest.approx(one_way(nbytes), rel=0.05)


def test_reduction_cost_comes_back(calibration: Calibration) -> None:
    near(calibration.reduction["host"].gamma, GAMMA, 0.05)
    near(calibration.reduction["host"].launch, LAUNCH, 0.5)


def test_capacity_is_what_all_pairs_move_together(calibration: Calibration) -> None:
    near(calibration.capacities["memory_bus"], 2 / (1.5 * LONG[1]), 0.05)


@pytest.mark.weekly
def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    covered = []
    for seed in range(6):
        path = calibrate(probed(seed=seed)).path_cost("node")
        for segment, (_, beta) in zip(path.segments, (SHORT, LONG), strict=True):
            covered.append(segment.beta.low <= beta <= segment.beta.high)
    assert np.mean(covered) > 0.75


def test_without_contention_the_capacity_is_left_open_and_named() -> None:
    calibration = calibrate(probed(slowdown=1.0))
    assert calibration.capacities == {}
    assert any("memory_bus" in gap for gap in calibration.provenance["undetermined"])


def test_a_calibration_survives_its_file(calibration: Calibration, tmp_path: Path) -> None:
    write_calibration(calibration, tmp_path / "c.json")
    assert read_calibration(tmp_path / "c.json") == calibration


def test_without_messages_there_is_nothing_to_calibrate() -> None:
    whole = probed()
    left = tuple(one for one in whole.series if one.kind != "pingpong")
    with pytest.raises(InputError, match="pingpong"):
        calibrate(replace(whole, series=left))


@pytest.mark.parametrize(
    ("kind", "named"),
    [("burst", "node: overhead"), ("eager", "node: eager limit"), ("reduction", "reduction")],
)
def test_what_nobody_measured_is_neutral_and_named(kind: str, named: str) -> None:
    whole = probed()
    left = tuple(one for one in whole.series if one.kind != kind)
    fitted = calibrate(replace(whole, series=left))
    assert any(gap.startswith(named) for gap in fitted.provenance["undetermined"])
    assert not any(gap.startswith(named) for gap in calibrate(whole).provenance["undetermined"])
    if kind == "reduction":
        assert fitted.reduction == {}
    else:
        assert fitted.path_cost("node").overhead.value == 0.0 or kind == "eager"
        assert fitted.path_cost("node").eager_limit == 0.0 or kind == "burst"


@pytest.mark.weekly
def test_times_never_drop_at_a_break() -> None:
    sizes = np.array([float(n) for n in PINGPONG_SIZES])
    for seed in range(30):
        rng = np.random.default_rng(seed)
        times = 1e-6 * np.exp(np.cumsum(np.abs(rng.normal(0, 0.4, len(sizes)))))
        lines = fit_piecewise(sizes, times, np.zeros(len(sizes)))
        begins = break_points(lines, sizes, [4017])
        assert len(begins) == len(lines) - 1
        for left, right, begin in zip(lines, lines[1:], begins, strict=False):
            assert sizes[left.last - 1] <= begin <= sizes[right.first]
            assert right.seconds(begin) >= left.seconds(begin) * (1 - 1e-6)


def test_one_straight_line_is_fitted_by_one() -> None:
    sizes = np.array([float(n) for n in PINGPONG_SIZES])
    lines = fit_piecewise(sizes, 2e-6 + 1e-10 * sizes, np.full(len(sizes), 0.01))
    assert len(lines) == 1
    assert lines[0].alpha == pytest.approx(2e-6)
    assert lines[0].beta == pytest.approx(1e-10)


def test_times_too_flat_for_a_bandwidth_do_not_break_the_capacity() -> None:
    """A short, noisy probe may see large messages cost no more than small ones."""
    flat = [
        replace(s, samples=(1e-5,) * 20) if (s.kind, s.subject) == ("pingpong", "node") else s
        for s in probed().series
    ]
    fitted = calibrate(replace(probed(), series=tuple(flat)))
    assert fitted.path_cost("node").segments[-1].beta.value == 0.0
    assert any("below resolution" in line for line in fitted.provenance["undetermined"])


@pytest.mark.weekly
def test_a_file_with_very_many_sizes_or_samples_takes_no_longer_than_a_probes() -> None:
    """Sizes are taken evenly from all, and draws from millions of samples a part at a time."""
    sizes = range(1024, 1024 * 301, 1024)
    taken = [Measurement("pingpong", "node", 1, 2, 2, n, (1e-6 + n * 1e-9,)) for n in sizes]
    series = SeriesIndex(Measurements(Cluster("c", 1, 2, "", 0), "openmpi", {}, tuple(taken)))
    found = fit_latency_curve(series, "node", "host", series.find("pingpong", "node"))
    assert found is not None
    assert len(found.sizes) == MAX_SIZES
    assert (found.sizes[0], found.sizes[-1]) == (sizes[0], sizes[-1])
    many = Measurement("pingpong", "node", 1, 2, 2, 8, (1.0, 3.0, 2.0) * 10_000)
    assert Bootstrap().median([many]) == pytest.approx(2.0)
