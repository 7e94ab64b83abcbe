"""From measurements to a `Calibration`: every parameter with an interval, none without data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.base.errors import InputError
from tuner.calibrate.bidirectional import meetings
from tuner.calibrate.borrowed import completed, wanted_classes
from tuner.calibrate.device_costs import devices
from tuner.calibrate.host_distances import Distances
from tuner.calibrate.internode_paths import network
from tuner.calibrate.latency_curve import Ladder, ladder
from tuner.calibrate.link_latency import link
from tuner.calibrate.piecewise import SHORTEST
from tuner.calibrate.point_to_point import Fitted, fitted
from tuner.calibrate.ports import exchanges, shared_from
from tuner.calibrate.series_index import Launches, Series
from tuner.calibrate.shared_bandwidth import capacities
from tuner.calibrate.sync_send import acknowledged, acknowledged_from
from tuner.core.calibration import Calibration
from tuner.core.measurement import Measurements
from tuner.core.path_classes import PATH_CLASSES
from tuner.topology import CUDA, HOST, NETWORK, Topology


@dataclass(frozen=True)
class Fit:
    """A calibration and what it was read off.

    ladders     (path, memory) -> the measured times and the lines through them
    """

    calibration: Calibration
    ladders: Mapping[tuple[str, str], Ladder] = field(default_factory=dict)


def calibrate(measurements: Measurements, topology: Topology | None = None) -> Calibration:
    """Piecewise alpha-beta per path class and memory, overheads, reductions, capacities.

    topology    of the probed cluster: the latency of its links is taken out of the price of a
                class of paths, as the simulator adds it; without one it stays in

    What the series do not determine is left at its neutral value and named in
    `provenance["undetermined"]`. Paths that the table of a tuning run needs, and for which it had
    no time, are borrowed, as `tuner.calibrate.borrowed` says. Raises InputError when no path has
    ping-pongs of three sizes and nothing can be borrowed, and for a topology of another cluster.
    """
    return fit(measurements, topology).calibration


def fit(measurements: Measurements, topology: Topology | None = None) -> Fit:
    """`calibrate`, with the ladders."""
    series = Series(measurements)
    distances = None if topology is None else _distances(measurements, topology)
    found, gaps = _paths(series, distances)
    wanted = wanted_classes(measurements, topology)
    if not found and topology is not None and wanted:
        return Fit(completed(_unmeasured(measurements, topology, gaps), topology, wanted))
    if not found:
        raise InputError(
            f"the probe of {measurements.cluster.name} lacks what a calibration needs: pingpong of"
            f" two ranks at {SHORTEST} sizes or more; probe again with a larger --budget"
        )
    alone = {path: one.ladder for (path, memory), one in found.items() if memory == HOST}
    shared, crowded, moved = capacities(series, alone)
    beside = devices(series)
    discipline, open_ = _discipline(series, found)
    gaps += [gap for one in found.values() for gap in one.gaps]
    provenance = {
        **_provenance(series, found),
        "exchanges": exchanges(series, alone),
        "shared": moved,
        "copies": beside.rates,
        "topology": topology.name if topology else "",
        "undetermined": [*gaps, *crowded, *beside.gaps, *open_],
    }
    calibration = Calibration(
        cluster=measurements.cluster.name,
        library=measurements.library,
        paths={key: one.cost for key, one in found.items()} | beside.paths,
        reduction=beside.reduction,
        capacities=shared,
        shared_from=discipline,
        pointer_query=beside.pointer_query,
        provenance=provenance,
    )
    own = {key: one.ladder for key, one in found.items() if not one.moved}
    return Fit(completed(calibration, topology, wanted), own)


def _unmeasured(measurements: Measurements, topology: Topology, gaps: Sequence[str]) -> Calibration:
    """Return a calibration without costs."""
    provenance = {
        "measured": dict(measurements.provenance),
        "topology": topology.name,
        "undetermined": list(gaps),
    }
    return Calibration(measurements.cluster.name, measurements.library, {}, provenance=provenance)


def _distances(measurements: Measurements, topology: Topology) -> Distances:
    hosts = measurements.provenance.get("hosts", ())
    return Distances(topology, tuple(hosts) if isinstance(hosts, list | tuple) else ())


def _paths(
    series: Series, distances: Distances | None
) -> tuple[dict[tuple[str, str], Fitted], list[str]]:
    """Every path with a ladder, and sentences about those without."""
    found: dict[tuple[str, str], Fitted] = {}
    gaps: list[str] = []
    for memory in (HOST, CUDA):
        for subject in series.subjects("pingpong", memory):
            if subject == NETWORK:
                continue
            one = ladder(series, subject, memory, _lone(series, subject, memory))
            if one is None:
                gaps.append(f"{subject} ({memory}): pingpong at {SHORTEST} sizes or more")
            else:
                found[subject, memory] = fitted(
                    series, one, subject, _latency(series, one, distances)
                )
        between, unknown = network(series, memory, distances)
        if between:
            begin, unseen = acknowledged_from(series, between[NETWORK])
            between = {name: acknowledged(one, begin) for name, one in between.items()}
            gaps += [unseen] if unseen else []
        met, unmet = meetings(series, memory, between[NETWORK], distances) if between else ({}, [])
        found |= {(name, memory): one for name, one in {**between, **met}.items()}
        gaps += [*unknown, *unmet]
        if not between and series.of("pingpong", NETWORK, memory):
            gaps.append(f"{NETWORK} ({memory}): pingpong of two ranks at {SHORTEST} sizes or more")
    return found, gaps


def _lone(series: Series, subject: str, memory: str) -> list[Launches]:
    """Of several `p` the smallest, the least disturbed one."""
    points = series.of("pingpong", subject, memory)
    fewest = min(one[0].p for one in points)
    return [one for one in points if one[0].p == fewest]


def _latency(series: Series, one: Ladder, distances: Distances | None) -> float:
    """Seconds that the links of the topology add to this class inside a node."""
    if distances is None or one.path not in PATH_CLASSES:
        return 0.0
    ppn = series.of("pingpong", one.path, one.memory)[0][0].ppn
    way = distances.within(one.path, one.memory, max(ppn, distances.topology.cores.max()))
    return way.latency if way else 0.0


def _discipline(series: Series, found: Mapping[tuple[str, str], Fitted]) -> tuple[float, list[str]]:
    """Of the ports: of the network if there is one, else of the first path."""
    name = (NETWORK, HOST) if (NETWORK, HOST) in found else next(iter(found))
    begin, gap = shared_from(series, found[name], name[0])
    return begin, [gap] if gap else []


def _provenance(series: Series, found: Mapping[tuple[str, str], Fitted]) -> dict[str, Any]:
    """Where the figures come from and how well the lines describe what was measured."""
    first = next(iter(found.values()))
    call = series.call
    return {
        "measured": dict(series.measurements.provenance),
        "call_s": 0.0 if isinstance(call, float) else float(call[0]),
        "eager_limit": first.sources["eager_limit"],
        "sources": {one.ladder.name: one.sources for one in found.values()},
        "worst_relative_residual": {
            one.ladder.name: float(abs(one.ladder.residuals()).max()) for one in found.values()
        },
        "fit": [line for one in found.values() if not one.moved for line in _goodness(one)],
        "links": {one.ladder.name: link(series, one) for one in found.values()},
        "drift": series.draws.drift,
        "launches": 1 + max(one.launch for one in series.measurements.series),
    }


def _goodness(one: Fitted) -> list[dict[str, Any]]:
    return one.ladder.goodness([segment.lo for segment in one.cost.segments[1:]])
