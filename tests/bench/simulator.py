"""How fast the simulator is: python -m tests.bench.simulator [ring] [rates] [grid] [summit [NAME]]

ring        ring allreduce of 1 MiB on 1,536 ranks: seconds, peak memory (SimGrid: 30-44 s, 391 MB)
rates       transfers per second of irregular schedules, without and with contention for links
grid        7 algorithms x 5 sizes x 5 rank counts on one switch (SimGrid: 269 s)
summit      every algorithm, or the named ones, on 27,648 GPUs of Summit, 16 MiB: seconds, memory

One core, medians of processor time after a first run that compiles; each part and each algorithm of
`summit` in a process of its own, so that memory is its own.
"""

from __future__ import annotations

import math
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from tests.support import simgrid
from tuner import algorithms
from tuner.base.errors import TunerError
from tuner.base.units import format_size
from tuner.core.calibration import Calibration
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, make_schedule
from tuner.machines import preset
from tuner.sim import simulate
from tuner.topology import CUDA, Placement, Topology
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.fabrics import FatTree, NetworkCable, OneSwitch, fabric_topology

GRID = (
    "lr",
    "rdb",
    "rab_rdb",
    "binomial_tree",
    "scatter_LR_allgather",
    "scatter_rdb_allgather",
    "ompi_pipeline",
)
GRID_SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 27)
GRID_RANKS = (16, 64, 256, 1024, 1536)
WIRE = NetworkCable(12.5e9, 1e-6)
SUMMIT_PPN = 6
SUMMIT_BYTES = 16 << 20
LIMIT = 120  # seconds that one algorithm on Summit may take before it is given up
REPETITIONS = 5


def median(run: Callable[[], object]) -> float:
    """Seconds of processor time."""
    run()
    times = []
    for _ in range(REPETITIONS):
        begun = time.process_time()
        run()
        times.append(time.process_time() - begun)
    return statistics.median(times)


