"""What the dispatcher adds to a call: `python -m tests.bench.overhead [MPICH_PYTHON]`.

One rank per library, so that nothing but the calls themselves is timed. `lookup` is the bisection
alone, in a ladder of as many rules as tables have; `overhead` the difference between a call through
the dispatcher, under a rule that leaves the library's decision or forces an algorithm, and the same
call of the plain communicator; blocks of calls alternate, medians over the blocks.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from tests.support.ladders import table_of
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.launch import Launcher

BLOCKS = 41
CALLS = 2000
CEILINGS = {"lookup": 1.0, "overhead": 2.0}  # microseconds


def seconds(call: Callable[[], object]) -> float:
    """Of one call, over a block of them."""
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - begin) / CALLS


def paired(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float, float]:
    """Medians of both and of their difference, blocks taken in turn."""
    samples = [(seconds(first), seconds(second)) for _ in range(BLOCKS)]
    return (
        median(a for a, _ in samples),
        median(b for _, b in samples),
        median(b - a for a, b in samples),
    )


def main() -> None:
    """On one rank: print one JSON line per measurement."""
    for choice in (
        AlgorithmChoice(),
        AlgorithmChoice("binomial"),
        AlgorithmChoice("pipeline", {"segment": 32768}),
    ):
        print(json.dumps(measure(choice)), flush=True)


def measure(choice: AlgorithmChoice) -> dict[str, object]:
    """Seconds of a lookup and of a call of 128 bytes, plain and through the dispatcher."""
    import numpy as np
    from mpi4py import MPI

    from tuner.runtime import tune
    from tuner.runtime.agreement import library_name

    world, data = MPI.COMM_WORLD, np.zeros(16)
    rungs = [(0, choice), *((2**k, choice) for k in range(10, 25))]
    tuned = tune(world, table_of({(Collective.BCAST, 1): rungs}, library=library_name()))
    ladder = tuned._bcast_any
    lookup, nothing, _ = paired(lambda: ladder.action(1000), lambda: None)
    plain, through, added = paired(lambda: world.Bcast(data, 0), lambda: tuned.Bcast(data, 0))
    return {
        "library": library_name().partition(" ")[0],
        "rule": choice.algorithm,
        "lookup": lookup - nothing,
        "plain": plain,
        "tuned": through,
        "overhead": added,
    }


def show(line: str) -> None:
    """One measurement, in microseconds."""
    record = json.loads(line)
    figures = ", ".join(
        f"{name} {1e6 * record[name]:.2f}" for name in ("lookup", "plain", "tuned", "overhead")
    )
    met = all(1e6 * record[name] <= ceiling for name, ceiling in CEILINGS.items())
    print(f"{record['library']:8} {record['rule']:9} us: {figures}: {'met' if met else 'MISSED'}")


def launch(library: str, python: Path) -> None:
    """Measure under one library."""
    Launcher.find(library, python).run(1, ["-m", "tests.bench.overhead", "--rank"], on_line=show)


if __name__ == "__main__":
    if sys.argv[1:] == ["--rank"]:
        main()
    else:
        launch("openmpi", Path(sys.executable))
        for path in sys.argv[1:]:
            launch("mpich", Path(path))
