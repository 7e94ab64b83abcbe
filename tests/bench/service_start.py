"""Time the start of a service, from its command to its first answer:

    python -m tests.bench.service_start [TREE...]

`tuner serve` and `tuner studio` are started in turn from every TREE (default: this checkout), on
loopback with a new database and with one that exists, and asked for /v1/ready and for the first
page. Prints medians of the clock, and of processor time until then: of the process that answers,
and of all its processes. Workers load after the first answer, with less priority. All trees run in
this environment, with cached bytecode in a directory of this run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from urllib.parse import urljoin
from urllib.request import urlopen

from tests.conftest import ROOT
from tuner.cli.terminal.output import print_table

CEILING = 1.5  # seconds of processor time of the process that answers
SAMPLES = 5
COMMANDS = (
    ("serve", ("serve", "--port", "0", "--no-jobs"), "/v1/ready"),
    ("studio", ("studio", "--no-browser"), "/studio/"),
)
DATABASES = ("new", "existing")
TIMEOUT_S = 60.0
TICKS = os.sysconf("SC_CLK_TCK")
Seconds = tuple[float, float, float]  # of the clock, of one process, of all of them


def first_answer(words: Sequence[str], path: str, tree: Path, directory: Path) -> Seconds:
    """Return the seconds until a service of `tree` answers at `path`.

    directory   where bytecode and the database of `words` are
    """
    begun = time.perf_counter()
    service = subprocess.Popen(
        [sys.executable, "-P", "-m", "tuner", *words],
        cwd=directory,
        env=environment(tree, directory),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        urlopen(urljoin(announced_address(service), path), timeout=TIMEOUT_S).close()
        clock = time.perf_counter() - begun
        processes = list(tree_of(service.pid))
        return clock, processor_seconds(service.pid), sum(map(processor_seconds, processes))
    finally:
        service.send_signal(signal.SIGINT)
        service.communicate()


def environment(tree: Path, directory: Path) -> dict[str, str]:
    """Return an environment in which programs import `tree` and cache its bytecode."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {
        "PYTHONPATH": str(tree),
        "PYTHONPYCACHEPREFIX": str(directory / "bytecode"),
        "PYTHONUNBUFFERED": "1",
        "NO_PROXY": "*",
    }


def announced_address(service: subprocess.Popen[str]) -> str:
    """Return the address in the first line of a service; raise RuntimeError without one."""
    assert service.stdout is not None
    for word in service.stdout.readline().split():
        if word.startswith("http"):
            return word.strip(";")
    raise RuntimeError(f"the service announced no address: {service.args!r}")


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


def measure(
    words: Sequence[str], path: str, trees: Sequence[Path], existing: bool
) -> Iterator[tuple[Path, Seconds]]:
    """Yield SAMPLES measurements of each tree, in turn, after a first one that writes bytecode."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(SAMPLES + 1):
            for index, tree in enumerate(trees):
                name = f"{index}.sqlite" if existing else f"{index}-{number}.sqlite"
                command = (*words, "--db", f"sqlite:///{folder}/{name}")
                seconds = first_answer(command, path, tree, Path(folder))
                if number:
                    yield tree, seconds


if __name__ == "__main__":
    trees = [Path(word).resolve() for word in sys.argv[1:]] or [ROOT]
    rows = []
    for (name, words, path), database in product(COMMANDS, DATABASES):
        samples: dict[Path, list[Seconds]] = {tree: [] for tree in trees}
        for tree, seconds in measure(words, path, trees, database == "existing"):
            samples[tree].append(seconds)
        for tree, found in samples.items():
            clock, own, every = (median(column) for column in zip(*found, strict=True))
            met = "met" if own <= CEILING else "MISSED"
            figures = (f"{clock:.2f}", f"{own:.2f}", f"{every:.2f}")
            rows.append((name, database, str(tree), *figures, met))
    columns = (
        "command",
        "database",
        "tree",
        "clock s",
        "processor s",
        "with workers s",
        f"at most {CEILING:g} s",
    )
    print_table("", columns, rows, right=("clock s", "processor s", "with workers s"))
