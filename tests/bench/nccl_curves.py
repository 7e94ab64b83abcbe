"""Published nccl-tests results against NCCL's own estimate and the prediction made from it.

    python -m tests.bench.nccl_curves [CSV]

Prints every point and the errors per machine. Constants are NCCL 2.32.3's, machines are presets
(some of whose rates were measured on like machines). A forced algorithm counts in its best
protocol; `default` is what NCCL would choose by itself. Predictions have two constants of their
own, for buffers that are partly filled: `held out` has them fitted to one node of other machines.
All-to-alls, of which NCCL expects nothing, have a table of their own; nothing is fitted to them.

Not all points were unseen. With the B200 table in view, channels with a head got independent speeds
inside and between nodes. On the DGX-1P half bricks and the rate between CPUs were put right after a
look at the measurements. That rings between nodes get what NICs reach was seen on B200, too.

With CSV, PICO's results for NCCL's rings and trees on MareNostrum 5 (columns nodes, algorithm,
size_bytes, median_us), also the errors of the constants there, and of lines fitted to every second
size at the sizes in between, per node count.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, median

from tuner.base.units import format_size
from tuner.cli.terminal.output import print_table
from tuner.core.collective import Collective
from tuner.machines import Machine, preset, with_gpu
from tuner.mpi_libraries import nccl
from tuner.mpi_libraries.nccl import predictor
from tuner.topology import GPU, Placement

FITTED = ("dgx-a100", "dgx-h100", "hgx-h200", "gb200-nvl72")  # one node, several sizes
MIB = 1 << 20
GIB = 1 << 30
DEFAULT = "default"
ALLREDUCE, ALLGATHER = Collective.ALLREDUCE, Collective.ALLGATHER
AZURE = "Azure HPC guide"
REPORT = "community report, 8 x NDR400, NCCL 2.29.7"


@dataclass(frozen=True)
class Point:
    """A published bus bandwidth in GB/s, 0 gpus: all of the nodes'."""

    machine: str
    nodes: int
    nbytes: int
    busbw: float
    source: str
    algorithm: str = DEFAULT
    collective: Collective = ALLREDUCE
    gpus: int = 0


def curve(machine: str, nodes: int, source: str, **points: float) -> list[Point]:
    """Points written like `m16=109`: 16 MiB at 109 GB/s."""
    units = {"m": MIB, "g": GIB}
    return [Point(machine, nodes, int(k[1:]) * units[k[0]], v, source) for k, v in points.items()]


def column(algorithm: str, collective: Collective = ALLREDUCE, **by_nodes: float) -> list[Point]:
    """A column of the B200 table, written like `n4=334.8`, at 16 GiB."""
    return [
        Point("B200", int(nodes[1:]), 16 * GIB, busbw, REPORT, algorithm, collective)
        for nodes, busbw in by_nodes.items()
    ]


TARTAN = "Tartan, DGX-1P, NCCL 2; neither metric nor size are stated"
POINTS = [
    *curve("dgx-a100", 1, AZURE, m1=36.2, m16=109, g1=228, g8=231.6),
    *curve("dgx-a100", 2, AZURE, g8=189),
    *curve("dgx-h100", 1, AZURE, m1=43.7, m16=234, g1=466, g8=478.9),
    Point("dgx-h100", 1, 8 * GIB, 370, "nccl-tests#212", "ring"),
    *curve("hgx-h200", 1, AZURE, m1=53.0, m16=240, g1=468, g8=480),
    *curve("gb200-nvl72", 1, "coreweave/nccl-tests#43", m512=586, g1=702.5, g4=835, g8=847),
    *column("ring", n1=679.0, n2=344.7, n4=334.8, n8=322.6, n16=306.3, n32=304.4, n46=291.4),
    *column("tree", n2=335.2, n4=190.7, n8=192.6, n16=193.4, n32=193.5, n46=193.2),
    *column("nvls", n1=840.8),
    *column("nvls_tree", n2=717.2, n4=288.9, n8=274.3, n16=290.7, n32=280.7, n46=274.9),
    *column("collnet_direct", n2=533.0, n4=543.8, n8=547.9, n16=546.7, n32=544.3, n46=544.8),
    *column(
        "ring", ALLGATHER, n1=673.6, n2=342.9, n4=323.9, n8=311.5, n16=304.9, n32=302.3, n46=293.3
    ),
    *(
        Point("dgx-1p", 1, GIB, busbw, TARTAN, "ring", ALLREDUCE, gpus)
        for gpus, busbw in zip(range(2, 9), (17.3, 34.6, 52.1, 5.6, 34.7, 34.7, 62.2), strict=True)
    ),
]


# Which nobody explains (docs/experiments/0002-nccl-predictions.md).
MANY_RACKS = curve(
    "gb200-nvl72", 20, "coreweave/nccl-tests#48", m512=150.6, g1=218.7, g2=285.5, g4=345.0
)
OCI = "oracle-quickstart/oci-gpu-quickstarts, commit 6a0abdc"
PAIRS = "xxrjun/nccl-tests-cluster, commit 455de4f, cluster01, median of pairs of nodes"


