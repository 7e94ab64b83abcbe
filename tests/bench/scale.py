"""Time and memory of one simulated call at large scale: python -m tests.bench.scale [options]

    --machine NAME      summit (4,608 nodes x 6 GPUs), flat (one switch, 4,608 x 6), flat1m (one
                        switch, 1,048,576 x 1) or flat1m8 (one switch, 131,072 x 8)
    --sizes N,N         bytes, such as 8,64KiB (default: 8, 64KiB, 1MiB, 64MiB)
    --collectives NAME  separated by commas (default: bcast,allreduce)
    --nodes N           other number of nodes
    ALGORITHM...        default: all that the machine supports

Prints for each call the seconds of processor time to build and simulate it, the peak memory of its
process, in which the machine was built before, and the simulated time. Each call has a process of
its own, ended after LIMIT seconds or at MEMORY bytes of address space.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time

from tuner import algorithms
from tuner.base.errors import TunerError
from tuner.base.units import format_size, parse_size
from tuner.core.calibration import Calibration
from tuner.core.collective import Collective
from tuner.machines import preset
from tuner.sim import simulate
from tuner.topology import CUDA, HOST, Link, Node, Placement, Topology
from tuner.topology.readers import nominal_calibration

MACHINES = {"summit": (4608, 6), "flat": (4608, 6), "flat1m": (1 << 20, 1), "flat1m8": (1 << 17, 8)}
LIMIT = 120  # seconds
MEMORY = 9_000_000_000  # bytes
WARM_NODES = 4  # of the small call that loads or compiles everything


def flat(nodes: int) -> Topology:
    """Nodes on one switch, 2 us and 12.5 GB/s, 500 ns and 20 GB/s inside."""
    names = [f"node{number}" for number in range(nodes)]
    links = [Link(*ends, 12.5e9, 1e-6) for name in names for ends in ((name, "s"), ("s", name))]
    return Topology(
        "flat",
        tuple(Node(name, 8) for name in names),
        ("s",),
        tuple(links),
        local_latency=5e-7,
        local_bandwidth=20e9,
    )


def place(machine: str, nodes: int) -> tuple[Placement, Calibration, str]:
    """The ranks, the costs, and the memory that the buffers are in."""
    ppn = MACHINES[machine][1]
    if machine == "summit":
        made = preset("summit", nodes)
        return Placement.block(made.topology, ppn), made.calibration, CUDA
    topology = flat(nodes)
    return Placement.block(topology, ppn), nominal_calibration(topology), HOST


def call(
    collective: Collective, name: str, nbytes: int, on: tuple[Placement, Calibration, str], ppn: int
) -> float:
    """Simulated seconds; groups are nodes."""
    placement, calibration, memory = on
    known = algorithms.describe(collective, name).params
    params = {"group": max(2, ppn)} if "group" in known else {}
    made = algorithms.build(collective, name, placement.p, nbytes=nbytes, params=params)
    return simulate(made, placement, calibration, nbytes, memory=memory)


def report(collective: Collective, name: str, nbytes: int, machine: str, nodes: int) -> None:
    """Print one line."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    ppn = MACHINES[machine][1]
    call(collective, name, nbytes, place(machine, WARM_NODES), ppn)
    on = place(machine, nodes)
    before = peak()
    begun = time.process_time()
    try:
        seconds = f"takes {call(collective, name, nbytes, on, ppn):.17g} s"
    except (TunerError, MemoryError) as reason:
        seconds = f"refused: {reason!r}"
    taken = time.process_time() - begun
    what = f"{machine:8} {collective} {name} {format_size(nbytes)}"
    print(f"{what:64} {taken:7.2f} s {peak():6.0f} MB (before {before:.0f}) {seconds}", flush=True)


def peak() -> float:
    """Megabytes that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(options: argparse.Namespace) -> None:
    """Run every call in a process of its own."""
    nodes, ppn = options.nodes or MACHINES[options.machine][0], MACHINES[options.machine][1]
    here = algorithms.available_capabilities((), options.machine == "summit", nodes, ppn)
    for collective in map(Collective, options.collectives.split(",")):
        known = algorithms.algorithm_names(collective, here)
        for name in [name for name in known if name in (options.algorithms or known)]:
            for nbytes in map(parse_size, options.sizes.split(",")):
                work = (collective, name, nbytes, options.machine, nodes)
                child = multiprocessing.get_context("spawn").Process(target=report, args=work)
                child.start()
                child.join(LIMIT)
                if child.is_alive():
                    child.kill()
                    print(f"{work}: not done after {LIMIT} s", flush=True)
                child.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--machine", choices=MACHINES, default="summit")
    parser.add_argument("--sizes", default="8,64KiB,1MiB,64MiB")
    parser.add_argument("--collectives", default="bcast,allreduce")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("algorithms", nargs="*")
    main(parser.parse_args())
