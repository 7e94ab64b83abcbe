"""Predict how long calls take on a machine, for everything that asks.

Studies, `tuner simulate`, calls shown in the studio, training and table building get their times
from a `CallPredictor`. It alone decides whether NCCL's own model or a simulation predicts a time,
which schedule is simulated, and which calls have no time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tuner.algorithms import REQUIREMENTS, algorithm_names, available_capabilities
from tuner.base.errors import (
    InputError,
    LimitExceededError,
    MissingCostError,
    ScheduleError,
    TunerError,
)
from tuner.core.calibration import Calibration
from tuner.core.collective import Collective
from tuner.core.ragged import with_block_sizes
from tuner.core.schedule import Schedule
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.machines.model_accuracy import NCCL, SIMULATION
from tuner.mpi_libraries.nccl import CURRENT_VERSION, EVEN, ExchangeLoad, exchange_load
from tuner.mpi_libraries.schedules import schedule_of
from tuner.prediction.block_counts import BlockCounts
from tuner.prediction.call_candidates import (
    Candidate,
    build_schedule,
    estimate_transfers,
    is_run_by_nccl,
    leaves_rest,
    list_candidates,
    schedule_key,
)
from tuner.prediction.kept_schedules import ScheduleStore
from tuner.prediction.nccl_times import NcclTimes, nccl_times
from tuner.sim import fast_engine, simulate, sweep
from tuner.sim.critical_paths import Explanation, explain
from tuner.sim.simulation_cache import SimulationCache
from tuner.topology import CUDA, HOST, Placement

PART_RANKS = 1 << 12  # whose simulation tells whether transfers are simulated event by event

_schedules = ScheduleStore()


class NoScheduleError(InputError):
    """No schedule describes the algorithm, or what a library runs under its name."""


@dataclass(frozen=True)
class NoPrediction:
    """The reason why a call has no predicted time."""

    reason: TunerError

    @property
    def is_too_large(self) -> bool:
        return isinstance(self.reason, LimitExceededError)

    @property
    def is_wrong_choice(self) -> bool:
        """Return whether the algorithm has no such parameters, or is not for so many ranks."""
        return not isinstance(self.reason, LimitExceededError | MissingCostError | NoScheduleError)


@dataclass(frozen=True)
class CallPredictor:
    """A predictor of the times of calls by the ranks of one placement.

    memory          kind of memory that the buffers are in
    nccl            times of NCCL's own model, which stand in for simulations of its algorithms;
                    None where NCCL cannot run or is not known, and where costs were measured
    root            root rank of the collectives that have one
    itemsize        bytes of an element
    counts          bytes of the blocks of ragged collectives; None for equal blocks
    engine          one of `tuner.sim.ENGINES`; without it `explain` and times within limits are of
                    the fast one
    simulations     prepared simulations, kept for calls of other sizes; None to keep none
    """

    placement: Placement
    calibration: Calibration
    memory: str
    nccl: NcclTimes | None = None
    root: int = 0
    itemsize: int = 1
    counts: BlockCounts | None = None
    engine: str = "fast"
    simulations: SimulationCache | None = None

    @classmethod
    def of_machine(
        cls,
        placement: Placement,
        calibration: Calibration,
        memory: str,
        *,
        with_nccl: bool = True,
        nccl_factors: tuple[float, float] = (1.0, 1.0),
        nccl_version: str = CURRENT_VERSION,
    ) -> CallPredictor:
        """Return a predictor on a machine.

        with_nccl       whether NCCL's model is used, if NCCL can run there
        nccl_factors    factors of NCCL's latencies and of its rates, as for `nccl_times`
        nccl_version    the version that chooses

        Raises InputError for buffers in the memory of GPUs on a node that has none.
        """
        if memory == CUDA:
            placement.require_gpus()
        version = nccl_version
        nccl = nccl_times(placement, memory, *nccl_factors, version) if with_nccl else None
        return cls(placement, calibration, memory, nccl)

    def on_changed(
        self, placement: Placement, calibration: Calibration, nccl_factors: tuple[float, float]
    ) -> CallPredictor:
        """Return a predictor of the same calls on a changed machine, as `of_machine` does.

        Raises MissingCostError if NCCL's model is not known there.
        """
        own = self.nccl
        nccl = own and nccl_times(placement, self.memory, *nccl_factors, own.version)
        if self.nccl and not nccl:
            raise MissingCostError(f"NCCL's model does not hold on {placement.topology.name}")
        return replace(self, placement=placement, calibration=calibration, nccl=nccl)

    @property
    def features(self) -> frozenset[str]:
        """The requirements of algorithms that calls meet."""
        return self.features_without(())

    def features_without(self, withdrawn: Collection[str]) -> frozenset[str]:
        """Return the requirements that calls meet if the network lacks some capabilities."""
        offered = self.placement.topology.capabilities.difference(withdrawn)
        return available_capabilities(offered, self.memory == CUDA, *self.placement.shape)

    def algorithms(self, collective: Collective) -> tuple[str, ...]:
        """Return the algorithms of a collective that the machine supports with such buffers."""
        return algorithm_names(collective, self.features)

    def candidates(
        self, collective: Collective, names: Sequence[str], nbytes: int
    ) -> tuple[Candidate, ...]:
        """Return algorithms with all parameters that are worth a prediction.

        NCCL's algorithms have none where its own model predicts their times.
        """
        own = self.nccl.algorithms(collective) if self.nccl else ()
        return tuple(list_candidates(collective, names, *self.placement.shape, nbytes, own))

    def model_of(self, collective: Collective, choice: AlgorithmChoice) -> str:
        """Return what predicts the time of a choice: NCCL or SIMULATION."""
        own = self.nccl.algorithms(collective) if self.nccl else ()
        return NCCL if is_run_by_nccl(choice, own) else SIMULATION

    def predict(
        self, collective: Collective, choice: AlgorithmChoice, nbytes: int
    ) -> float | NoPrediction:
        """Return the seconds of a call, or why there are none; see `predict_sizes`."""
        return self.predict_sizes(collective, choice, [nbytes])[0]

    def seconds(self, collective: Collective, choice: AlgorithmChoice, nbytes: int) -> float:
        """Return the seconds of a call; raise the reason why there are none."""
        found = self.predict(collective, choice, nbytes)
        if isinstance(found, NoPrediction):
            raise found.reason
        return found

    def refusal_by_part(
        self, collective: Collective, choice: AlgorithmChoice, nbytes: int
    ) -> NoPrediction | None:
        """Return a refusal if the order of too many transfers depends on one another.

        A part of the ranks shows it, in a fraction of the time that a simulation of all would take.
        """
        placement = self.placement
        transfers = estimate_transfers(collective, choice, placement.p, nbytes)
        if transfers <= fast_engine.MAX_EVENT_TRANSFERS or placement.p <= PART_RANKS:
            return None
        part = Placement(placement.topology, placement.node_of[:PART_RANKS])
        try:
            made = self.schedule(collective, choice, nbytes, part.p)
            size, item, memory = self._data(collective, nbytes)
            simulation = fast_engine.PreparedSimulation(made, part, self.calibration, item, memory)
            simulation.require_few_events(size, placement.p / part.p)
        except LimitExceededError as reason:
            return NoPrediction(reason)
        except (InputError, ScheduleError):  # which the simulation of all ranks meets, too
            pass
        return None

    def predict_sizes(
        self,
        collective: Collective,
        choice: AlgorithmChoice,
        sizes: Sequence[int],
        longest: Sequence[float] | None = None,
    ) -> list[float | NoPrediction]:
        """Return the seconds of calls of several sizes that share a schedule.

        longest     seconds at each size beyond which a time may be infinite instead, as it then is
                    found sooner

        There is no prediction of an algorithm that is not for so many ranks or that no schedule
        describes, of too large a call, and of messages staged through host memory without a cost.
        Raises MissingCostError where other messages have none.
        """
        if collective.is_ragged and self.counts and len(sizes) > 1:
            return [self.predict(collective, choice, size) for size in sizes]
        if self.model_of(collective, choice) == NCCL:
            assert self.nccl is not None
            load = self._exchange_load if collective.is_ragged else EVEN
            return [self.nccl.seconds(collective, choice.algorithm, size, load) for size in sizes]
        try:
            made = self.schedule(collective, choice, sizes[0])
        except (InputError, ScheduleError) as reason:
            return [NoPrediction(reason)] * len(sizes)
        try:
            return self._simulated_or_not(made, sizes, longest)
        except MissingCostError as reason:
            if not made.staged:
                raise
            return [NoPrediction(reason)] * len(sizes)
        except ScheduleError as reason:  # of rounds that are made while they are simulated
            return [NoPrediction(reason)] * len(sizes)

    @cached_property
    def _exchange_load(self) -> ExchangeLoad:
        """The load of the rank that sends or receives most, for which the others wait."""
        if self.counts is None:
            return EVEN
        return exchange_load(self.counts.shares, self.placement.node_of)

    def _simulated_or_not(
        self, made: Schedule, sizes: Sequence[int], longest: Sequence[float] | None
    ) -> list[float | NoPrediction]:
        """Return the simulated seconds, or a refusal for each size that is too large."""
        try:
            return [*self._simulated_sizes(made, sizes, longest)]
        except LimitExceededError as reason:
            if len(sizes) == 1:
                return [NoPrediction(reason)]
        limits = [None] * len(sizes) if longest is None else [[one] for one in longest]
        return [
            one
            for size, limit in zip(sizes, limits, strict=True)
            for one in self._simulated_or_not(made, [size], limit)
        ]

    def _simulated_sizes(
        self, made: Schedule, sizes: Sequence[int], longest: Sequence[float] | None
    ) -> list[float]:
        if longest is None:
            return [self.simulated_seconds(made, nbytes) for nbytes in sizes]
        _, item, memory = self._data(made.collective, 0)
        played = [self._data(made.collective, nbytes)[0] for nbytes in sizes]
        return sweep(made, self.placement, self.calibration, played, item, memory, longest)

    def schedule(
        self, collective: Collective, choice: AlgorithmChoice, nbytes: int, p: int | None = None
    ) -> Schedule:
        """Return the schedule by which a choice is simulated, the library's where one runs it.

        p       ranks of a part of the placement; all if None

        A ragged one is for this size alone; others of ours are kept for all sizes that share them.
        None is verified, which would take most of the time of a study. Raises InputError and
        ScheduleError for an algorithm that is not for so many ranks, and NoScheduleError for one
        that no schedule describes.
        """
        ranks = self.placement.p if p is None else p
        made = self._even_schedule(collective, choice, nbytes, ranks)
        if not collective.is_ragged or self.counts is None:
            return made
        count = max(1, nbytes // self.itemsize)
        return with_block_sizes(
            made, self.counts.sizes(nbytes, self.itemsize)[:ranks, :ranks], count
        )

    def _even_schedule(
        self, collective: Collective, choice: AlgorithmChoice, nbytes: int, ranks: int
    ) -> Schedule:
        """Return the schedule of a choice whose blocks, if it has any, are equally long."""
        root = 0 if ranks <= self.root < self.placement.p else self.root  # a part may lack it
        is_known = choice.algorithm in algorithm_names(collective, REQUIREMENTS)
        if is_known and choice.runner == SCHEDULE and self.itemsize == 1 and root == 0:
            return _kept_schedule(collective, choice, ranks, nbytes)
        library = self.calibration.library
        made = schedule_of(library, collective, choice, ranks, nbytes, root)
        if made is None:
            raise NoScheduleError(
                f"{choice.algorithm} of {library} follows other choices of that library, and no"
                " schedule says which"
            )
        return made

    def simulated_seconds(self, schedule: Schedule, nbytes: int) -> float:
        """Return the simulated seconds of any schedule; raises what `tuner.sim.simulate` does."""
        size, item, memory = self._data(schedule.collective, nbytes)
        if self.simulations is not None:
            return self.simulations.seconds(schedule, self.placement, size, memory)
        costs = self.calibration
        return simulate(schedule, self.placement, costs, size, item, self.engine, memory)

    def explain(self, schedule: Schedule, nbytes: int) -> Explanation:
        """Return where the time of a simulated call goes; raises what `explain` does."""
        size, item, memory = self._data(schedule.collective, nbytes)
        return explain(schedule, self.placement, self.calibration, size, item, memory)

    def _data(self, collective: Collective, nbytes: int) -> tuple[int, int, str]:
        """Return bytes, bytes of an element, and memory with which a call is simulated."""
        if collective.has_data:
            return nbytes, self.itemsize, self.memory
        return collective.call_bytes(nbytes), 1, HOST


def _kept_schedule(
    collective: Collective, choice: AlgorithmChoice, p: int, nbytes: int
) -> Schedule:
    """Return our schedule for all sizes that share it."""

    def build() -> Schedule:
        made = build_schedule(collective, choice, p, nbytes)
        if leaves_rest(collective, choice, nbytes):
            return made
        return replace(made, segment_bytes=0)  # at other sizes the segments have other lengths

    return _schedules.get((p, schedule_key(collective, choice, p, nbytes)), build)