def exchanges(machine: str, source: str, nbytes: int, **shapes: float) -> list[Point]:
    """All-to-alls written like `n2g8=91.7`: eight GPUs on each of two nodes."""
    found = []
    for shape, busbw in shapes.items():
        nodes, gpus = map(int, shape[1:].split("g"))
        found.append(
            Point(machine, nodes, nbytes, busbw, source, DEFAULT, Collective.ALLTOALL, gpus)
        )
    return found


EXCHANGES = [
    *exchanges("gb200-nvl72", OCI, 4 * GIB, n1g4=611.5, n1g64=566.3, n2g64=88.6, n3g64=60.9),
    *exchanges("gb200-nvl72", OCI, 8 * GIB, n1g8=657.8, n1g64=622.9, n2g64=89.7, n3g64=62.5),
    *exchanges("gb300-nvl72", OCI, 8 * GIB, n1g4=625.0, n1g8=679.7, n1g64=649.0, n2g64=47.3),
    *exchanges("dgx-b300", OCI, 8 * GIB, n1g8=675.6, n2g8=181.0),
    *exchanges("dgx-h100", PAIRS, 16 * GIB, n2g1=36.1, n2g4=83.5, n2g8=91.7),
    *exchanges("dgx-h100", "NVIDIA/nccl#1531, H800", 8 * MIB, n8g8=24.4),
]


def machine_of(point: Point) -> Machine:
    """The preset; B200 is a DGX H100 with that GPU."""
    if point.machine == "B200":
        return with_gpu(preset("dgx-h100", point.nodes), "B200")
    return preset(point.machine, point.nodes)


@cache
def predictor_of(point: Point) -> nccl.NcclPredictor:
    """NCCL on the GPUs of a point."""
    topology = machine_of(point).topology
    interior = topology.nodes[0].node_topology
    assert interior is not None
    ppn = point.gpus or len(interior.device_indices(GPU))
    return nccl.NcclPredictor(Placement.block(topology, ppn), point.algorithm.startswith("collnet"))


def bandwidths(point: Point) -> tuple[float, float, str]:
    """GB/s that NCCL itself expects, GB/s predicted, and the algorithm and protocol."""
    predictor = predictor_of(point)
    times = predictor.expected_seconds(point.collective, point.nbytes)
    offered = {w: t for w, t in times.items() if point.algorithm in (DEFAULT, w.algorithm)}
    way = min(offered, key=lambda w: offered[w])
    return moved(point) / offered[way], predicted_bandwidth(point, way), str(way)


def moved(point: Point) -> float:
    """The GB of which nccl-tests computes a bus bandwidth."""
    p = predictor_of(point).system.p
    return point.nbytes * (p - 1) / p * (2 if point.collective is ALLREDUCE else 1) / 1e9


def predicted_bandwidth(point: Point, way: nccl.AlgoProto) -> float:
    """GB/s predicted of an algorithm and protocol."""
    times = predictor_of(point).predicted_seconds(point.collective, point.nbytes)
    return moved(point) / times[way]


def published() -> None:
    """Every point, then the errors of each machine."""
    rows = []
    for point in (*POINTS, *MANY_RACKS):
        expected, predicted, way = bandwidths(point)
        rows.append(
            (
                point.machine,
                str(point.nodes),
                str(point.gpus or ""),
                point.collective.value,
                point.algorithm,
                format_size(point.nbytes),
                f"{point.busbw:.1f}",
                way,
                f"{expected:.1f}",
                f"{100 * (expected / point.busbw - 1):+.0f} %",
                f"{predicted:.1f}",
                f"{100 * (predicted / point.busbw - 1):+.0f} %",
                point.source,
            )
        )
    titles = ("machine", "nodes", "GPUs", "call", "algorithm", "size", "GB/s", "in")
    errors = ("expected", "error", "predicted", "its error")
    right = ("nodes", "GPUs", "size", "GB/s", *errors)
    print_table("bus bandwidth", (*titles, *errors, "source"), rows, right)


def exchange_bandwidth(point: Point) -> float:
    """GB/s predicted of an all-to-all."""
    way = predictor_of(point).chosen_algo_proto(point.collective, point.nbytes)
    return predicted_bandwidth(point, way)


def published_exchanges() -> None:
    """Every all-to-all."""
    rows = []
    for point in EXCHANGES:
        found = exchange_bandwidth(point)
        shape = point.machine, str(point.nodes), str(point.gpus), format_size(point.nbytes)
        told = f"{point.busbw:.1f}", f"{found:.1f}", f"{100 * (found / point.busbw - 1):+.0f} %"
        rows.append((*shape, *told, point.source))
    titles = ("machine", "nodes", "GPUs of each", "size", "GB/s", "predicted", "error")
    print_table("all-to-all, bus bandwidth", (*titles, "source"), rows, right=titles[1:])


