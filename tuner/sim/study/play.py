"""Running a study: every candidate at every point, one call at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tuner.collective import Collective
from tuner.cost import Calibration
from tuner.errors import InputError, TunerError
from tuner.sim import simulate
from tuner.sim.study.axes import Place, varied
from tuner.sim.study.candidates import (
    MOST_TRANSFERS,
    Candidate,
    Count,
    build,
    candidates,
    counter,
)
from tuner.sim.study.keep import Rules, kept, rules_for
from tuner.sim.study.result import StudyPoint, StudyResult, Timing, keeping, switches
from tuner.sim.study.spec import Study
from tuner.topology import Placement

MOST_TRANSFERS_OF_A_STUDY = 1 << 28  # about twenty minutes of simulation
DIGITS = 12  # significant ones of a time by which candidates are ordered: beyond is rounding

Progress = Callable[[int, int], None]  # (done, of how many)


class CancelledError(TunerError):
    """The study was stopped before its end."""


def _quietly(_done: int, _total: int) -> None:
    pass


def _never() -> bool:
    return False


@dataclass(frozen=True)
class _Planned:
    """One point: who competes, with how many transfers each, and who does not."""

    at: Place
    collective: Collective
    nbytes: int
    calls: tuple[tuple[Candidate, int], ...]
    left_out: tuple[str, ...]
    rules: Rules | None


class _Watch:
    """Tells how far it is, and stops when it is told to."""

    def __init__(self, progress: Progress, cancelled: Callable[[], bool]) -> None:
        self._progress, self._cancelled = progress, cancelled
        self.done = self.total = 0

    def go_on(self) -> None:
        if self._cancelled():
            raise CancelledError("the study was cancelled")

    def expect(self, transfers: int) -> None:
        """Raises InputError as soon as it is too much: to count the rest may take long, too."""
        self.total += transfers
        if self.total > MOST_TRANSFERS_OF_A_STUDY:
            raise InputError(
                f"the study has more than {MOST_TRANSFERS_OF_A_STUDY} transfers to simulate: give"
                " fewer values, sizes or algorithms, or smaller machines"
            )

    def add(self, transfers: int) -> None:
        self.done += transfers
        self._progress(self.done, self.total)


def run(
    study: Study, progress: Progress = _quietly, cancelled: Callable[[], bool] = _never
) -> StudyResult:
    """Simulate everything; the same study gives the same result.

    progress    called after every call, with transfers done and transfers in all
    cancelled   asked before every call; raises CancelledError when it says yes

    Raises InputError, before anything is simulated, when there is too much to simulate.
    """
    watch = _Watch(progress, cancelled)
    planned = list(_plan(study, watch))
    points = tuple(_played(study, planned, watch))
    return StudyResult(
        study.name, study.topology.name, study.axes, points, tuple(switches(points)),
        keeping(points),
    )  # fmt: skip


def _plan(study: Study, watch: _Watch) -> Iterator[_Planned]:
    counts = {collective: counter(collective) for collective in study.collectives}
    for at in study.places():
        for collective in study.collectives:
            watch.go_on()
            for nbytes in study.sizes:
                point = _planned(study, at, collective, nbytes, counts[collective])
                watch.expect(sum(transfers for _, transfers in point.calls))
                yield point


def _planned(
    study: Study, at: Place, collective: Collective, nbytes: int, count: Count
) -> _Planned:
    nodes, ppn = int(at["nodes"]), int(at["ppn"])
    offered = list(candidates(collective, study.names(collective), nodes, ppn, nbytes))
    rules = None if study.table is None else rules_for(study.table, collective, nodes, ppn, nbytes)
    if rules is not None and rules.key and rules.candidate and rules.candidate not in offered:
        offered.append(rules.candidate)
    calls = [(candidate, count(candidate, nodes * ppn, nbytes)) for candidate in offered]
    able = tuple(call for call in calls if call[1] <= MOST_TRANSFERS)
    if not able:
        raise InputError(
            f"{collective} on {nodes * ppn} ranks: every candidate has more than {MOST_TRANSFERS}"
            " transfers; study a smaller machine or other algorithms"
        )
    left_out = tuple(str(call[0]) for call in calls if call not in able)
    return _Planned(at, collective, nbytes, able, left_out, rules)


def _played(study: Study, planned: Sequence[_Planned], watch: _Watch) -> Iterator[StudyPoint]:
    for at, there in groupby(planned, key=lambda point: point.at):
        placement = Placement.consecutive(varied(study.topology, at), int(at["ppn"]))
        for point in there:
            timings = _timings(point, placement, study.costs, watch)
            cost = None if point.rules is None else kept(point.rules, timings)
            yield StudyPoint(at, point.collective, point.nbytes, timings, point.left_out, cost)


def _timings(
    point: _Planned, placement: Placement, costs: Calibration, watch: _Watch
) -> tuple[Timing, ...]:
    """The fastest first; of equally fast ones in the order of candidates."""
    timings = []
    for candidate, transfers in point.calls:
        watch.go_on()
        made = build(point.collective, candidate, placement.p, point.nbytes)
        seconds = simulate(made, placement, costs, point.nbytes)
        timings.append(Timing(candidate.algorithm, candidate.params, seconds))
        watch.add(transfers)
    return tuple(sorted(timings, key=lambda timing: float(f"{timing.seconds:.{DIGITS}g}")))
