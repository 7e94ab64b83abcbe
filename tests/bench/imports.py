"""What `from tuner.runtime import tune` takes beyond numpy and mpi4py:

    python -m tests.bench.imports

A fresh interpreter for each sample; the time is that of the import alone, after both are loaded.
"""

import subprocess
import sys
from statistics import median

CEILING = 30.0  # milliseconds
SAMPLES = 21
PROGRAM = """
import sys, time
import numpy
from mpi4py import MPI
begin = time.perf_counter()
from tuner.runtime import tune
print(1e3 * (time.perf_counter() - begin))
"""


def sample() -> float:
    """Milliseconds of one import."""
    run = [sys.executable, "-c", PROGRAM]
    return float(subprocess.run(run, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    sample()  # compiles what is not compiled yet
    times = sorted(sample() for _ in range(SAMPLES))
    print(
        f"import of tuner.runtime beyond numpy and mpi4py: median {median(times):.1f} ms,"
        f" {times[0]:.1f} to {times[-1]:.1f} ms of {SAMPLES}; at most {CEILING:g} ms:"
        f" {'met' if median(times) <= CEILING else 'MISSED'}"
    )
