"""`select` while many look at the studio: `python -m tests.bench.viewers [VIEWERS] [SECONDS]`.

Each viewer drags a slider of the page "What if": it asks, reads the answer until there is a time at
every size, and asks for the next value. All run on the same computer as the service.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import httpx

from tests.bench.requests import SELECT
from tests.service.serving import a_table, publish, serving
from tuner.cli.terminal.output import print_table

VIEWERS = 50
SECONDS = 30.0
RATE = 50.0  # calls of `select` per second
PAUSE = 0.5  # seconds that a viewer looks at an answer
SIZES = [4 << power for power in range(27)]


def question(viewer: int, turn: int) -> dict[str, object]:
    """Return the question of one viewer: many share a machine, none has the value of another."""
    latency = f"{1 + (7 * viewer + turn) % 100 / 20}us"
    axes = {"nodes": 64, "ppn": 1, "latency": latency}
    return {"topology": "1", "axes": axes, "collective": "allreduce", "sizes": SIZES}


def drag(address: str, viewer: int, until: float, waits: list[float]) -> None:
    """Ask again and again; `waits` gets the seconds until there was a time at every size."""
    with httpx.Client(base_url=address, timeout=120.0, trust_env=False) as client:
        turn = 0
        while time.monotonic() < until:
            begun, turn = time.monotonic(), turn + 1
            with client.stream("POST", "/v1/what-if", json=question(viewer, turn)) as answer:
                if is_useful(answer.iter_lines()):
                    waits.append(time.monotonic() - begun)
            time.sleep(PAUSE)


def is_useful(lines: Iterator[str]) -> bool:
    """Read until there is a time at every size; the rest is given up, as a moved slider does."""
    found = set[int]()
    for line in lines:
        for task in json.loads(line).get("tasks", ()):
            found.update(task["sizes"])
        if len(found) == len(SIZES):
            return True
    return False


def look(address: str, viewers: int, seconds: float, found: multiprocessing.Queue[float]) -> None:
    """Have all viewers drag, in a process of their own that leaves the processors to others."""
    os.nice(10)
    waits = list[float]()
    until = time.monotonic() + seconds
    each = [
        threading.Thread(target=drag, args=(address, viewer, until, waits))
        for viewer in range(viewers)
    ]
    for thread in each:
        thread.start()
    for thread in each:
        thread.join()
    for wait in waits:
        found.put(wait)
    found.put(-1.0)


def select_seconds(client: httpx.Client, seconds: float) -> list[float]:
    """The time of each call of `select`, at a fixed rate."""
    times, begun = list[float](), time.monotonic()
    for number in range(int(seconds * RATE)):
        time.sleep(max(0.0, begun + number / RATE - time.monotonic()))
        asked = time.perf_counter()
        client.get(SELECT).raise_for_status()
        times.append(time.perf_counter() - asked)
    return times


def row(name: str, times: list[float]) -> tuple[str, ...]:
    """A name with the number, the median and the 99th percentile of some times."""
    parts = statistics.quantiles(times, n=100)
    return name, str(len(times)), f"{1e3 * parts[49]:.1f}ms", f"{1e3 * parts[98]:.1f}ms"


def measured(client: httpx.Client, viewers: int, seconds: float) -> Iterator[tuple[str, ...]]:
    """One row for `select` alone, one for it among viewers, and one for these."""
    publish(client, a_table())
    machine = {"name": "flat64", "nodes": 64, "latency": "2us", "bandwidth": "12.5GB/s"}
    client.post("/v1/topologies", content=json.dumps(machine)).raise_for_status()
    drag(str(client.base_url), 0, time.monotonic() + 1.0, [])  # compiles, if nothing is compiled
    yield row("select alone", select_seconds(client, seconds / 3))
    found: multiprocessing.Queue[float] = multiprocessing.Queue()
    looking = multiprocessing.Process(
        target=look, args=(str(client.base_url), viewers, seconds, found)
    )
    looking.start()
    yield row(f"select, {viewers} viewers", select_seconds(client, seconds))
    waits = list(iter(found.get, -1.0))
    looking.join()
    yield row("slider to curves", waits)


if __name__ == "__main__":
    viewers = int(sys.argv[1]) if len(sys.argv) > 1 else VIEWERS
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS
    with (
        tempfile.TemporaryDirectory() as place,
        serving(f"sqlite:///{place}/tuner.sqlite", "--no-jobs") as own,
    ):
        rows = list(measured(own.client, viewers, seconds))
    print_table("", ("request", "number", "median", "p99"), rows, right=("number", "median", "p99"))