def peak() -> float:
    """Megabytes that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def ring() -> None:
    """On one switch and, with links that several nodes use, on a fat tree."""
    for name, fabric in (("one switch", OneSwitch(WIRE)), ("fat tree", FatTree(WIRE, (16,), (8,)))):
        placement = Placement.block(fabric_topology(name, 1536, fabric), 1)
        given = Calibration("bench", "none", {}, nominal=True, header_bytes=16.0)
        made = algorithms.build(Collective.ALLREDUCE, "ring", 1536)
        seconds = median(partial(simulate, made, placement, given, 1 << 20, 4))
        print(f"ring, 1536 ranks, 1 MiB, {name}: {seconds:.3f} s, peak {peak():.0f} MB", flush=True)


def rates() -> None:
    """Random pairs every round; partners at random distances."""
    flat = fabric_topology("one switch", 1024, OneSwitch(WIRE))
    tapered = fabric_topology("fat tree 2:1", 1024, FatTree(WIRE, (16,), (8,)))
    for what, topology, made in (
        ("no contention, partners", flat, partners(1024, 1000)),
        ("no contention, random pairs of 256", flat, pairs(256, 4000)),
        ("no contention, random pairs, all different", flat, pairs(1024, 1000)),
        ("contention, partners", tapered, partners(1024, 500)),
        ("contention, random pairs", tapered, pairs(1024, 100)),
    ):
        rate(what, topology, made)


def rate(what: str, topology: Topology, made: Schedule) -> None:
    """Print transfers per second of one schedule."""
    placement, given = Placement.block(topology, 1, made.p), nominal_calibration(topology)
    transfers = sum(len(r) for r in made.rounds())
    seconds = median(lambda: simulate(made, placement, given, 1 << 20))
    print(
        f"{what}: {transfers} transfers in {seconds:.3f} s, {transfers / seconds / 1e6:.1f} M/s",
        flush=True,
    )


def irregular(p: int, rounds: int, draw: Callable[[np.random.Generator], np.ndarray]) -> Schedule:
    """Rounds between drawn pairs, with runs of chunks of all lengths."""
    random, chunks, made = np.random.default_rng(4), 64, []
    for _ in range(rounds):
        src, dst = draw(random)
        first = random.integers(0, chunks, len(src))
        made.append(Round.of(src, dst, first, count=1 + random.integers(0, chunks - first)))
    return make_schedule(Collective.BCAST, p, chunks, made)


def pairs(p: int, rounds: int) -> Schedule:
    """Every rank sends to another one, drawn afresh."""

    def draw(random: np.random.Generator) -> np.ndarray:
        drawn = np.stack([random.permutation(p), random.permutation(p)])
        return drawn[:, drawn[0] != drawn[1]]

    return irregular(p, rounds, draw)


def partners(p: int, rounds: int) -> Schedule:
    """Ranks exchange with partners a random power of two away."""
    rank = np.arange(p)
    bits = int(math.log2(p))
    return irregular(
        p, rounds, lambda random: np.stack([rank, rank ^ (1 << random.integers(bits))])
    )


def grid() -> None:
    """All points, one after the other; building and verifying schedules included."""
    calls = [(name, p, nbytes) for name in GRID for p in GRID_RANKS for nbytes in GRID_SIZES]
    for name in GRID:
        simgrid.seconds(name, 16, 1024, "fast")
    slowest, begun = (0.0, ""), time.process_time()
    for name, p, nbytes in calls:
        before = time.process_time()
        simgrid.seconds(name, p, nbytes, "fast")
        taken = time.process_time() - before
        slowest = max(slowest, (taken, f"{name}, {p} ranks, {format_size(nbytes)}"))
    print(
        f"{len(calls)} points in {time.process_time() - begun:.2f} s; the slowest"
        f" {slowest[0]:.2f} s ({slowest[1]})",
        flush=True,
    )


def summit(names: list[str]) -> None:
    """Each algorithm in a process of its own, ended after LIMIT seconds."""
    context = multiprocessing.get_context("spawn")
    for collective in Collective:
        for name in algorithms.algorithm_names(collective, algorithms.REQUIREMENTS):
            if not names or name in names:
                child = context.Process(target=one_on_summit, args=(collective, name))
                child.start()
                child.join(LIMIT)
                if child.is_alive():
                    child.kill()
                    print(f"{collective} {name}: not done after {LIMIT} s", flush=True)
                child.join()


def one_on_summit(collective: Collective, name: str) -> None:
    """Print seconds to build and simulate, after a small call that compiles."""
    on_summit(collective, name, 12)
    begun = time.process_time()
    try:
        seconds = on_summit(collective, name, 4608)
    except TunerError as reason:
        print(f"{collective} {name}: refused: {reason}", flush=True)
        return
    print(
        f"{collective} {name}: {time.process_time() - begun:.2f} s, peak {peak():.0f} MB,"
        f" takes {seconds * 1e3:.3f} ms",
        flush=True,
    )


def on_summit(collective: Collective, name: str, nodes: int) -> float:
    """Simulated seconds."""
    machine = preset("summit", nodes)
    placement = Placement.block(machine.topology, SUMMIT_PPN)
    known = algorithms.describe(collective, name).params
    chosen = {"group": SUMMIT_PPN, "segment": 1 << 20}
    params = {key: value for key, value in chosen.items() if key in known}
    made = algorithms.build(collective, name, placement.p, nbytes=SUMMIT_BYTES, params=params)
    return simulate(made, placement, machine.calibration, SUMMIT_BYTES, 4, memory=CUDA)


PARTS = {"ring": ring, "rates": rates, "grid": grid}


def main(words: list[str]) -> None:
    """Run the named parts, or all."""
    asked = [word for word in words if word in PARTS] if words else list(PARTS)
    for name in asked:
        child = multiprocessing.get_context("spawn").Process(target=PARTS[name])
        child.start()
        child.join()
    if not words or words[0] == "summit":
        summit(words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
