"""Tuned against default through the dispatcher, at sizes that were not probed:

    python -m tests.bench.dispatch_gain tuner-out/openmpi/table.json [PYTHON]

Every call is made on the plain communicator, on the tuned one and on a duplicate of the plain one,
in random order, in several launches; the interval counts launches. Calls that the table leaves to
the library are the control; the duplicate, another communicator without a table, says how much of
what is seen there is noise. PYTHON is that of the library's environment.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.base.units import format_size
from tuner.core.speedup import paired_speedup
from tuner.core.table import read_table
from tuner.launch import Launcher
from tuner.report import geometric_mean_speedup, split_control
from tuner.validation.acceptance import RuleCall
from tuner.validation.heldout import heldout_calls

LAUNCHES = 6
# Arms, after the plain communicator's.
TUNED = 1
DUPLICATE = 2
CROWDED = {"openmpi": 8, "mpich": 2}  # ranks at most: MPICH does not yield


def wanted(path: str, ranks: int) -> list[RuleCall]:
    """What is timed; sums commute."""
    return [
        p for p in heldout_calls(read_table(Path(path)), "commutative") if p.rule.key.p <= ranks
    ]


def judge(
    point: RuleCall, launches: Sequence[Sequence[Sequence[float]]], arm: int
) -> dict[str, Any]:
    """Ratio plain / `arm` with its interval; above 1 the arm is faster."""
    ratio, *ci95 = paired_speedup([s[0] for s in launches], [s[arm] for s in launches])
    lost = statistics.median(statistics.median(s[arm]) - statistics.median(s[0]) for s in launches)
    key, choice = point.rule.key, point.rule.choice
    return {
        "call": f"{key.collective:10} p={key.p} {format_size(point.nbytes):>9}",
        "algorithm": str(choice),
        "ratio": ratio,
        "ci95": ci95,
        "lost": lost,
    }


def show(name: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Each call of a kind, and all of them together."""
    for record in records:
        low, high = record["ci95"]
        sign = "faster" if low > 1 else "slower" if high < 1 else ""
        print(
            f"{record['call']} {record['algorithm']:36} {record['ratio']:.2f}"
            f" ({low:.2f} to {high:.2f}) {1e6 * record['lost']:+.1f} us {sign}"
        )
    mean, low, high = geometric_mean_speedup(records)
    slower = sum(record["ci95"][1] < 1 for record in records)
    print(f"{name}: {len(records)} calls, {mean:.2f} ({low:.2f} to {high:.2f}), {slower} slower")


def main(path: str, python: Path) -> None:
    """Launch, judge, sum up."""
    table = read_table(Path(path))
    library = table.library.partition(" ")[0]
    launcher = Launcher.find(library, python)
    listed = wanted(path, CROWDED[library])
    ranks = max(point.rule.key.p for point in listed)
    samples: list[list[list[list[float]]]] = [[] for _ in listed]
    calls = json.dumps([[p.rule.key.collective, p.rule.key.p, p.nbytes] for p in listed])
    for _ in range(LAUNCHES):
        run = launcher.run(
            ranks, ["-m", "mpi4py", "-m", "tests.bench.dispatch_gain_ranks", path, calls]
        )
        for number, series in map(json.loads, run.stdout.splitlines()):
            samples[number].append(series)
    for arm, name in ((TUNED, "tuned"), (DUPLICATE, "duplicate of the plain communicator")):
        records = [judge(point, taken, arm) for point, taken in zip(listed, samples, strict=True)]
        changed, control = split_control(records)
        show(f"{name}, calls that the table changes", changed)
        show(f"{name}, calls that it leaves to the library", control)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else sys.executable))
