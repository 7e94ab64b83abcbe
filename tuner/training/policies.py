"""Policies that choose the algorithms of the calls of a job."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tuner.algorithms import algorithm_names
from tuner.base.errors import InputError, ScheduleError
from tuner.base.units import plural
from tuner.core.collective import Collective
from tuner.core.measurement import read_measurements
from tuner.core.path_classes import BLOCK
from tuner.core.table import AlgorithmChoice, RuleKey, TuningTable
from tuner.machines.model_accuracy import NCCL, SIMULATION
from tuner.mpi_libraries.default_algorithms import (
    DefaultLookup,
    default_algorithms_from_provenance,
    default_lookup,
)
from tuner.mpi_libraries.nccl.names import POINT_TO_POINT
from tuner.prediction.call_candidates import estimate_transfers
from tuner.prediction.nccl_times import NCCL_PAIRWISE
from tuner.prediction.ordering import rounded_seconds
from tuner.topology import CONFIGURED_CAPABILITIES, CUDA
from tuner.training.call_times import PART, AlgorithmPolicy, CallTimes, TimedAlgorithm, part_of
from tuner.training.groups import Call
from tuner.whatif.table_regret import look_up_exported

SIMPLE = ("ring", "recursive_doubling", "binomial", "pipeline")
FEW_RANKS = 16  # of a group up to which all candidates are simulated at all sizes
FEW_NODES = 16  # most nodes that are simulated to compare candidates
MOST_NODES = 64  # the same to predict the time of the chosen one
SCREENED = 1  # candidates that remain after the comparison
SHAPES = 2  # algorithms with parameters, but not yet a segment, that are then compared further
# Powers of 2 ** this number are the sizes of comparisons.
SHAPES_AT = 4
SEGMENTS_AT = 2
MAX_TRANSFERS = 4e5  # of a candidate on the whole machine; with more, latencies dominate

Shape = tuple[str, tuple[tuple[str, int], ...]]  # an algorithm and its parameters but the segment


@dataclass(frozen=True)
class NcclChoice:
    """NCCL's own choice."""

    def choose(self, call: Call, times: CallTimes) -> TimedAlgorithm:
        """Return NCCL's choice; raise InputError where NCCL cannot run or is not known.

        For groups that share ports of their nodes, which NCCL's model does not know, that is the
        fastest of a few simulated algorithms, and for a collective of sends and receives their
        simulation, which AMD's GPUs have everywhere.
        """
        of_nccl, collective = times.nccl(call.group), Collective(call.operation)
        known = of_nccl.algorithms(collective, collnet=False) if of_nccl else ()
        if not known and times.memory == CUDA and collective in POINT_TO_POINT:
            return FastestKnown((NCCL_PAIRWISE,)).choose(call, times)
        if of_nccl is None and times.memory == CUDA and call.group != times.world:
            return FastestKnown(SIMPLE).choose(call, times)
        if of_nccl is None or not known:
            raise InputError(
                f"what runs {collective} by default here is not known: write `algorithms: best`,"
                " the name of a tuning table, or `defaults` with measurements of the library"
            )
        return times.of_nccl(call, of_nccl.choice(collective, known, call.nbytes))


