"""Library algorithms on emulated hosts, predicted from point-to-point messages alone.

    python -m tests.bench.lab_errors openmpi 8 SAMPLES    (root: brings a lab up and takes it down)

Prints measured over predicted time per algorithm and size, and the errors: once with the schedules
that we would run and one cost for all messages, once with the library's own and with exchanges told
apart. SAMPLES keeps what was measured; if it is there, nothing is measured again.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

from tuner import algorithms
from tuner.collective import Collective
from tuner.cost import Calibration, Estimate, PathCost, Segment
from tuner.lab import Lab, emulation, launch, processes
from tuner.libraries import named
from tuner.libraries.schedules import schedule_of
from tuner.runtime.launch.launcher import MPICH_SETTINGS, ONE_THREAD, Launcher
from tuner.schedule import Schedule
from tuner.sim import simulate
from tuner.table import Choice
from tuner.topologies import parse_topology
from tuner.topology import Placement, Topology

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGY = "{{name: flat, nodes: {}, latency: 200us, bandwidth: 100Mbit/s}}"
SIZES = (1 << 14, 1 << 16, 1 << 18, 1 << 20)
BELOW = 65024  # bytes: eager in Open MPI, like those it is the upper end of
LADDER = (
    1 << 10, 1 << 12, 1 << 13, 1 << 14, 24 << 10, 1 << 15, 48 << 10, BELOW, 1 << 16, 80 << 10,
    96 << 10, 1 << 17, 160 << 10, 192 << 10, 1 << 18, 384 << 10, 1 << 19, 1 << 20,
)  # fmt: skip
EXCHANGED = (1 << 15, BELOW, 1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20)
# Bytes. MPICH's pipelined trees, the only algorithms in which it matters, do not wait for sends.
EAGER = {"openmpi": 1 << 16, "mpich": 1 << 30}
CLASSES = {"exchange": ("same", "doubling"), "ring": ("ring",)}
ROWS = 6
PATIENCE = 400.0  # s for all measurements
Job = dict[str, Any]


def jobs(library: str, p: int) -> Iterator[Job]:
    """What is measured: messages first."""
    for nbytes in LADDER:
        yield {"kind": "pingpong", "nbytes": nbytes}
    for nbytes in EXCHANGED:
        for pattern in ("same", "doubling", "ring"):
            for rows in (1, ROWS):
                yield {"kind": "exchange", "nbytes": nbytes, "partners": pattern, "rows": rows}
    own = named(library)
    for collective in (Collective.BCAST, Collective.ALLREDUCE):
        for nbytes in SIZES:
            for choice in own.candidates(collective, p, nbytes):
                if not choice.is_default:
                    yield {
                        "kind": "collective", "collective": collective, "nbytes": nbytes,
                        "algorithm": choice.algorithm, "params": dict(choice.params),
                        "settings": own.settings(collective, choice),
                    }  # fmt: skip


def measure(library: str, topology: Topology, samples: Path) -> None:
    """Run the jobs on a lab of our own."""
    environment = ROOT / (".venv" if library == "openmpi" else ".venv-mpich")
    launcher = Launcher(library, environment / "bin" / "python")
    p, mark = len(topology.nodes), uuid.uuid4().hex
    asked, measured = samples.with_suffix(".jobs"), samples.with_suffix(".part")
    asked.write_text("".join(f"{json.dumps(job)}\n" for job in jobs(library, p)))
    lab = Lab(f"tl{mark[:8]}", emulation(topology))
    variables = {
        **os.environ, **MPICH_SETTINGS, **ONE_THREAD, launch.RUN: mark, "PYTHONPATH": str(ROOT),
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }  # fmt: skip
    program = [str(launcher.python), str(Path(__file__).with_name("lab_ranks.py"))]
    lab.up()
    try:
        words = launch.words(lab, library, launcher.executable, p)
        with measured.open("w") as output:
            subprocess.run(
                [*words, *program, library, str(asked)], env=variables, stdout=output,
                stdin=subprocess.DEVNULL, timeout=PATIENCE, check=True,
            )  # fmt: skip
        measured.rename(samples)
    finally:
        processes.end(lambda: processes.with_variable(launch.RUN, mark))
        lab.down()


def interpolated(seconds: dict[int, float], eager: int) -> PathCost:
    """Lines through neighbouring sizes; the last eager size's line goes on to the limit."""
    sizes, segments = sorted(seconds), list[Segment]()
    for low, high in pairwise(sizes):
        if high == eager and segments:
            beta = segments[-1].beta.value
        else:
            beta = max(0.0, (seconds[high] - seconds[low]) / (high - low))
        alpha = max(0.0, seconds[low] - beta * low)
        begin = float(low) if segments else 0.0
        end = math.inf if high == sizes[-1] else float(high)
        segments.append(Segment(begin, end, Estimate.exact(alpha), Estimate.exact(beta)))
    return PathCost(tuple(segments), float(eager))


