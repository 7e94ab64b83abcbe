"""Fit a `Calibration` to measurements: every parameter with an interval, none without data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.base.errors import InputError
from tuner.calibrate.bidirectional import fit_bidirectional
from tuner.calibrate.borrowed import fill_missing_costs, required_path_classes
from tuner.calibrate.device_costs import fit_device_costs
from tuner.calibrate.host_distances import HostDistances
from tuner.calibrate.internode_paths import fit_internode_paths
from tuner.calibrate.latency_curve import LatencyCurve, fit_latency_curve
from tuner.calibrate.link_latency import estimate_link
from tuner.calibrate.piecewise import MIN_SIZES
from tuner.calibrate.point_to_point import PathFit, fit_path
from tuner.calibrate.ports import duplex_ratios, fit_port_sharing_threshold
from tuner.calibrate.series_index import LaunchSeries, SeriesIndex
from tuner.calibrate.shared_bandwidth import fit_capacities
from tuner.calibrate.sync_send import fit_sync_threshold, with_sync_threshold
from tuner.core.calibration import Calibration
from tuner.core.measurement import Measurements
from tuner.core.path_classes import PATH_CLASSES
from tuner.topology import CUDA, HOST, NETWORK, Topology


@dataclass(frozen=True)
class CalibrationFit:
    """A calibration and the curves that it was fitted to.

    latency_curves  (path, memory) -> the measured times and the lines through them
    """

    calibration: Calibration
    latency_curves: Mapping[tuple[str, str], LatencyCurve] = field(default_factory=dict)


def calibrate(measurements: Measurements, topology: Topology | None = None) -> Calibration:
    """Return the calibration fitted to measurements.

    It has piecewise alpha-beta costs per path class and memory, overheads, reductions and
    capacities.

    topology    of the probed cluster: the latency of its links is subtracted from the cost of a
                path class, as the simulator adds it; without a topology it stays in

    What the series do not determine is left at its neutral value and named in
    `provenance["undetermined"]`. Paths that the table of a tuning run needs, and for which it had
    no time, are borrowed, as `tuner.calibrate.borrowed` says. Raises InputError when no path has
    ping-pongs of three sizes and nothing can be borrowed, and for a topology of another cluster.
    """
    return fit_calibration(measurements, topology).calibration


def fit_calibration(measurements: Measurements, topology: Topology | None = None) -> CalibrationFit:
    """Fit a calibration as `calibrate` does, and return it with the latency curves."""
    series = SeriesIndex(measurements)
    distances = None if topology is None else _host_distances(measurements, topology)
    found, gaps = _fit_paths(series, distances)
    wanted = required_path_classes(measurements, topology)
    if not found and topology is not None and wanted:
        return CalibrationFit(
            fill_missing_costs(empty_calibration(measurements, topology, gaps), topology, wanted)
        )
    if not found:
        raise InputError(
            f"the probe of {measurements.cluster.name} lacks what a calibration needs: pingpong of"
            f" two ranks at {MIN_SIZES} sizes or more; probe again with a larger --budget"
        )
    alone = {path: one.latency_curve for (path, memory), one in found.items() if memory == HOST}
    shared, crowded, moved = fit_capacities(series, alone)
    beside = fit_device_costs(series)
    discipline, open_ = _fit_port_discipline(series, found)
    gaps += [gap for one in found.values() for gap in one.undetermined]
    provenance = {
        **_provenance(series, found),
        "exchanges": duplex_ratios(series, alone),
        "shared": moved,
        "copies": beside.copy_rates,
        "topology": topology.name if topology else "",
        "undetermined": [*gaps, *crowded, *beside.undetermined, *open_],
    }
    calibration = Calibration(
        cluster=measurements.cluster.name,
        library=measurements.library,
        paths={key: one.cost for key, one in found.items()} | beside.paths,
        reduction=beside.reduction,
        capacities=shared,
        port_sharing_threshold=discipline,
        pointer_query_seconds=beside.pointer_query_seconds,
        provenance=provenance,
    )
    own = {key: one.latency_curve for key, one in found.items() if not one.is_shifted}
    return CalibrationFit(fill_missing_costs(calibration, topology, wanted), own)


def empty_calibration(
    measurements: Measurements, topology: Topology | None, undetermined: Sequence[str]
) -> Calibration:
    """Return a calibration without costs.

    undetermined    a sentence for each cost that is missing, and why
    """
    provenance = {
        "measured": dict(measurements.provenance),
        "topology": topology.name if topology else "",
        "undetermined": list(undetermined),
    }
    return Calibration(measurements.cluster.name, measurements.library, {}, provenance=provenance)


def _host_distances(measurements: Measurements, topology: Topology) -> HostDistances:
    hosts = measurements.provenance.get("hosts", ())
    return HostDistances(topology, tuple(hosts) if isinstance(hosts, list | tuple) else ())


def _fit_paths(
    series: SeriesIndex, distances: HostDistances | None
) -> tuple[dict[tuple[str, str], PathFit], list[str]]:
    """Return every path with a latency curve, and sentences about those without."""
    found: dict[tuple[str, str], PathFit] = {}
    gaps: list[str] = []
    for memory in (HOST, CUDA):
        for subject in series.subjects("pingpong", memory):
            if subject == NETWORK:
                continue
            one = fit_latency_curve(
                series, subject, memory, _least_concurrent(series, subject, memory)
            )
            if one is None:
                gaps.append(f"{subject} ({memory}): pingpong at {MIN_SIZES} sizes or more")
            else:
                found[subject, memory] = fit_path(
                    series, one, subject, _link_latency(series, one, distances)
                )
        between, unknown = fit_internode_paths(series, memory, distances)
        if between:
            begin, unseen = fit_sync_threshold(series, between[NETWORK])
            between = {name: with_sync_threshold(one, begin) for name, one in between.items()}
            gaps += [unseen] if unseen else []
        met, unmet = (
            fit_bidirectional(series, memory, between[NETWORK], distances) if between else ({}, [])
        )
        found |= {(name, memory): one for name, one in {**between, **met}.items()}
        gaps += [*unknown, *unmet]
        if not between and series.find("pingpong", NETWORK, memory):
            gaps.append(f"{NETWORK} ({memory}): pingpong of two ranks at {MIN_SIZES} sizes or more")
    return found, gaps


def _least_concurrent(series: SeriesIndex, subject: str, memory: str) -> list[LaunchSeries]:
    """Return the ping-pongs of the smallest `p`, which disturb one another least."""
    points = series.find("pingpong", subject, memory)
    fewest = min(one[0].p for one in points)
    return [one for one in points if one[0].p == fewest]


def _link_latency(
    series: SeriesIndex, curve: LatencyCurve, distances: HostDistances | None
) -> float:
    """Return the seconds that the links of the topology add to this path class inside a node."""
    if distances is None or curve.path not in PATH_CLASSES:
        return 0.0
    ppn = series.find("pingpong", curve.path, curve.memory)[0][0].ppn
    way = distances.within(
        curve.path, curve.memory, max(ppn, distances.topology.cores_per_node.max())
    )
    return way.latency if way else 0.0


def _fit_port_discipline(
    series: SeriesIndex, found: Mapping[tuple[str, str], PathFit]
) -> tuple[float, list[str]]:
    """Fit how messages share a port, of the network if there is one, else of the first path."""
    name = (NETWORK, HOST) if (NETWORK, HOST) in found else next(iter(found))
    begin, gap = fit_port_sharing_threshold(series, found[name], name[0])
    return begin, [gap] if gap else []


def _provenance(series: SeriesIndex, found: Mapping[tuple[str, str], PathFit]) -> dict[str, Any]:
    """Return where the parameters come from and how well the lines describe the measurements."""
    first = next(iter(found.values()))
    call = series.call_overhead
    return {
        "measured": dict(series.measurements.provenance),
        "call_s": 0.0 if isinstance(call, float) else float(call[0]),
        "eager_limit": first.sources["eager_limit"],
        "sources": {one.latency_curve.name: one.sources for one in found.values()},
        "worst_relative_residual": {
            one.latency_curve.name: float(abs(one.latency_curve.relative_residuals()).max())
            for one in found.values()
        },
        "fit": [
            line for one in found.values() if not one.is_shifted for line in _goodness_of_fit(one)
        ],
        "links": {one.latency_curve.name: estimate_link(series, one) for one in found.values()},
        "drift": series.bootstrap.drift,
        "launches": 1 + max(one.launch for one in series.measurements.series),
    }


def _goodness_of_fit(path_fit: PathFit) -> list[dict[str, Any]]:
    return path_fit.latency_curve.goodness_of_fit(
        [segment.start_bytes for segment in path_fit.cost.segments[1:]]
    )