@dataclass(frozen=True)
class FastestKnown:
    """The fastest algorithm that can be predicted, of NCCL or simulated.

    names       algorithms to choose from; all if empty
    """

    names: tuple[str, ...] = ()
    _screened: dict[tuple[CallTimes, Call], list[AlgorithmChoice]] = field(
        default_factory=dict, compare=False
    )
    _shapes: dict[tuple[CallTimes, Call], set[Shape]] = field(default_factory=dict, compare=False)

    def choose(self, call: Call, times: CallTimes) -> TimedAlgorithm:
        """Return the fastest algorithm; raise InputError if no known one can be simulated."""
        found = [*self._of_nccl(call, times), *self._of_schedules(call, times)]
        if not found:
            among = f" among {', '.join(self.names)}" if self.names else ""
            raise InputError(
                f"no algorithm for {call.operation} of {plural(call.group.size, 'rank')} can be"
                f" simulated{among}"
            )
        return min(found, key=lambda timed: rounded_seconds(timed.seconds))

    def _of_nccl(self, call: Call, times: CallTimes) -> Iterator[TimedAlgorithm]:
        of_nccl, collective = times.nccl(call.group), Collective(call.operation)
        if of_nccl is None:
            return
        for name in of_nccl.algorithms(collective, collnet=False):
            if not self.names or name in self.names:
                yield times.of_nccl(call, name)

    def _of_schedules(self, call: Call, times: CallTimes) -> Iterator[TimedAlgorithm]:
        predict = times.simulated if self.names else partial(times.extrapolated, MOST_NODES)
        for choice in self._worth_trying(call, times):
            seconds = _seconds_if_possible(predict, call, choice)
            if seconds is not None:
                yield TimedAlgorithm(str(choice), seconds, choice)

    def _worth_trying(self, call: Call, times: CallTimes) -> list[AlgorithmChoice]:
        """Return the candidates that may be the fastest, which are compared at few sizes."""
        key = times, call._replace(nbytes=_size_nearby(call.nbytes, SEGMENTS_AT))
        if key not in self._screened:
            self._screened[key] = self._screen(key[1], times)
        return self._screened[key]

    def _screen(self, call: Call, times: CallTimes) -> list[AlgorithmChoice]:
        """Return the fastest candidates, by simulations of at most FEW_NODES.

        For many ranks only the algorithms are compared that are fast on still fewer nodes.
        """
        candidates = list(self._candidates(call, times))
        if call.group == times.world and call.group.size > FEW_RANKS:
            shapes = self._fastest_shapes(call, times)
            candidates = [one for one in candidates if _shape(one) in shapes]
        elif not self.names and call.group.size <= FEW_RANKS:
            return candidates
        predict = partial(times.extrapolated, FEW_NODES)
        return _fastest(call, candidates, predict)[:SCREENED]

    def _fastest_shapes(self, call: Call, times: CallTimes) -> set[Shape]:
        """Return the algorithms that are the fastest with their median segment on few nodes."""
        key = times, call._replace(nbytes=_size_nearby(call.nbytes, SHAPES_AT))
        if key not in self._shapes:
            shapes = defaultdict[Shape, list[AlgorithmChoice]](list)
            for choice in self._candidates(key[1], times):
                shapes[_shape(choice)].append(choice)
            medians = [some[len(some) // 2] for some in shapes.values()]
            few = times.on_fewer_nodes(max(1, part_of(times.nodes, FEW_NODES) // PART))
            here = key[1]._replace(group=few.world)
            fastest = _fastest(here, medians, few.simulated)[:SHAPES]
            self._shapes[key] = {_shape(one) for one in fastest}
        return self._shapes[key]

    def _candidates(self, call: Call, times: CallTimes) -> Iterator[AlgorithmChoice]:
        """Yield the schedules to choose from, of those that nobody has to configure."""
        predictor, collective = times.predictor(call.group), Collective(call.operation)
        features = predictor.features_without(CONFIGURED_CAPABILITIES)
        names = [
            name
            for name in algorithm_names(collective, features)
            if not self.names or name in self.names
        ]
        for one in predictor.candidates(collective, names, call.nbytes):
            if predictor.model_of(collective, one.choice) == SIMULATION:
                transfers = estimate_transfers(collective, one, call.group.size, call.nbytes)
                if self.names or transfers <= MAX_TRANSFERS:
                    yield one.choice


@dataclass(frozen=True)
class TableChoice:
    """The choice of a tuning table, and of another policy for what it leaves to the library."""

    table: TuningTable
    otherwise: AlgorithmPolicy

    def choose(self, call: Call, times: CallTimes) -> TimedAlgorithm:
        nodes, ppn = times.shape(call.group)
        key = RuleKey(Collective(call.operation), nodes, ppn, times.memory, placement=BLOCK)
        choice = look_up_exported(self.table, key, call.nbytes).choice
        if choice.is_default:
            return self.otherwise.choose(call, times)
        return _timed_choice(call, choice, times)


@dataclass(frozen=True)
class LibraryDefault:
    """The default algorithms of an MPI library, as its measurements tell them."""

    lookup: DefaultLookup

    @classmethod
    def from_measurements(cls, path: Path) -> LibraryDefault:
        """Return the default algorithms of the library whose measurements a file has.

        Raises InputError for a file that cannot be read, or that does not know them.
        """
        found = read_measurements(path)
        decisions = default_algorithms_from_provenance(found.provenance, found.library, str(path))
        if not decisions:
            raise InputError(f"{path}: the measurements do not say what the default runs")
        return cls(default_lookup(decisions, found.library))

    def choose(self, call: Call, times: CallTimes) -> TimedAlgorithm:
        """Return what the library runs by default; raise InputError where that is unknown."""
        nodes, ppn = times.shape(call.group)
        collective = Collective(call.operation)
        choice = self.lookup((collective, nodes, ppn, BLOCK), call.nbytes)
        if choice is None:
            raise InputError(
                f"the measurements do not say what the library runs by default for {collective} of"
                f" {plural(call.nbytes, 'byte')} on {plural(nodes, 'node')} x {plural(ppn, 'rank')}"
            )
        return _timed_choice(call, choice, times)


def _timed_choice(call: Call, choice: AlgorithmChoice, times: CallTimes) -> TimedAlgorithm:
    """Return an algorithm with its time, which is NCCL's own where NCCL has the algorithm."""
    predictor, collective = times.predictor(call.group), Collective(call.operation)
    if predictor.model_of(collective, choice) == NCCL:
        return times.of_nccl(call, choice.algorithm)
    return TimedAlgorithm(str(choice), times.simulated(call, choice), choice)


def _size_nearby(nbytes: int, power: int) -> int:
    """Return the power of 2 ** power that is nearest to a size, by their ratio."""
    return 1 << max(power, round(math.log2(nbytes) / power) * power)


def _shape(choice: AlgorithmChoice) -> Shape:
    """Return an algorithm and its parameters but the segment."""
    return choice.algorithm, tuple(one for one in choice.params.items() if one[0] != "segment")


def _fastest(
    call: Call, choices: list[AlgorithmChoice], predict: Callable[[Call, AlgorithmChoice], float]
) -> list[AlgorithmChoice]:
    """Return the algorithms that are possible, the fastest first."""
    timed = [(_seconds_if_possible(predict, call, choice), choice) for choice in choices]
    possible = [(seconds, choice) for seconds, choice in timed if seconds is not None]
    return [choice for _, choice in sorted(possible, key=lambda pair: rounded_seconds(pair[0]))]


def _seconds_if_possible(
    predict: Callable[[Call, AlgorithmChoice], float], call: Call, choice: AlgorithmChoice
) -> float | None:
    """Return the predicted seconds; None for an algorithm that cannot be simulated on this group.

    Messages staged through host memory may have no cost.
    """
    try:
        return predict(call, choice)
    except (InputError, ScheduleError):  # too large a call and a missing cost among them
        return None
