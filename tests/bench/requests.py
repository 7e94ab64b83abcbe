"""Requests per second and latencies of the service: `python -m tests.bench.requests`.

Starts `tuner serve` and loads it from the same computer, with `wrk` as fast as it answers and with
`hey` at a fixed rate. Needs both programs on PATH; takes under a minute.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence

import httpx

from tests.service.serving import a_table, publish, serving
from tuner.cli.terminal.output import print_table

CONNECTIONS = 64
SECONDS = 8
RATE = 3000
SELECT = (
    "/v1/select?cluster=test&library=openmpi%205.0.11&collective=bcast&nodes=1&ppn=4&nbytes=5000"
)
PUBLISHED = "/v1/tables/published?cluster=test&library=openmpi%205.0.11"


def wrk(url: str, headers: Sequence[str]) -> tuple[str, ...]:
    """Every connection asks again as soon as it is answered."""
    command = ["wrk", "-t2", f"-c{CONNECTIONS}", f"-d{SECONDS}", "--latency"]
    said = _run([*command, *(word for header in headers for word in ("-H", header)), url])
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    tail = re.search(r"99%\s+(\S+)", said)
    assert rate, said
    assert tail, said
    assert "Non-2xx" not in said, said
    return "wrk, closed loop", f"{float(rate[1]):,.0f}", tail[1]


def hey(url: str, headers: Sequence[str]) -> tuple[str, ...]:
    """Every connection asks at its share of the rate, whenever it is answered."""
    each = RATE / CONNECTIONS
    command = ["hey", "-z", f"{SECONDS}s", "-c", str(CONNECTIONS), "-q", f"{each:g}"]
    said = _run([*command, *(word for header in headers for word in ("-H", header)), url])
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    tail = re.search(r"99%+ in ([\d.]+) secs", said)
    statuses = set(re.findall(r"\[(\d+)\]\s+\d+ responses", said))
    assert rate, said
    assert tail, said
    assert len(statuses) == 1, said
    return f"hey, {RATE}/s", f"{float(rate[1]):,.0f}", f"{float(tail[1]) * 1e3:.2f}ms"


def _run(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def measured(client: httpx.Client) -> list[tuple[str, ...]]:
    """One row per question and load."""
    publish(client, a_table())
    etag = client.get(PUBLISHED).headers["etag"]
    rows = []
    for name, path, headers in (
        ("select", SELECT, ()),
        ("published table, 304", PUBLISHED, (f"If-None-Match: {etag}",)),
        ("published table, 200", PUBLISHED, ()),
    ):
        for load in (wrk, hey):
            rows.append((name, *load(f"{client.base_url}{path}", headers)))
    return rows


if __name__ == "__main__":
    for program in ("wrk", "hey"):
        if shutil.which(program) is None:
            raise SystemExit(f"this benchmark needs {program} on PATH")
    with tempfile.TemporaryDirectory() as place, serving(f"sqlite:///{place}/tuner.sqlite") as own:
        rows = measured(own.client)
    print_table(
        f"{CONNECTIONS} connections, {SECONDS} s each",
        ("question", "load", "requests/s", "p99"),
        rows,
        right=("requests/s", "p99"),
    )
