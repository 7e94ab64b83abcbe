"""Every algorithm on every number of ranks from 2 to 257, built, verified and simulated:

    python -m tests.bench.all_schedules [ALGORITHM ...]

Prints the slowest cases and how many take longer than a second of the processor, whatever else
runs; exits with 1 if any does.
"""

import sys
import time
from heapq import nlargest

from tuner import algorithms
from tuner.base.errors import InputError
from tuner.base.units import format_time
from tuner.cli.terminal.output import print_table
from tuner.core.collective import Collective
from tuner.sim import simulate
from tuner.topology import Placement
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.yaml_topology import topology_from_yaml

MOST = 257  # ranks
NBYTES = (1 << 20) + 8  # divisible by hardly any number of chunks
LIMIT = 1.0  # s
SLOWEST = 12


def seconds(collective: Collective, name: str, placement: Placement) -> tuple[float, str]:
    """Processor time of one case, and what it ends with: the predicted time or "refused"."""
    costs = nominal_calibration(placement.topology)
    begun = time.process_time()
    try:
        made = algorithms.build(collective, name, placement.p, nbytes=NBYTES)
        end = format_time(simulate(made, placement, costs, NBYTES))
    except InputError:
        end = "refused"
    return time.process_time() - begun, end


def main(wanted: list[str]) -> int:
    """The number of cases that take too long."""
    cases = [
        (collective, name)
        for collective in Collective
        for name in algorithms.algorithm_names(collective, algorithms.REQUIREMENTS)
        if not wanted or name in wanted
    ]
    found: list[tuple[float, str, int, str]] = []
    for p in range(2, MOST + 1):
        record = {"name": "flat", "nodes": p, "latency": "1us", "bandwidth": "12.5GB/s"}
        placement = Placement.block(topology_from_yaml(record), 1)
        for case in cases:
            taken, end = seconds(*case, placement)
            if p > 2:  # the first p compiles the engine
                found.append((taken, " ".join(case), p, end))
    rows = [
        (case, str(p), format_time(taken), end) for taken, case, p, end in nlargest(SLOWEST, found)
    ]
    print_table("slowest", ("algorithm", "p", "took", "predicts"), rows, right=("p", "took"))
    over = sum(taken > LIMIT for taken, *_ in found)
    refused = sum(end == "refused" for *_, end in found)
    print(f"{len(cases)} algorithms, {len(found)} cases, {refused} refused, {over} over {LIMIT} s")
    return over


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
