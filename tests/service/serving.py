"""Services for the tests: in a thread of this process, or as the program that users start."""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn

from tests.support.ladders import table_of
from tests.support.probed import Machine, truth
from tests.support.waiting import patience, until
from tuner import db
from tuner.api.app import create_app
from tuner.api.protocol import BoundedProtocol
from tuner.api.settings import Settings
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster, Measurement, end_line, header_line, series_line
from tuner.core.table import AlgorithmChoice, table_record
from tuner.jobs.kinds import JOB_KINDS
from tuner.jobs.runner import Runner
from tuner.machines.topology_files import parse_topology
from tuner.probe.single_host import PINGPONG_SIZES, REDUCTION_SIZES

CLUSTER = Cluster("ares", 1, 4, "any cpu", 1 << 30)
LIBRARY = "openmpi 5.0.11"
FOUR = "{name: four, nodes: 4, latency: 100us, bandwidth: 12.5MB/s}"
STANDSTILL_S = 60.0  # for which a machine may stand still without connections being closed
LONG = 20_000  # points of a study that lasts longer than any test
SOURCES = Path(__file__).resolve().parents[2]


@contextmanager
def served(settings: Settings) -> Iterator[httpx.Client]:
    """Yield a client of a real server that runs in a thread of this process and has started.

    Its database is open then: what /v1/ready would say, but no request has been counted or logged.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(settings),
                http=BoundedProtocol,
                log_level="critical",
                proxy_headers=False,
                timeout_graceful_shutdown=2,
                timeout_keep_alive=round(patience(STANDSTILL_S)),  # clients give up sooner
            )
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        port = listener.getsockname()[1]
        try:
            address = f"http://127.0.0.1:{port}"
            until(lambda: server.started or not thread.is_alive())
            assert server.started, "the service did not start"
            with httpx.Client(base_url=address, timeout=patience(), trust_env=False) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def running(database: str, kinds: tuple[str, ...] = JOB_KINDS) -> Iterator[Runner]:
    """A runner in a thread."""
    runner = Runner(database, kinds)
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        yield runner
    finally:
        runner.stop()
        thread.join()


@dataclass
class Program:
    """A running `tuner serve`."""

    process: subprocess.Popen[str]
    client: httpx.Client

    def kill(self) -> None:
        """As the system does when memory runs out."""
        self.process.kill()
        self.process.wait()


def tuner(*words: str) -> subprocess.Popen[str]:
    """The command line in a process group of its own, its output piped."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    return subprocess.Popen(
        [sys.executable, "-m", "tuner.cli.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    """The next line of output; fails when there is none in time."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], patience())
    assert ready, "the program said nothing"
    return process.stdout.readline()


@contextmanager
def serving(database: str, *words: str) -> Iterator[Program]:
    """`tuner serve` on a free port; ended with SIGTERM unless it was killed."""
    process = tuner("serve", "--port", "0", "--db", database, *words)
    try:
        line = said(process)
        assert line.startswith("tuner answers at http://"), process.communicate()
        address = line.split()[3]
        with httpx.Client(base_url=address, timeout=patience(), trust_env=False) as client:
            yield Program(process, client)
    finally:
        end(process)


def end(process: subprocess.Popen[str]) -> int:
    """SIGTERM, and the exit status; SIGKILL when it does not end in time."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=patience())
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode


def good(response: httpx.Response, status: int = 200) -> Any:
    """The JSON of a response of this status."""
    assert response.status_code == status, response.text
    return response.json()


def problem(response: httpx.Response, status: int) -> str:
    """The sentence of a problem, which must be well formed."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status
    assert body["type"] == "about:blank"
    assert body["instance"] == response.request.url.path
    detail: str = body["detail"]
    return detail


def a_table(algorithm: str = "binomial", library: str = LIBRARY, p: int = 4) -> dict[str, Any]:
    """The record of a table: the default below 1 KiB, then this algorithm."""
    rungs = [(0, AlgorithmChoice()), (1024, AlgorithmChoice(algorithm))]
    return table_record(table_of({(Collective.BCAST, p): rungs}, (4096,), library))


def publish(client: httpx.Client, record: dict[str, Any]) -> int:
    """The version of a table that is stored and published."""
    version: int = client.post("/v1/tables", json=record).json()["version"]
    good(client.post("/v1/publications", json={"version": version}), 201)
    return version


def probe_file(collectives: bool = True) -> str:
    """A file that can be calibrated, and tuned too."""
    series = list(_point_to_point())
    if collectives:
        series += list(_collectives())
    lines = [header_line(CLUSTER, LIBRARY, {"seed": 1}), *map(series_line, series)]
    return "\n".join([*lines, end_line(len(series)), ""])


def cluster_file() -> str:
    """Of four hosts behind one switch, on which the tree beats the default."""
    machine = Machine(parse_topology(FOUR)[1], truth())
    times = ((AlgorithmChoice(), 3e-3), (AlgorithmChoice("binomial"), 1e-3))
    calls = tuple(
        Measurement("collective", "bcast", 4, 1, 4, nbytes, (seconds,) * 9, choice.algorithm)
        for nbytes in (1024, 16384)
        for choice, seconds in times
    )
    measured = machine.measured(machine.messages(), iter(calls))
    about = header_line(measured.cluster, measured.library, {})
    lines = [about, *map(series_line, measured.series), end_line(len(measured.series))]
    return "".join(f"{line}\n" for line in lines)


def _point_to_point() -> Iterator[Measurement]:
    yield _series("call", "proc_null", 1, 0, 2e-7)
    yield _series("eager", "node", 2, 4096, 1e-3)
    for nbytes in PINGPONG_SIZES:
        yield _series("pingpong", "node", 2, nbytes, 1e-6 + 1e-10 * nbytes)
    for messages in (1, 33):
        yield _series("burst", "node", 2, 8, 3e-6 + messages * 1e-7, messages=messages)
    for nbytes in REDUCTION_SIZES:
        yield _series("reduction", "sum_float32", 1, nbytes, 4e-7 + 3e-11 * nbytes)


def _collectives() -> Iterator[Measurement]:
    """The tree beats the default on small messages, and never on large ones."""
    for nbytes in (64, 1024, 16384, 262144):
        for choice, seconds in (
            (AlgorithmChoice(), 1e-5 + 1e-9 * nbytes),
            (AlgorithmChoice("binomial"), 5e-6 + 2e-9 * nbytes),
        ):
            yield _series("collective", "bcast", 4, nbytes, seconds, choice.algorithm)


def _series(
    kind: str, subject: str, p: int, nbytes: int, seconds: float, algorithm: str = "", **params: int
) -> Measurement:
    draw = np.random.default_rng([nbytes, p, len(algorithm), *params.values()])
    samples = seconds * np.exp(0.01 * draw.standard_normal(20))
    assert math.isfinite(samples.sum())
    return Measurement(kind, subject, 1, p, p, nbytes, tuple(samples.tolist()), algorithm, params)


def a_study(points: int = 1) -> dict[str, Any]:
    """Of so many points; each takes a hundredth of a second."""
    return {
        "name": "more of it",
        "topology": {"name": "flat", "nodes": 64, "latency": "2us", "bandwidth": "12.5GB/s"},
        "vary": {"bandwidth": [f"{gigabytes}GB/s" for gigabytes in range(1, points + 1)]},
        "collectives": ["allreduce"],
        "algorithms": ["ring", "recursive_doubling"],
        "sizes": ["1MiB"],
    }


def children_of(process: int, command: bytes) -> list[int]:
    """The processes that this one started with such a command line."""
    listed = (file.read_text() for file in Path(f"/proc/{process}/task").glob("*/children"))
    children = {int(number) for text in listed for number in text.split()}
    return [child for child in children if command in _command(child)]


def jobs_of(runner: int) -> list[int]:
    """The processes that carry out jobs for the runner in this process."""
    return children_of(runner, b"-m\0tuner.jobs")


def has(process: int, library: str) -> bool:
    """Whether a process runs that has loaded something of it."""
    try:
        return library in Path(f"/proc/{process}/maps").read_text()
    except OSError:
        return False


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def token(database: str, name: str, *scopes: str, seconds: float | None = None) -> dict[str, str]:
    """The header with a new token, which expires after so many seconds."""
    engine = db.open_database(database)
    expiry = None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
    with db.transaction(engine) as session:
        made = db.create_token(session, name, scopes, expiry)
    engine.dispose()
    return {"Authorization": f"Bearer {made}"}
