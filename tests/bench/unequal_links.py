"""Both engines against SimGrid: random calls on networks whose links differ, and exchanges.

    python -m tests.bench.unequal_links [CASES] [--exchanges] [--write FILE]

Needs SimGrid's library and headers (Debian: libsimgrid-dev; elsewhere name its folder in
SIMGRID_ROOT). Every case is a call on a random topology (`tests.support.unequal_topologies`),
played by `simgrid_replay.cpp`, and by both engines with SimGrid's conventions: messages share
ports, and those inside a node do not use the ports to the network. With `--exchanges` the cases are
all-to-alls on equal links, every second one with blocks of random lengths
(`tests.support.exchanges`). Prints each case that differs by more than 1 %, of exchanges 0.1 %, and
how many do not; `--write` writes SimGrid's times to a file, which tests read.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tests.support import exchanges, unequal_topologies
from tests.support.unequal_topologies import Case, shared_ports
from tuner.sim import simulate
from tuner.topology import HOST, find_paths

SOURCE = Path(__file__).with_name("simgrid_replay.cpp")
SETTINGS = (  # plain max-min sharing, neither factors nor windows of TCP
    "network/model:CM02",
    "network/latency-factor:1",
    "network/bandwidth-factor:1",
    "network/weight-S:0",
    "network/TCP-gamma:1e30",
    "network/crosstraffic:0",
    "network/optim:Full",  # updated lazily, flows keep rates that others have taken from them
    "surf/precision:1e-12",
)


def compiled(folder: Path) -> Path:
    """Compile the program that replays a case."""
    root = Path(os.environ.get("SIMGRID_ROOT", "/usr"))
    libraries = next(root.rglob("libsimgrid.so")).parent
    program = folder / "simgrid_replay"
    flags = ["-O1", "-std=c++17", f"-I{root / 'include'}", f"-L{libraries}"]
    output = ["-o", str(program), str(SOURCE)]
    words = ["g++", *flags, *output, "-lsimgrid", f"-Wl,-rpath,{libraries}"]
    subprocess.run(words, check=True)
    return program


def described(case: Case) -> str:
    """Describe the case for the program: links, routes, and the messages of each rank by round."""
    return "\n".join([*_network(case), *_rounds(case)])


def _network(case: Case) -> Iterator[str]:
    topology, p = case.placement.topology, case.placement.p
    pairs = np.array([(a, b) for a in range(p) for b in range(p) if a != b]).T
    paths = find_paths(case.placement, HOST, *pairs)
    local = case.placement.node_of[pairs[0]] == case.placement.node_of[pairs[1]]
    n = len(topology.links)
    assert topology.local_bandwidth is not None
    links = [(link.capacity, link.latency) for link in topology.links]
    links += [(topology.local_bandwidth, topology.local_latency or 0.0)] * p  # out of each rank
    links += [(topology.local_bandwidth, 0.0)] * p  # into each rank
    yield f"{p} {len(links)}"
    yield from (f"{capacity!r} {latency!r}" for capacity, latency in links)
    yield str(len(local))
    for a, b, row, inside in zip(*pairs.tolist(), paths.links.tolist(), local, strict=True):
        route = [n + a, n + p + b] if inside else [link for link in row if link >= 0]
        yield " ".join(map(str, [a, b, len(route), *route]))


def _rounds(case: Case) -> Iterator[str]:
    schedule, parts = case.schedule, defaultdict[int, list[list[str]]](list)
    tag = 0
    for r in schedule.rounds():
        own = defaultdict[int, list[str]](list)
        columns = r.src_chunk.astype(np.int64), r.count.astype(np.int64)
        sizes = schedule.elements(*columns, case.nbytes)
        for src, dst, size in zip(r.src.tolist(), r.dst.tolist(), sizes.tolist(), strict=True):
            if src != dst and size:
                tag += 1
                own[src].append(f"1 {dst} {size} {tag}")
                own[dst].append(f"0 {src} {size} {tag}")
        for rank, said in own.items():
            parts[rank].append(said)
    for rank in range(schedule.p):
        yield str(len(parts[rank]))
        yield from (f"{len(said)} {' '.join(said)}" for said in parts[rank])


def simgrid_seconds(case: Case, program: Path, file: Path) -> float:
    """Return SimGrid's time of a case."""
    file.write_text(described(case), encoding="utf-8")
    words = [str(program), str(file), *(f"--cfg={setting}" for setting in SETTINGS)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"SimGrid fails on {case.name}: {done.stderr[-500:]}")
    return max(map(float, done.stdout.split()))


def own_seconds(case: Case, engine: str) -> float:
    """Return the time of one of our engines, with SimGrid's conventions."""
    costs = shared_ports(case)
    return simulate(case.schedule, case.placement, costs, case.nbytes, engine=engine)


def main(
    cases: int, case_of: Callable[[int], Case], tolerance: float, written: Path | None
) -> None:
    """Compare all cases and print those that differ by more than the tolerance."""
    rows, off = [], 0
    with tempfile.TemporaryDirectory(prefix="tuner-simgrid-") as place:
        program = compiled(Path(place))
        for case in map(case_of, range(cases)):
            expected = simgrid_seconds(case, program, Path(place) / "case.txt")
            rows.append((case.seed, case.name, expected))
            ratios = [own_seconds(case, engine) / expected for engine in ("fast", "events")]
            if max(abs(ratio - 1) for ratio in ratios) > tolerance:
                off += 1
                shown = ", ".join(f"{ratio:.5f}" for ratio in ratios)
                print(f"{case.name} ppn={case.ppn} {case.nbytes} B: {expected:.6g} s, {shown}")
    print(f"{cases - off} of {cases} within {tolerance:.1%}")
    if written:
        write_times(written, rows)


def write_times(path: Path, rows: Sequence[tuple[int, str, float]]) -> None:
    """Write SimGrid's times: seed, name and seconds of each case."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("seed", "case", "seconds"), *rows])


if __name__ == "__main__":
    reader = argparse.ArgumentParser(prog="python -m tests.bench.unequal_links")
    reader.add_argument("cases", nargs="?", type=int, default=200)
    reader.add_argument("--exchanges", action="store_true")
    reader.add_argument("--write", type=Path)
    options = reader.parse_args()
    exact = (exchanges.case_of, 1e-3) if options.exchanges else (unequal_topologies.case_of, 0.01)
    main(options.cases, *exact, options.write)