def points_of(machine: str) -> list[Point]:
    """The published results of one machine."""
    return [point for point in POINTS if point.machine == machine]


def held_out_errors(machine: str) -> tuple[list[float], tuple[float, float]]:
    """Relative errors with constants fitted to one node of the others, and these constants."""
    others = [p for p in POINTS if p.machine in {*FITTED} - {machine} and p.nodes == 1]
    constants = fitted_fill(others)
    with fill(*constants):
        errors = [bandwidths(point)[1] / point.busbw - 1 for point in points_of(machine)]
    return errors, constants


def held_out() -> None:
    """The errors of each machine: expected, predicted, and with constants fitted to the others."""
    rows = []
    for machine in dict.fromkeys(point.machine for point in POINTS):
        own = points_of(machine)
        found = [bandwidths(point) for point in own]
        expected = [one[0] / point.busbw - 1 for one, point in zip(found, own, strict=True)]
        predicted = [one[1] / point.busbw - 1 for one, point in zip(found, own, strict=True)]
        unseen, constants = held_out_errors(machine)
        rows.append(
            (
                machine,
                str(len(own)),
                *(
                    f"{median(map(abs, errors)):.1%}, {max(errors, key=abs):+.0%}"
                    for errors in (expected, predicted, unseen)
                ),
                f"{constants[0] / MIB:.3g} MiB, {constants[1]:.2g}",
            )
        )
    print_table(
        "errors, median and worst; held out: constants of the buffers fitted to other machines",
        ("machine", "results", "expected", "predicted", "held out", "constants"),
        rows,
        right=("results", "expected", "predicted", "held out"),
    )


@contextmanager
def fill(nbytes: float, share: float) -> Iterator[None]:
    """Other constants for buffers that are partly filled."""
    before = predictor.FILL_BYTES, predictor.MAX_FILL
    predictor.FILL_BYTES, predictor.MAX_FILL = int(nbytes), share
    try:
        yield
    finally:
        predictor.FILL_BYTES, predictor.MAX_FILL = before


def fitted_fill(points: Sequence[Point]) -> tuple[float, float]:
    """The constants with the least mean error, in steps of 0.25 MiB and 0.05."""

    def mean_error(constants: tuple[float, float]) -> float:
        with fill(*constants):
            return fmean(abs(point.busbw / bandwidths(point)[1] - 1) for point in points)

    grid = [(k * MIB / 4, share / 100) for k in range(49) for share in range(30, 120, 5)]
    return min(grid, key=mean_error)


def marenostrum(path: Path) -> None:
    """Four H100 and four NICs of 200 Gb/s per node, no NVSwitch."""
    found = defaultdict[tuple[int, str], dict[int, list[float]]](lambda: defaultdict(list))
    with path.open() as file:
        for row in csv.DictReader(file):
            if row["algorithm"] in ("ring", "tree"):
                times = found[int(row["nodes"]), row["algorithm"]]
                times[int(row["size_bytes"])].append(float(row["median_us"]) * 1e-6)
    rows = []
    for (nodes, algorithm), times in sorted(found.items()):
        graph = nccl.ChannelGraph(4, 24e9, 24e9)
        fleet = nccl.NcclSystem(
            nodes, 4, 90, graph, graph, None, rings_on_nvlink=True, cpu_vendor="intel"
        )
        measured = [(nbytes, median(times[nbytes])) for nbytes in sorted(times)]
        own = nccl.attribute_samples(fleet, ALLREDUCE, {algorithm: measured[::2]})
        lines = nccl.fit_all(
            fleet, ALLREDUCE, {way: some for way, some in own.items() if len(some) > 1}
        )
        before = error(fleet, algorithm, measured[1::2], {})
        after = error(fleet, algorithm, measured[1::2], lines)
        count = str(len(measured) // 2)
        rows.append((str(nodes), algorithm, count, f"{before:.0f} %", f"{after:.0f} %"))
    print_table(
        "MareNostrum 5, median error at sizes that were not fitted",
        ("nodes", "algorithm", "sizes", "constants", "fitted"),
        rows,
        right=("nodes", "sizes", "constants", "fitted"),
    )


def error(
    fleet: nccl.NcclSystem,
    algorithm: str,
    measured: Sequence[tuple[int, float]],
    lines: Mapping[nccl.AlgoProto, nccl.LatencyBandwidth],
) -> float:
    """Median of the relative errors in percent, each size in the protocol that NCCL takes."""
    errors = []
    for nbytes, seconds in measured:
        way = next(iter(nccl.attribute_samples(fleet, ALLREDUCE, {algorithm: [(nbytes, seconds)]})))
        expected = nccl.estimate_times(fleet, ALLREDUCE, nbytes, fitted_models=lines)[way]
        errors.append(100 * abs(expected / seconds - 1))
    return median(errors)


if __name__ == "__main__":
    published()
    published_exchanges()
    held_out()
    if len(sys.argv) > 1:
        marenostrum(Path(sys.argv[1]))
