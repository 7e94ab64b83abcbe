"""The service fails in every way while ranks call collectives: they go on, and are right."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.service import serving
from tests.support import services
from tests.support.ladders import CLUSTER, Rungs, table_of
from tests.support.services import Reply, Service, always, misbehaving
from tests.support.waiting import patience
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable, table_record, write_table
from tuner.launch import Launcher

PROGRAM = Path(__file__).with_name("faults_program.py")
BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE
LIBRARIES = [("launcher", 3), ("launcher", 8), ("mpich_launcher", 2)]

pytestmark = pytest.mark.usefixtures("own_cache")


def schedule(algorithm: str, **params: int) -> AlgorithmChoice:
    return AlgorithmChoice(algorithm, params, "schedule")


def a_table(library: str, p: int, bcast: Rungs, allreduce: Rungs) -> TuningTable:
    ladders = {
        (BCAST, p): bcast,
        (ALLREDUCE, p): [(0, AlgorithmChoice("recursive_doubling"))],
        (ALLREDUCE, p, "commutative"): allreduce,
    }
    return table_of(ladders, library=library)


def first(library: str, p: int) -> TuningTable:
    return a_table(
        library,
        p,
        [(0, AlgorithmChoice("binomial")), (4096, schedule("pipeline", segment=4096))],
        [(0, schedule("recursive_doubling")), (8192, schedule("ring"))],
    )


def second(library: str, p: int) -> TuningTable:
    return a_table(
        library,
        p,
        [(0, schedule("binomial")), (32768, schedule("scatter_allgather_ring"))],
        [
            (0, AlgorithmChoice()),
            (1024, AlgorithmChoice("ring")),
            (65536, schedule("rabenseifner")),
        ],
    )


def followed(table: TuningTable | None) -> list[str]:
    return sorted({str(rule.choice) for rule in table.rules}) if table else []


class Drill:
    """Faults by name, each with what makes it happen and what only one rank is to believe."""

    def __init__(self, launcher: Launcher, ranks: int, flags: Path) -> None:
        self.launcher, self.ranks, self.flags = launcher, ranks, flags
        self._acts: dict[str, Callable[[], object]] = {}
        self._faults: list[dict[str, Any]] = []

    def add(
        self,
        name: str,
        act: Callable[[], object] = lambda: None,
        breaks: str = "",
        **environments: dict[str, str],
    ) -> None:
        """Add a fault.

        breaks          function that runs out of memory on the last rank
        environments    `first` and `last`: what rank 0 and the last rank set in theirs
        """
        self._acts[name] = act
        self._faults.append({"name": name, "breaks": breaks, **environments})

    def play(self, **variables: str) -> tuple[dict[str, list[str]], list[str]]:
        """What was followed after each fault, the same on all ranks; and the lines of the log."""
        followed: dict[str, list[str]] = {}

        def watch(line: str) -> None:
            if not line.startswith("{"):
                return
            event = json.loads(line)
            if "may" in event:
                self._acts[event["may"]]()
                (self.flags / event["may"]).touch()
            else:
                everywhere = event["followed"]
                assert everywhere == everywhere[:1] * self.ranks
                followed[event["now"]] = everywhere[0]

        self.flags.mkdir()
        command = [str(PROGRAM), str(self.flags), *map(json.dumps, self._faults)]
        environment = {f"TUNER_{name.upper()}": value for name, value in variables.items()}
        run = self.launcher.run(
            self.ranks, command, environment=environment, on_line=watch, timeout=patience()
        )
        assert run.returncode == 0
        return followed, [line for line in run.stderr.splitlines() if line.startswith("tuner: ")]


@pytest.fixture(params=LIBRARIES, ids=["openmpi", "openmpi of 8", "mpich"])
def drill(request: pytest.FixtureRequest, tmp_path: Path) -> Drill:
    fixture, ranks = request.param
    return Drill(request.getfixturevalue(fixture), ranks, tmp_path / "flags")


class Place:
    """Where the service was: nobody is there, or an impostor."""

    def __init__(self, port: int | None) -> None:
        assert port is not None
        self._port, self._impostor = port, ExitStack()

    def garbage(self) -> None:
        """What comes is no HTTP."""
        self._impostor.enter_context(misbehaving(services.garbage, self._port))

    def nonsense(self) -> None:
        """A web server that knows nothing of tables."""
        self.clear()
        page = Service(always(Reply(b"<html>It works!</html>")), self._port)
        self._impostor.callback(page.stop)

    def clear(self) -> None:
        """Connections are refused."""
        self._impostor.close()


@pytest.mark.representative("openmpi")
def test_faults_of_the_service(drill: Drill, service: serving.Program, tmp_path: Path) -> None:
    library, p = drill.launcher.version(), drill.ranks
    one, two, other = first(library, p), second(library, p), tmp_path / "other.json"
    write_table(one, other)
    url, place = str(service.client.base_url).rstrip("/"), Place(service.client.base_url.port)

    def publish(table: TuningTable) -> None:
        serving.publish(service.client, table_record(table))

    publish(one)
    drill.add("publish", lambda: publish(two))
    drill.add("other cache", last={"TUNER_CACHE": str(tmp_path / "elsewhere")})
    drill.add("other table", last={"TUNER_TABLE": str(other)})
    drill.add("same table", last={"TUNER_TABLE": ""})
    shapes = "tuner.runtime.dispatcher.ShapeRules"
    drill.add("no memory", lambda: publish(one), breaks=shapes)
    drill.add("memory", lambda: publish(two))
    drill.add("hang", lambda: service.process.send_signal(signal.SIGSTOP))
    drill.add("go on", lambda: service.process.send_signal(signal.SIGCONT))
    drill.add("kill", service.kill)
    drill.add("garbage", place.garbage)
    drill.add("nonsense", place.nonsense)
    drill.add("no copy", place.clear, first={"TUNER_CACHE": str(tmp_path / "empty")})
    seen, log = drill.play(service=url, cluster=CLUSTER.name, timeout="1s", tune_after="0s")
    assert seen == {
        "start": followed(one),
        "publish": followed(two),
        "other cache": followed(two),
        "other table": [],
        "same table": followed(two),
        "no memory": [],
        "memory": followed(two),
        "hang": followed(two),
        "go on": followed(two),
        "kill": followed(two),
        "garbage": followed(two),
        "nonsense": [],
        "no copy": [],
    }
    sentences = (
        f"rank {p - 1}: was asked for {other}, rank 0 for {url}",
        f"rank {p - 1}: MemoryError",
        "is used instead",
        f"nothing answers at {url}; the copy in",
        "no HTTP: ",
        "not a tuning table",
        f"nothing answers at {url}",
    )
    for sentence, line in zip(sentences, log, strict=True):
        assert sentence in line
