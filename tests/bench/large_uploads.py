"""Measure how long others wait for one client: `python -m tests.bench.large_uploads [URL]`.

Starts `tuner serve` on a new SQLite file, or on the database of the URL, and asks it `GET
/v1/select` at a fixed rate while another process posts 15 MB of each kind. Each question is timed
from the moment at which it was due, so that a service that stands still is not asked less.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench import upload_client
from tests.bench.measurement_storage import series
from tests.service.serving import CLUSTER, LIBRARY, a_study, a_table, publish, serving
from tests.support.ladders import table_of
from tests.support.stored import calibration
from tuner.cli.terminal.output import print_table
from tuner.core.calibration import calibration_record
from tuner.core.collective import Collective
from tuner.core.measurement import end_line, header_line, series_line
from tuner.core.table import AlgorithmChoice, table_record

LARGE = 15_000_000  # bytes
RATE = 100  # questions per second
SECONDS = 3.0  # for which a body is posted again and again; a slow one once
SELECT = (
    "/v1/select?cluster=test&library=openmpi%205.0.11&collective=bcast&nodes=1&ppn=4&nbytes=5000"
)
JSON, NDJSON = "application/json", "application/x-ndjson"


def measurements() -> bytes:
    """A file as a probe writes it."""
    number = LARGE // (len(series_line(next(series(10)))) + 1)
    lines = [series_line(each) for each in islice(series(10), number)]
    about = header_line(CLUSTER, LIBRARY, {"made": "up"})
    return "".join(f"{line}\n" for line in (about, *lines, end_line(number))).encode()


def table() -> dict[str, Any]:
    """A table with rules for many numbers of ranks."""
    rungs = [(0, AlgorithmChoice()), (1024, AlgorithmChoice("binomial"))]
    record = table_record(table_of({(Collective.BCAST, 2): rungs}, (512, 4096), "mine 1.0"))
    rules = record["rules"]
    shapes = range(2, LARGE // len(json.dumps(rules)))
    record["rules"] = [{**rule, "key": {**rule["key"], "ppn": p}} for p in shapes for rule in rules]
    return record


def calibrated() -> dict[str, Any]:
    """A calibration with many capacities."""
    capacity = {"value": 1e10, "low": 9e9, "high": 1.1e10}
    number = LARGE // (len(json.dumps(capacity)) + 20)
    named = {f"capacity {index:06d}": capacity for index in range(number)}
    return {**calibration_record(calibration()), "capacities": named}


def feedback(number: int) -> dict[str, Any]:
    """A report of many items; it is refused from 10,001 on."""
    item = {
        "collective": "bcast",
        "nodes": 1,
        "ppn": 4,
        "algorithm": "binomial",
        "calls": 10,
        "median_s": 1e-5,
        "max_s": 1e-4,
    }
    return {
        "version": 1,
        "cluster": "test",
        "library": LIBRARY,
        "ranks": 4,
        "items": [{**item, "nbytes": nbytes} for nbytes in range(number)],
    }


def calls(number: int) -> dict[str, Any]:
    """A question about many calls; it is refused from 10,001 on."""
    call = {"collective": "bcast", "nodes": 1, "ppn": 4}
    return {"library": LIBRARY, "calls": [{**call, "nbytes": n} for n in range(number)]}


def bodies() -> Iterator[tuple[str, str, str, bytes]]:
    """Return what is posted: name, path, media type, body."""
    yield "measurements", "/v1/measurements", NDJSON, measurements()
    for name, path, body in (
        ("table", "/v1/tables", table()),
        ("study", "/v1/studies", {**a_study(), "table": table()}),
        ("calibration", "/v1/calibrations", calibrated()),
        ("feedback, 10,000 items", "/v1/feedback", feedback(10_000)),
        ("feedback, too long", "/v1/feedback", feedback(90_000)),
        ("select, 10,000 calls", "/v1/select", calls(10_000)),
        ("select, too long", "/v1/select", calls(200_000)),
        ("cluster, none", "/v1/clusters", feedback(90_000)),
    ):
        yield name, path, JSON, json.dumps(body).encode()


def waited(port: int, ends: Callable[[], bool]) -> list[float]:
    """Seconds from when each question was due until it was answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    times: list[float] = []
    begun = time.monotonic()
    while not ends():
        due = begun + len(times) / RATE
        time.sleep(max(0.0, due - time.monotonic()))
        connection.request("GET", SELECT)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        times.append(time.monotonic() - due)
    return times


def _has_ended(process: subprocess.Popen[str]) -> bool:
    return process.poll() is not None


def measured(port: int, pid: int, file: Path) -> Iterator[tuple[str, ...]]:
    """One row for each kind of body, and one for none."""
    quiet = time.monotonic() + SECONDS
    yield "nothing", "", "", "", *_quantiles(waited(port, lambda: time.monotonic() > quiet))
    for name, path, media_type, body in bodies():
        file.write_bytes(body)
        before = processor_time(pid)
        command = [upload_client.__file__, str(port), path, media_type, str(file), str(SECONDS)]
        poster = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
        times = waited(port, partial(_has_ended, poster))
        posted = json.loads(poster.communicate()[0])
        used = (processor_time(pid) - before) / len(posted["times"])
        yield (
            f"{name} ({len(body) / 1e6:.1f} MB)",
            str(posted["status"]),
            f"{np.median(posted['times']):.2f}",
            f"{used:.2f}",
            *_quantiles(times),
        )


def processor_time(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _quantiles(times: list[float]) -> tuple[str, ...]:
    quantiles = np.quantile(times, [0.5, 0.99, 1.0]) * 1e3
    return str(len(times)), *(f"{each:.1f}" for each in quantiles)


def main(url: str | None) -> None:
    """Print a table of all kinds."""
    with tempfile.TemporaryDirectory(prefix="tuner-large-") as scratch:
        database = url or f"sqlite:///{scratch}/tuner.sqlite"
        with serving(database, "--no-jobs") as program:
            publish(program.client, a_table())
            port = program.client.base_url.port
            assert port is not None
            rows = list(measured(port, program.process.pid, Path(scratch, "body")))
    numbers = ("s", "processor s", "questions", "median ms", "p99 ms", "max ms")
    print_table(
        f"GET /v1/select, {RATE} per second, while another client posts",
        ("posted", "status", *numbers),
        rows,
        right=numbers,
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
