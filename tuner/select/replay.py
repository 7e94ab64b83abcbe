"""Replays of experiment designs on calls whose times are all known: what probes would have saved.

A design asks for batches, and what it asks for is taken from known observations instead of being
measured. So the true regret of the table that it would make is known after every batch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import (
    MIN_GAIN,
    CallPoint,
    DefaultRuns,
    Observation,
    PointConfig,
    group_by_point,
    no_simulation,
    unknown_default,
)
from tuner.select.disturbances import screen_launches
from tuner.select.experiment_design import REPETITIONS, ExperimentDesign, measurement_cost
from tuner.select.selector import Selector
from tuner.select.significance import DEFAULT_CHOICE, predict_comparison

_BATCH_SHARE = 0.01  # of the seconds that measuring everything takes
_MIN_NOISE_SD = 0.03  # of the logarithm of a measured time
_LAUNCH_SD = 0.03  # of what the logarithms of all times of a call in one launch have in common
_REPETITION_SD = 0.05  # of the logarithms of repetitions


class Replay:
    """A replay of a design: its experiments are answered from `observations`.

    measure     returns what a probe would find in a launch where an observation is the truth
    spent       seconds of measuring so far
    found       what was found so far
    """

    def __init__(
        self,
        design: ExperimentDesign,
        observations: Sequence[Observation],
        measure: Callable[[Observation, int], Observation] = lambda row, _launch: row,
    ) -> None:
        self.design, self.spent = design, 0.0
        self.found = dict[PointConfig, Observation]()
        self._known = {(row.point, row.choice): row for row in observations}
        self._measure = measure
        self._launches = 0

    @property
    def total_seconds(self) -> float:
        """Return the seconds that measuring everything once takes."""
        return sum(measurement_cost(row.seconds) for row in self._known.values())

    def measure_batch(self, batch_seconds: float, max_seconds: float = math.inf) -> bool:
        """Measure the next batch in a launch; return False if nothing is worth measuring.

        The seconds are those of `ExperimentDesign.next_batch`.
        """
        batch = self.design.next_batch(batch_seconds, max_seconds)
        if not batch:
            return False
        asked = {(task.point, choice) for task in batch for choice in task.choices}
        for pair in sorted(asked & self._known.keys(), key=str):
            self.spent += measurement_cost(self._known[pair].seconds)
            new = self._measure(self._known[pair], self._launches)
            old = self.found.get(pair)
            self.found[pair] = new if old is None else _together(old, new)
        self._launches += 1
        self.design.update(self.found.values())
        return True

    def measure_until(self, seconds: float) -> None:
        """Measure batches until so many seconds are spent or nothing is worth measuring."""
        whole = self.total_seconds
        while (left := seconds - self.spent) > _BATCH_SHARE * _BATCH_SHARE * whole:
            if not self.measure_batch(min(_BATCH_SHARE * whole, left), left):
                return


def _together(old: Observation, new: Observation) -> Observation:
    """Return an observation with the launches of both."""
    if new.samples.keys() <= old.samples.keys():
        return new
    return old.with_samples({**old.samples, **new.samples})


@dataclass(frozen=True)
class ReplayStage:
    """The quality of the table that would be made after a share of all seconds.

    share       that is allowed
    regrets     true regret of each call
    slower      for each call, whether it is slower than the default by over `MIN_GAIN`
    expected    mean regret that the design expects
    """

    share: float
    regrets: tuple[float, ...]
    slower: tuple[bool, ...]
    expected: float


def replay_shares(
    observations: Sequence[Observation],
    shares: Sequence[float],
    seed: int,
    prior: Sequence[Observation] = (),
    default_runs: DefaultRuns = unknown_default,
) -> Iterator[ReplayStage]:
    """Yield the stages before anything is measured, and after each share of all seconds.

    Nothing is simulated. Each batch is a launch. A measured time differs from the observation's by
    its uncertainty, at least by 3 % (standard deviation), and by as much together with all of its
    call in that launch; repetitions differ by 5 % from one another.

    observations    of all candidates, among them the default at every call
    shares          of the seconds that measuring everything takes, ascending
    prior           of other machines
    default_runs    the algorithm that the default runs
    """
    random = np.random.default_rng(seed)
    candidates = {
        point: [row.choice for row in own] for point, own in group_by_point(observations).items()
    }
    design = ExperimentDesign(
        candidates, no_simulation, seed=seed, prior=prior, default_runs=default_runs
    )
    effects = defaultdict[tuple[CallPoint, int], float](random.standard_normal)

    def measure(row: Observation, launch: int) -> Observation:
        slower = math.exp(_LAUNCH_SD * effects[row.point, launch])
        return _noisy(row, launch, slower * row.seconds, random)

    replay = Replay(design, observations, measure)
    for share in (0.0, *shares):
        replay.measure_until(share * replay.total_seconds)
        found = screen_launches([*replay.found.values()]).observations
        rows = [*found, *prior]
        selector = Selector(rows, no_simulation, adaptive=True, default_runs=default_runs)
        chosen = _table_choices(candidates, selector)
        yield _stage(share, chosen, observations, design.regret_bound().expected)


def _noisy(
    row: Observation, launch: int, seconds: float, random: np.random.Generator
) -> Observation:
    """Return what a probe would find in a launch in which a call takes so many seconds."""
    noise = max(row.log_sd, _MIN_NOISE_SD)
    middle = seconds * math.exp(noise * random.standard_normal())
    samples = tuple(middle * np.exp(_REPETITION_SD * random.standard_normal(REPETITIONS)))
    return row.with_samples({launch: samples})


def _table_choices(
    candidates: Mapping[CallPoint, Sequence[AlgorithmChoice]], selector: Selector
) -> dict[CallPoint, AlgorithmChoice]:
    """Return what a table of all observations would use at each call, before rules are merged."""
    chosen = dict[CallPoint, AlgorithmChoice]()
    for point, choices in candidates.items():
        compared = predict_comparison(point, selector, choices)
        chosen[point] = (
            min(compared.winners, key=compared.seconds.__getitem__, default=DEFAULT_CHOICE)
            if compared
            else DEFAULT_CHOICE
        )
    return chosen


def _stage(
    share: float,
    chosen: Mapping[CallPoint, AlgorithmChoice],
    observations: Sequence[Observation],
    expected: float,
) -> ReplayStage:
    regrets, slower = list[float](), list[bool]()
    for point, own in group_by_point(observations).items():
        times = {row.choice: row.seconds for row in own}
        taken = times[chosen[point]]
        regrets.append(taken / min(times.values()) - 1)
        slower.append(taken > (1 + MIN_GAIN) * times[DEFAULT_CHOICE])
    return ReplayStage(share, tuple(regrets), tuple(slower), expected)
