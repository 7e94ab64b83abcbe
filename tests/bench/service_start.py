"""Time the start of a service, from its command to its first answer:

    python -m tests.bench.service_start [TREE...]

`tuner serve` and `tuner studio` are started in turn from every TREE (default: this checkout), on
loopback with a new database, and asked for /v1/ready and for the first page. Prints medians of the
clock, and of processor time until then: of the process that answers, and of all its processes.
Workers load after the first answer, with less priority.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from urllib.parse import urljoin
from urllib.request import urlopen

from tests.conftest import ROOT
from tuner.cli.output import print_table

CEILING = 1.5  # seconds of processor time of the process that answers
SAMPLES = 5
COMMANDS = (
    ("serve", ("serve", "--port", "0", "--no-jobs"), "/v1/ready"),
    ("studio", ("studio", "--no-browser"), "/studio/"),
)
TIMEOUT_S = 60.0
TICKS = os.sysconf("SC_CLK_TCK")
Seconds = tuple[float, float, float]  # of the clock, of one process, of all of them


def first_answer(words: Sequence[str], path: str, tree: Path) -> Seconds:
    """Return the seconds until a service of `tree` answers at `path`."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "NO_PROXY": "*", "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        service = subprocess.Popen(
            [sys.executable, "-P", "-m", "tuner", *words],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert service.stdout is not None
            said = service.stdout.readline()
            address = next(word for word in said.split() if word.startswith("http")).strip(";")
            urlopen(urljoin(address, path), timeout=TIMEOUT_S).close()
            clock = time.perf_counter() - begun
            return (
                clock,
                processor_seconds(service.pid),
                sum(map(processor_seconds, tree_of(service.pid))),
            )
        finally:
            service.send_signal(signal.SIGINT)
            service.communicate()


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def tree_of(pid: int) -> Iterator[int]:
    """Yield a process and those that it has started."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from tree_of(int(child))


if __name__ == "__main__":
    trees = [Path(word).resolve() for word in sys.argv[1:]] or [ROOT]
    rows = []
    for name, words, path in COMMANDS:
        samples: dict[Path, list[Seconds]] = {tree: [] for tree in trees}
        for number in range(SAMPLES + 1):
            for tree in trees:
                seconds = first_answer(words, path, tree)
                if number:  # the first run may write bytecode
                    samples[tree].append(seconds)
        for tree, found in samples.items():
            clock, own, every = (median(column) for column in zip(*found, strict=True))
            met = "met" if own <= CEILING else "MISSED"
            rows.append((name, str(tree), f"{clock:.2f}", f"{own:.2f}", f"{every:.2f}", met))
    columns = (
        "command",
        "tree",
        "clock s",
        "processor s",
        "with workers s",
        f"at most {CEILING:g} s",
    )
    print_table("", columns, rows, right=("clock s", "processor s", "with workers s"))
