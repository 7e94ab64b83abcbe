"""Published nccl-tests results against NCCL's own estimate: python -m tests.bench.nccl_curves [CSV]

Prints every point and the median error per machine. Constants are NCCL 2.30.7's, machines are
presets (some of whose rates were measured on like machines). A forced algorithm counts in its best
protocol; `default` is what NCCL would choose by itself.

Not all points were unseen. With the B200 table in view, channels with a head got independent speeds
inside and between nodes; `coupled`, as in NCCL's search.cc, stands beside that. On the DGX-1P half
bricks and the rate between CPUs were put right after a look at the measurements. Those rows
describe; they confirm nothing.

With CSV, PICO's results for NCCL's rings and trees on MareNostrum 5 (columns nodes, algorithm,
size_bytes, median_us), also the errors of the constants there, and of lines fitted to every second
size at the sizes in between, per node count.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tuner.base.units import format_size
from tuner.cli.output import print_table
from tuner.core.collective import Collective
from tuner.machines import Machine, preset, with_gpu
from tuner.mpi_libraries import nccl
from tuner.topology import GPU, Placement

MIB, GIB, DEFAULT = 1 << 20, 1 << 30, "default"
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


def machine_of(point: Point) -> Machine:
    """The preset; B200 is a DGX H100 with that GPU."""
    if point.machine == "B200":
        return with_gpu(preset("dgx-h100", point.nodes), "B200")
    return preset(point.machine, point.nodes)


def expected(point: Point, coupled: bool = False) -> tuple[float, str]:
    """GB/s that NCCL itself expects, and by which algorithm and protocol."""
    topology = machine_of(point).topology
    interior = topology.nodes[0].node_topology
    assert interior is not None
    ppn = point.gpus or len(interior.device_indices(GPU))
    collnet = point.algorithm.startswith("collnet")
    fleet = nccl.nccl_system_of(Placement.block(topology, ppn), collnet, coupled)
    times = nccl.estimate_times(fleet, point.collective, point.nbytes)
    offered = {w: t for w, t in times.items() if point.algorithm in (DEFAULT, w.algorithm)}
    way = min(offered, key=lambda w: offered[w])
    share = (fleet.p - 1) / fleet.p * (2 if point.collective is ALLREDUCE else 1)
    return point.nbytes * share / offered[way] / 1e9, str(way)


def published() -> None:
    """Every point, then the medians, both ways."""
    rows = []
    errors, strict = (defaultdict[str, list[float]](list) for _ in range(2))
    for point in POINTS:
        (busbw, way), (coupled, _) = expected(point), expected(point, coupled=True)
        errors[point.machine].append(busbw / point.busbw - 1)
        strict[point.machine].append(coupled / point.busbw - 1)
        rows.append(
            (
                point.machine,
                str(point.nodes),
                str(point.gpus or ""),
                point.collective.value,
                point.algorithm,
                format_size(point.nbytes),
                f"{point.busbw:.1f}",
                f"{busbw:.1f}",
                way,
                f"{100 * errors[point.machine][-1]:+.0f} %",
                f"{100 * strict[point.machine][-1]:+.0f} %",
                point.source,
            )
        )
    titles = (
        "machine",
        "nodes",
        "GPUs",
        "call",
        "algorithm",
        "size",
        "GB/s",
        "expected",
        "in",
        "error",
        "coupled",
        "source",
    )
    right = ("nodes", "GPUs", "size", "GB/s", "expected", "error", "coupled")
    print_table("bus bandwidth", titles, rows, right)
    for machine, found in errors.items():
        print(
            f"{machine:12} {len(found):3} points, median error"
            f" {100 * median(map(abs, found)):.0f} %, worst {100 * max(found, key=abs):+.0f} %;"
            f" coupled: median {100 * median(map(abs, strict[machine])):.0f} %,"
            f" worst {100 * max(strict[machine], key=abs):+.0f} %"
        )


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
    if len(sys.argv) > 1:
        marenostrum(Path(sys.argv[1]))
