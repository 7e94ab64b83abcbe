"""Time one prediction as a process of its own:

    python -m tests.bench.start_up [TREE...]

Each call of `tuner simulate` is run in turn from every TREE (default: this checkout), with what was
compiled before in its caches. Prints medians of the clock and of processor time, and of what the
imports take alone that no prediction can do without. Where `smpirun` is installed (Debian:
libsimgrid-dev), SimGrid's replay of recursive doubling is timed in turn with them.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from tests.conftest import ROOT
from tuner.cli.terminal.output import print_table

CEILING = 0.5  # seconds of the clock
SAMPLES = 9
CALLS = (("ring", 64), ("recursive_doubling", 1024), ("recursive_doubling", 4096))
TOPOLOGY = "name: flat\nnodes: {}\nlatency: 2us\nbandwidth: 12.5GB/s\n"
NBYTES = 1 << 20
SIMGRID_CLUSTER = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="c" prefix="h" suffix="" radical="0-{}" speed="1Gf" bw="12.5GBps" lat="1us"/>
</platform>
"""
LIBRARIES = ("-c", "import numpy, numba, yaml, rich.console, rich.table")
Seconds = tuple[float, float]  # of the clock, of processor time


def programs(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield what is timed: its name, and its command."""
    yield "imports of libraries", [sys.executable, *LIBRARIES]
    for algorithm, nodes in CALLS:
        topology = folder / f"flat{nodes}.yaml"
        topology.write_text(TOPOLOGY.format(nodes))
        words = ["--collective", "allreduce", "--algorithm", algorithm, "--sizes", str(NBYTES)]
        yield (
            f"{algorithm} on {nodes} nodes",
            [sys.executable, "-m", "tuner", "simulate", "--topology", str(topology), *words],
        )
        if algorithm == "recursive_doubling" and shutil.which("smpirun"):
            yield f"SimGrid, {algorithm} on {nodes} nodes", simgrid_replay(nodes, folder)


def simgrid_replay(nodes: int, folder: Path) -> list[str]:
    """Write a cluster and a trace of each rank, and return the command that replays them."""
    place = folder / f"simgrid{nodes}"
    place.mkdir()
    platform, hosts, traces = (place / name for name in ("platform.xml", "hosts", "traces"))
    platform.write_text(SIMGRID_CLUSTER.format(nodes - 1))
    hosts.write_text("".join(f"h{rank}\n" for rank in range(nodes)))
    traces.write_text("".join(f"{place}/{rank}\n" for rank in range(nodes)))
    for rank in range(nodes):
        call = f"{rank} allreduce {NBYTES // 4} 0"  # elements of four bytes, no computation
        (place / str(rank)).write_text(f"{rank} init\n{call}\n{rank} finalize\n")
    files = ["-platform", str(platform), "-hostfile", str(hosts), "-replay", str(traces)]
    return ["smpirun", "-np", str(nodes), *files, "--cfg=smpi/allreduce:rdb"]


def run(words: Sequence[str], tree: Path) -> Seconds:
    """Return the seconds that one process takes."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, cwd=tree, env=environment, check=True, capture_output=True)
    clock, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def times(words: Sequence[str], trees: Sequence[Path]) -> Mapping[Path, list[Seconds]]:
    """Return the samples of each tree, taken in turn after a first run that compiles."""
    for tree in trees:
        run(words, tree)
    rounds = [[run(words, tree) for tree in trees] for _ in range(SAMPLES)]
    return dict(zip(trees, map(list, zip(*rounds, strict=True)), strict=True))


if __name__ == "__main__":
    trees = [Path(word).resolve() for word in sys.argv[1:]] or [ROOT]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, words in programs(Path(folder)):
            for tree, samples in times(words, trees).items():
                clock, processor = (median(column) for column in zip(*samples, strict=True))
                met = "met" if clock <= CEILING else "MISSED"
                rows.append((name, str(tree), f"{clock:.3f}", f"{processor:.3f}", met))
    columns = ("process", "tree", "clock s", "processor s", f"at most {CEILING:g} s")
    print_table("", columns, rows, right=("clock s", "processor s"))
