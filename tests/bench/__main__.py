"""How fast the engines are: `make bench`. Prints a table; takes under a minute."""

import math
import time
from collections.abc import Callable

from tuner.algorithms import build
from tuner.base.units import format_size, format_time
from tuner.cli.terminal.output import print_table
from tuner.core.calibration import Calibration
from tuner.core.collective import Collective
from tuner.core.schedule import Schedule
from tuner.sim import simulate
from tuner.topology import Link, Node, Placement, Topology
from tuner.topology.readers import nominal_calibration

LATENCY = 1e-6  # seconds of a link
BANDWIDTH = 12.5e9  # bytes per second of a link
CASES: tuple[tuple[Collective, str, int, int, dict[str, int]], ...] = (
    (Collective.BCAST, "binomial", 1024, 1 << 20, {}),
    (Collective.BCAST, "pipeline", 64, 16 << 20, {"segment": 128 << 10}),
    (Collective.ALLREDUCE, "recursive_doubling", 256, 1 << 16, {}),
    (Collective.ALLREDUCE, "rabenseifner", 256, 16 << 20, {}),
    (Collective.ALLREDUCE, "ring", 64, 16 << 20, {}),
)
REPETITIONS = 3


def flat(p: int) -> Topology:
    """One switch with p nodes."""
    nodes = tuple(Node(f"node{i}") for i in range(p))
    up = [Link(node.name, "switch", BANDWIDTH, LATENCY) for node in nodes]
    down = [Link("switch", node.name, BANDWIDTH, LATENCY) for node in nodes]
    return Topology("flat", nodes, ("switch",), (*up, *down))


def best_of(run: Callable[[], float]) -> tuple[float, float]:
    """Shortest of a few timings, in seconds, and what `run` gave; the first run compiles."""
    result, times = run(), []
    for _ in range(REPETITIONS):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return min(times), result


def engine(
    name: str, made: Schedule, placement: Placement, calibration: Calibration, nbytes: int
) -> tuple[float, float]:
    """Time of one simulation and the time it predicts."""
    return best_of(lambda: simulate(made, placement, calibration, nbytes, engine=name))


def row(
    collective: Collective, algorithm: str, p: int, nbytes: int, params: dict[str, int]
) -> tuple[str, ...]:
    """Both engines on one case; they must agree."""
    topology = flat(p)
    made = build(collective, algorithm, p, nbytes=nbytes, params=params)
    transfers = sum(len(entry) for entry in made.rounds())
    setting = (made, Placement.block(topology, 1), nominal_calibration(topology), nbytes)
    fast, predicted = engine("fast", *setting)
    events, reference = engine("events", *setting)
    if not math.isclose(predicted, reference, rel_tol=1e-12):
        raise SystemExit(f"{collective} {algorithm}: the engines differ: {predicted}, {reference}")
    return (
        f"{collective} {algorithm}",
        str(p),
        format_size(nbytes),
        str(transfers),
        format_time(fast),
        format_time(events),
        f"{transfers / fast:,.0f}",
        f"{events / fast:.0f}",
    )


if __name__ == "__main__":
    columns = ("call", "p", "size", "transfers", "fast", "events", "transfers/s", "events/fast")
    print_table("engines", columns, [row(*case) for case in CASES], right=columns[1:])
