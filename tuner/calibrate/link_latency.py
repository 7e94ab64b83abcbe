"""Estimate rate and latency of the links of a path class, without the software at their ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.base.atomic_io import dataclass_from_record
from tuner.base.errors import InputError
from tuner.calibrate.bootstrap import interval_estimate
from tuner.calibrate.point_to_point import PathFit
from tuner.calibrate.series_index import SeriesIndex
from tuner.core.path_classes import PATH_CLASSES
from tuner.topology import NETWORK


@dataclass(frozen=True)
class LoopbackTimes:
    """Times of short messages between two ranks of a host, from `tuner.rank_programs.loopback`.

    frame_bytes     bytes on the wire of a message, headers included
    hold_times      (seconds for which each rank holds a message, further one-way seconds)
    """

    frame_bytes: float
    hold_times: tuple[tuple[float, float], ...]

    def software_seconds(self, short_message_s: float) -> float:
        """Return the software's seconds of a message of `short_message_s` between hosts.

        Its ranks wait for what the links take there and back.
        """
        held, besides = np.transpose(self.hold_times)
        return float(np.interp(2 * (short_message_s - besides[0]), held, besides))


def estimate_link(series: SeriesIndex, path_fit: PathFit) -> dict[str, Any]:
    """Return the rate of long messages, the latency of the links and the software's part.

    The latency is what a short message takes without the software's part and without its frame at
    that rate. The lower quartile of short messages counts, since disturbances only add time.

    The software's part is what a message between two ranks of a host takes over the same transport,
    when they wait for as long. If that was not measured, or other messages are faster, it is twice
    the sender's overhead. Raises InputError for damaged provenance.
    """
    beta = path_fit.cost.segments[-1].beta
    handed = series.find("overhead", path_fit.latency_curve.path, path_fit.latency_curve.memory)
    short = path_fit.latency_curve.times[:, 0] * _lower_quartile_ratio(series, path_fit)
    software = 2 * series.median(handed[0]) if handed else np.zeros_like(short)
    own = _parse_loopback(series.measurements.provenance.get("loopback"))
    between = (
        path_fit.latency_curve.path not in PATH_CLASSES or path_fit.latency_curve.path == NETWORK
    )
    if own and between and own.software_seconds(short.min()) < short.min():
        software = np.full_like(short, own.software_seconds(short.min()))
        short = short - own.frame_bytes * beta.value
    latency = interval_estimate((short - software).clip(0.0))
    rate = None if beta.low == 0.0 else [1 / beta.value, 1 / beta.high, 1 / beta.low]
    return {
        "bytes_per_second": rate,
        "latency": [latency.value, latency.low, latency.high],
        "software": float(software[0]),
    }


def _lower_quartile_ratio(series: SeriesIndex, path_fit: PathFit) -> float:
    """Return the lower quartile of the shortest messages' times over their median."""
    launches = series.find("pingpong", path_fit.latency_curve.path, path_fit.latency_curve.memory)
    samples = [seconds for each in launches[0] for seconds in each.samples] if launches else [1.0]
    return float(np.quantile(samples, 0.25) / np.median(samples))


def _parse_loopback(record: Any) -> LoopbackTimes | None:
    """Return the loopback times of a provenance record; None if they were not measured."""
    if not record:
        return None
    try:
        read = dataclass_from_record(LoopbackTimes, record)
        if not read.hold_times:
            raise ValueError("it holds no times")
    except (TypeError, ValueError) as reason:
        raise InputError(f"the measurements' loopback is damaged: {reason}; probe again") from None
    return read
