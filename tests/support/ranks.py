"""Ranks that take no part in any launch: what they are asked is recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.capable import everything
from tuner.base.errors import ProbeError
from tuner.core.collective import Collective
from tuner.core.measurement import series_line
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.launch import CompletedRun, Hosts, Launcher
from tuner.mpi_libraries.capabilities import Capabilities
from tuner.probe.batches import ExperimentRequest
from tuner.probe.probe_plan import ProbePlan, ProbePoint, read_plan
from tuner.probe.probe_spec import ProbeSpec

HOSTS = Hosts(("a", "b", "c", "d"))


REQUEST = ProbeSpec("openmpi", HOSTS, 1, parts=("messages",), sizes=(4096,))


NOWHERE = "no two ranks of a host are bound to different sockets"


RING = AlgorithmChoice("ring")


CALL = ExperimentRequest(
    Collective.ALLREDUCE, 4, 1, 65536, (RING, AlgorithmChoice("ring", runner=SCHEDULE))
)


@dataclass(frozen=True)
class Ranks(Launcher):
    """They measure what `fits` says of a point and report what does not; `dies` ends a launch.

    Of points that `missing_reason` names there is nothing to measure, and they refuse
    `unsupported_reason`. `alone` is why two of them on one host cannot be started. A call takes as
    long as `seconds` says of its choice, times what `held_up` says of its point.
    """

    library: str = "openmpi"
    python: Path = Path("python")
    fits: Callable[[ProbePoint], bool] = field(default=lambda _: True)
    dies: Callable[[ProbePoint], bool] = field(default=lambda _: False)
    lacks: Callable[[ProbePoint], bool] = field(default=lambda _: False)
    refused: AlgorithmChoice | None = None
    alone: str = ""
    seconds: Callable[[AlgorithmChoice], float] = field(default=lambda _: 1e-3)
    held_up: Callable[[ProbePoint], float] = field(default=lambda _: 1.0)
    plans: list[ProbePlan] = field(default_factory=list)
    budgets: list[float] = field(default_factory=list)

    @property
    def capabilities(self) -> Capabilities:
        return everything("openmpi")

    def version(self) -> str:
        return "openmpi 5.0.11"

    def run(self, ranks: int, arguments: Sequence[str], **known: Any) -> CompletedRun:
        if "tuner.rank_programs.loopback" in arguments:
            if self.alone:
                raise ProbeError(self.alone)
            return CompletedRun(0, '{"frame_bytes": 102, "hold_times": [[0.0, 3e-05]]}\n', "")
        words, on_line = arguments, known["on_line"]
        plan, out = read_plan(Path(words[-4])), Path(words[-3])
        self.plans.append(plan)
        self.budgets.append(float(words[-2]))
        for done, point in enumerate(plan.points, start=1):
            if self.dies(point):
                raise ProbeError("a host was lost")
            for event in self._measured(point, out):
                on_line(json.dumps(event))
            on_line(json.dumps({"event": "done", "points": done}))
        return CompletedRun(0, "", "")

    def _measured(self, point: ProbePoint, out: Path) -> Iterator[dict[str, object]]:
        if self.lacks(point):
            yield {"event": "lacking", "point": str(point), "why": NOWHERE}
        elif not self.fits(point):
            yield {"event": "left_out", "point": str(point), "key": point.key}
        else:
            for arm in point.candidates:
                if arm.choice == self.refused:
                    yield {
                        "event": "excluded",
                        "point": str(point),
                        "candidate": arm.name,
                        "why": "refused: MPI_ERR_ARG",
                    }
                    continue
                with out.open("a") as file:
                    took = (self.held_up(point) * self.seconds(arm.choice),) * 12
                    file.write(series_line(point.to_measurement(arm, took)) + "\n")
