"""A probe from the outside: plan, launch, watch, resume, finish the file."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner import libraries
from tuner.errors import InputError, ProbeError
from tuner.files import write_atomically
from tuner.measurement import (
    Cluster,
    Measurement,
    Measurements,
    end_line,
    header_line,
    read_measurements,
    read_partial,
    series_line,
)
from tuner.probe.machine import local_cluster, provenance
from tuner.probe.plan import Plan, write_plan
from tuner.probe.planning import COLLECTIVE_SIZES, make_plan
from tuner.runtime.launch import Launcher, available_cores

FEWEST_RANKS = 4  # of Open MPI: fewer leave the algorithms nothing to differ in
LAUNCHES = 6  # of the ranks: their placement is settled anew each time, and times with it
BUDGETS = {"openmpi": 90.0, "mpich": 30.0}  # seconds
SETTINGS = {
    "openmpi": {"coll_tuned_use_dynamic_rules": "1"},  # else forced algorithms are ignored
    "mpich": {"MPIR_CVAR_COLLECTIVE_FALLBACK": "error"},  # else another algorithm runs silently
}
RANKS = ("-m", "mpi4py", "-m", "tuner.probe.ranks")  # mpi4py aborts all when one rank fails
PATIENCE = 180.0  # seconds beyond three times the budget after which the ranks must be stuck


@dataclass(frozen=True)
class Progress:
    """Where a probe is. Times in seconds; `remaining` is an estimate."""

    done: int
    total: int
    elapsed: float
    remaining: float
    text: str


def probe(
    out: Path,
    *,
    library: str = "openmpi",
    python: Path = Path(sys.executable),
    ranks: int | None = None,
    budget: float | None = None,
    sizes: Sequence[int] | None = None,
    target: float = 0.03,
    launches: int = LAUNCHES,
    operators: str = "commutative",
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Measurements:
    """Measure this computer with `library` and write `out`; resume what `out` already holds.

    ranks       default: the cores, at least 4 for Open MPI (oversubscribed), at least 2 for MPICH
    budget      seconds of measuring; default 90 for Open MPI, 30 for MPICH
    sizes       bytes of the collectives' buffers, multiples of 4
    target      relative half-width of the 95 % interval of a median at which a point is done
    launches    how often the ranks are started; each start measures every algorithm
    operators   `commutative`, or `any` to time only algorithms that keep the operands' order

    Raises InputError for arguments that cannot be used and for an `out` of another probe,
    ProbeError when the ranks cannot be started or fail; what was measured until then stays in
    `out`.
    """
    launcher = Launcher.find(library, python)
    cluster, version = local_cluster(), launcher.version()
    plan = _plan(library, ranks, sizes, target, launches, operators)
    about = {**provenance(version, python), "ranks": plan.ranks, "target": target,
             "operators": operators, "plan": plan.fingerprint, "excluded": []}  # fmt: skip
    about, left, ended = _resume(out, cluster, version, about, plan)
    if not ended:
        watch = _Watch(plan, BUDGETS[library] if budget is None else budget, on_progress)
        for number in range(launches):
            watch.later = left.after_launch(number)
            while (part := left.of_launch(number)).points:
                failure = _launch(launcher, part, out, watch)
                if failure is None:
                    break
                about, left, _ = _resume(out, cluster, version, about, plan)
                if len(left.of_launch(number).points) == len(part.points):
                    raise failure
        _, series, _ = read_partial(out)
        about |= {"excluded": plan.excluded(series), "seconds": round(watch.elapsed, 1)}
        _write(out, cluster, version, about, series, ended=True)
    return read_measurements(out)


def _plan(
    library: str,
    ranks: int | None,
    sizes: Sequence[int] | None,
    target: float,
    launches: int,
    operators: str,
) -> Plan:
    cores = available_cores()
    usual = max(FEWEST_RANKS, cores) if library == "openmpi" else max(2, cores)
    wanted = usual if ranks is None else ranks
    if wanted < 2:
        raise InputError(f"{wanted} ranks have nobody to talk to: ask for at least 2")
    if launches < 1:
        raise InputError(f"{launches} launches measure nothing: ask for at least 1")
    if operators not in ("any", "commutative"):
        raise InputError(f"operators are `any` or `commutative`, not {operators!r}")
    ladder = COLLECTIVE_SIZES if sizes is None else tuple(sizes)
    odd = [size for size in ladder if size < 4 or size % 4]
    if odd or not ladder:
        raise InputError(f"sizes are positive multiples of 4 bytes, not {odd or 'none'}")
    return make_plan(
        library,
        wanted,
        cores,
        target,
        operators,
        launches,
        ladder,
        libraries.named(library).candidates,
        libraries.named(library).settings,
    )


def _resume(
    out: Path, cluster: Cluster, version: str, about: dict[str, Any], plan: Plan
) -> tuple[dict[str, Any], Plan, bool]:
    """Provenance of `out`, what is left to measure, and whether it is finished.

    An unfinished `out` then holds just its finished points.
    """
    try:
        header, series, ended = read_partial(out) if out.exists() else (None, [], False)
    except (OSError, UnicodeDecodeError) as reason:
        raise InputError(f"{out}: cannot be read as measurements: {reason}") from None
    if header is not None:
        theirs = (header["cluster"], header["library"], header["provenance"].get("plan"))
        if theirs != (asdict(cluster), version, about["plan"]):
            raise InputError(
                f"{out} holds a probe of another cluster, library or plan (it says"
                f" {header['cluster'].get('name')}, {header['library']}): choose another --out or"
                " delete it"
            )
        about = header["provenance"]
        if ended:
            return about, plan.without(series), True
    kept = plan.complete(series)
    _write(out, cluster, version, about, kept, ended=False)
    return about, plan.without(kept), False


def _write(
    out: Path,
    cluster: Cluster,
    version: str,
    about: dict[str, Any],
    series: Sequence[Measurement],
    *,
    ended: bool,
) -> None:
    lines = [header_line(cluster, version, about), *map(series_line, series)]
    if ended:
        lines.append(end_line(len(series)))
    write_atomically(out, "".join(line + "\n" for line in lines))


def _launch(launcher: Launcher, plan: Plan, out: Path, watch: _Watch) -> ProbeError | None:
    """Start the ranks once, to measure all of `plan`; why they failed, if they did."""
    watch.start(plan)
    with tempfile.TemporaryDirectory(prefix="tuner-probe-") as place:
        written = Path(place, "plan.json")
        write_plan(plan, written)
        try:
            launcher.run(
                plan.ranks,
                [*RANKS, str(written), str(out.resolve()), str(watch.budget)],
                settings=SETTINGS[plan.library],
                on_line=watch.line,
                timeout=3 * watch.budget + PATIENCE,
            )
        except ProbeError as reason:
            return ProbeError(f"{reason} (while measuring {watch.current})")
    return None


class _Watch:
    """Turns what the ranks report into progress, over one launch or several."""

    def __init__(self, plan: Plan, budget: float, tell: Callable[[Progress], None]) -> None:
        self.budget = budget  # seconds of the present launch
        self.current = ""
        self.finished = 0  # points of the present launch
        self.later = plan  # what launches after the present one measure
        self._rate = budget / plan.weight
        self._total = len(plan.points)
        self._weights: list[float] = []
        self._begin = time.monotonic()
        self._launched = self._begin
        self._tell = tell

    def start(self, plan: Plan) -> None:
        """A launch that is to measure `plan` begins."""
        self.budget = self._rate * plan.weight
        self.current = "nothing yet: the ranks are starting"
        self.finished = 0
        self._weights = [point.weight for point in plan.points]
        self._launched = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the first launch."""
        return time.monotonic() - self._begin

    def line(self, text: str) -> None:
        """One line of the ranks' output; what is no report (a library's warning) passes by."""
        if not text.startswith('{"event"'):
            return
        event = json.loads(text)
        if event["event"] == "excluded":
            self._show(f"left out: {event['point']}: {event['algorithm']}: wrong result")
        elif event["event"] == "begin":
            self.current = event["point"]
            self._show(self.current)
        else:
            self.finished = event["points"]

    def _show(self, text: str) -> None:
        left = len(self._weights) - self.finished + len(self.later.points)
        done = self._total - left
        self._tell(Progress(done, self._total, self.elapsed, self._remaining(), text))

    def _remaining(self) -> float:
        """By the weight of what is left, and never more than what is left of the budget."""
        spent = time.monotonic() - self._launched
        done = sum(self._weights[: self.finished])
        left = sum(self._weights[self.finished :]) + self.later.weight
        budgeted = max(self.budget - spent, 0.0) + self._rate * self.later.weight
        return min(budgeted, spent * left / done) if done > 0 else budgeted