def calibration(library: str, rows: list[Job], apart: bool) -> Calibration:
    """Of messages alone; `apart` gives exchanges that follow others costs of their own."""
    alone = {r["nbytes"]: median(r["samples"]) for r in rows if r["kind"] == "pingpong"}
    network = interpolated(alone, EAGER[library])
    paths = {("network", "host"): network}
    taken = {
        (r["partners"], r["rows"], r["nbytes"]): median(r["samples"])
        for r in rows if r["kind"] == "exchange"
    }  # fmt: skip
    for name, patterns in CLASSES.items() if apart else ():
        following = {n: t for n, t in alone.items() if n < EXCHANGED[0]}
        for n in EXCHANGED:
            each = [(taken[q, ROWS, n] - taken[q, 1, n]) / (ROWS - 1) for q in patterns]
            following[n] = max(alone[n], mean(each))
        paths[name, "host"] = interpolated(following, EAGER[library])
    return Calibration("lab", library, paths)


Make = Callable[[Collective, Choice, int, int], Schedule | None]


def ours(collective: Collective, choice: Choice, p: int, nbytes: int) -> Schedule | None:
    """The schedule that we would run under this name."""
    return algorithms.build(collective, choice.algorithm, p, nbytes=nbytes, params=choice.params)


def compare(rows: list[Job], made: Make, costs: Calibration, placement: Placement) -> None:
    """One line per algorithm, then the errors over all sizes and at each."""
    table: dict[str, dict[int, float]] = {}
    for row in (row for row in rows if row["kind"] == "collective"):
        collective, choice = Collective(row["collective"]), Choice(row["algorithm"], row["params"])
        schedule = made(collective, choice, placement.p, row["nbytes"])
        if schedule is None:
            continue
        predicted = simulate(schedule, placement, costs, row["nbytes"], itemsize=4)
        ratio = median(row["samples"]) / predicted
        table.setdefault(f"{collective} {choice}", {})[row["nbytes"]] = ratio
    for name, found in sorted(table.items()):
        cells = (f"{found[n]:7.2f}" if n in found else " " * 7 for n in SIZES)
        print(f"{name:45}{''.join(cells)}")
    for sizes in (SIZES, *((n,) for n in SIZES)):
        errors = [abs(1 / r - 1) for found in table.values() for n, r in found.items()
                  if n in sizes]  # fmt: skip
        print(f"{sizes[0] >> 10:5} to {sizes[-1] >> 10} KiB: {len(errors)} predictions, error"
              f" median {median(errors):.1%}, mean {mean(errors):.1%}")  # fmt: skip


def main(library: str, hosts: str, path: str) -> None:
    """Measure where that is still to be done, then compare."""
    topology, samples = parse_topology(TOPOLOGY.format(hosts))[1], Path(path)
    if not samples.exists():
        measure(library, topology, samples)
    rows = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    placement = Placement.consecutive(topology, 1)
    print("our schedules, one cost for all messages; measured / predicted at", *SIZES, "B")
    compare(rows, ours, calibration(library, rows, apart=False), placement)

    def own(collective: Collective, choice: Choice, p: int, nbytes: int) -> Schedule | None:
        return schedule_of(library, collective, choice, p, nbytes)

    print("the library's schedules, exchanges told apart")
    compare(rows, own, calibration(library, rows, apart=True), placement)


if __name__ == "__main__":
    main(*sys.argv[1:])
