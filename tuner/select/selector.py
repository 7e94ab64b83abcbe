"""The selector, which predicts the time of every candidate and chooses the fastest.

It chooses among candidates that are supported by measurements, or by simulations that were compared
with measurements elsewhere.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from tuner.base.errors import InputError
from tuner.base.statistics import NORMAL_95
from tuner.core.table import AlgorithmChoice
from tuner.select import value_of_information
from tuner.select.coverage import GUARDED_EXTRAPOLATION, MAX_EXTRAPOLATION, Coverage
from tuner.select.dataset import (
    CallKind,
    CallPoint,
    DefaultRuns,
    Observation,
    SimulateFunction,
    is_simulated_with_default,
    unknown_default,
)
from tuner.select.posterior import Posterior, PosteriorModel, standard_deviation
from tuner.select.recommendation import Recommender


class Selector:
    """A selector of the fastest choice for any call; `train` makes it.

    adaptive                whether an experiment design chose what was measured
    uses_unmeasured_costs   whether the simulations of a call rest on costs that were not measured,
                            so that no choice is chosen because of them alone
    default_runs            the algorithm that the default runs
    """

    def __init__(
        self,
        observations: Sequence[Observation],
        simulate: SimulateFunction,
        adaptive: bool,
        uses_unmeasured_costs: Callable[[CallPoint], bool] = lambda _: False,
        default_runs: DefaultRuns = unknown_default,
    ) -> None:
        self.coverage = Coverage(row for row in observations if not row.machine)
        self._coverage_anywhere = Coverage(observations)
        self._measured = {(row.point.kind, row.choice) for row in observations if not row.machine}
        self._uses_unmeasured_costs = uses_unmeasured_costs
        self._simulate, self._default_runs = simulate, default_runs
        self._adaptive = adaptive
        self._observations: dict[CallKind, list[Observation]] = defaultdict(list)
        for row in observations:
            self._observations[row.point.kind].append(row)
        self._models = {
            kind: PosteriorModel(own, simulate, default_runs)
            for kind, own in self._observations.items()
        }
        self._coverage_of: dict[tuple[CallKind, int, int, AlgorithmChoice], Coverage] = {}
        self._recommenders: dict[CallKind, Recommender] = {}

    def covers(
        self,
        point: CallPoint,
        choice: AlgorithmChoice,
        max_extrapolation: float = MAX_EXTRAPOLATION,
    ) -> bool:
        """Return whether the prediction for a choice at `point` is supported by measurements.

        It is if the choice was measured near `point`. Otherwise the choice must have been measured
        elsewhere, so that the error of its simulation is known, and must not be missing at `point`
        because its result was wrong; and either anything was measured near `point` and the choice
        is simulated there, or both it and the default are simulated. Simulations that rest on
        unmeasured costs do not count.
        """
        if self.coverage.covers(point, choice, max_extrapolation):
            return True
        if (point.kind, choice) not in self._measured:
            return False
        if self.coverage.is_measured_shape(point) and not self._adaptive:
            return False
        if self.coverage.is_in_domain(point, max_extrapolation):
            return self._simulation_transfers(point, choice)
        known_here = is_simulated_with_default(self._simulate, point, choice)
        return known_here and not self._uses_unmeasured_costs(point)

    def candidates(
        self,
        point: CallPoint,
        allowed: Collection[AlgorithmChoice] | None = None,
        max_extrapolation: float = MAX_EXTRAPOLATION,
    ) -> tuple[AlgorithmChoice, ...]:
        """Return the covered choices; `allowed` restricts all but the default."""
        known = self._models.get(point.kind)
        return tuple(
            choice
            for choice in (known.choices if known else ())
            if (choice.is_default or allowed is None or choice in allowed)
            and self.covers(point, choice, max_extrapolation)
        )

    def guarded_candidates(
        self, point: CallPoint, allowed: Collection[AlgorithmChoice] | None = None
    ) -> tuple[AlgorithmChoice, ...]:
        """Return the candidates that a rule may use at a call that the posterior decides.

        The default is always one if any other is and it was measured anywhere. Beyond all measured
        sizes and counts these are covered up to `GUARDED_EXTRAPOLATION`, if more than one count was
        measured: from one alone nothing tells how times change with it.
        """
        reach = GUARDED_EXTRAPOLATION if self.coverage.shows_trend(point) else 1.0
        covered = self.candidates(point, allowed, max_extrapolation=reach)
        known = bool(covered) and (point.kind, AlgorithmChoice()) in self._measured
        return tuple(dict.fromkeys([*(AlgorithmChoice(),) * known, *covered]))

    def _simulation_transfers(self, point: CallPoint, choice: AlgorithmChoice) -> bool:
        return not self._uses_unmeasured_costs(point) and not math.isnan(
            self.simulated_seconds(point, choice)
        )

    def simulated_seconds(self, point: CallPoint, choice: AlgorithmChoice) -> float:
        """Return the simulated seconds; NaN without a schedule."""
        return self._simulate(point, choice)

    def prior_seconds(self, point: CallPoint, choice: AlgorithmChoice) -> float:
        """Return the prior seconds of a choice, before any learned correction."""
        return self._models[point.kind].prior_seconds(point, choice)

    def posterior_model(self, kind: CallKind) -> PosteriorModel:
        if kind not in self._models:
            self._models[kind] = PosteriorModel([], self._simulate, self._default_runs)
        return self._models[kind]

    def posterior(self, point: CallPoint, choices: Sequence[AlgorithmChoice]) -> Posterior:
        """Return the posterior of the choices' times; raise InputError for an unknown choice."""
        known = self._models.get(point.kind)
        for choice in choices:
            if known is None or choice not in known.choices:
                raise InputError(f"{choice} was never measured for {point.collective}")
        return self._models[point.kind].posterior(point, choices)

    def predict_seconds(
        self, point: CallPoint, choice: AlgorithmChoice
    ) -> tuple[float, float, float]:
        """Return expected time and its 95 % interval; raise InputError for an unknown choice."""
        found = self.posterior(point, [choice])
        centre = float(found.mean[0])
        spread = NORMAL_95 * standard_deviation(found.covariance[0, 0])
        return math.exp(centre), math.exp(centre - spread), math.exp(centre + spread)

    def choose(
        self, point: CallPoint, allowed: Collection[AlgorithmChoice] | None = None
    ) -> AlgorithmChoice:
        """Return the choice that is expected to be the fastest among the covered ones.

        It is the default where nothing is covered. On a machine without measurements of such calls,
        what other machines have measured is covered.
        """
        candidates = self.candidates(point, allowed)
        if not any(not row.machine for row in self._observations[point.kind]):
            candidates = tuple(
                choice
                for choice in self.posterior_model(point.kind).choices
                if (choice.is_default or allowed is None or choice in allowed)
                and self._coverage_anywhere.covers(point, choice)
            )
        return (
            self._recommender(point).choose(point, candidates) if candidates else AlgorithmChoice()
        )

    def _recommender(self, point: CallPoint) -> Recommender:
        kind = point.kind
        if kind not in self._recommenders:
            self._recommenders[kind] = Recommender(
                self._models[kind], self._observations[kind], self._coverage_anywhere
            )
        return self._recommenders[kind]

    def choose_guarded(
        self, point: CallPoint, allowed: Collection[AlgorithmChoice] | None = None
    ) -> AlgorithmChoice:
        """Choose as `choose` among `guarded_winners`, or else the default."""
        candidates = self.guarded_candidates(point, allowed)
        ahead = self.guarded_winners(point, candidates)
        return self.choose(point, ahead) if ahead else AlgorithmChoice()

    def guarded_winners(
        self, point: CallPoint, choices: Sequence[AlgorithmChoice]
    ) -> frozenset[AlgorithmChoice]:
        """Return the choices that may replace the default, which has to be among `choices`.

        See `tuner.select.value_of_information.guarded_winners`.
        """
        if AlgorithmChoice() not in choices:
            return frozenset()
        count = value_of_information.count_candidates(self.coverage.measured_choices(point))
        return value_of_information.guarded_winners(self.posterior(point, choices), count)

    def is_measured_nearby(self, point: CallPoint, choice: AlgorithmChoice) -> bool:
        """Return whether a choice was measured near `point`, or on its shape at a size near it."""
        reach = GUARDED_EXTRAPOLATION
        if self.coverage.covers(point, choice, max_extrapolation=reach):
            return True
        own = point.kind, point.nodes, point.ppn, choice
        if own not in self._coverage_of:
            self._coverage_of[own] = Coverage(
                row
                for row in self._observations[point.kind]
                if (row.point.kind, row.point.nodes, row.point.ppn, row.choice) == own
                and not row.machine
            )
        return self._coverage_of[own].covers(point, choice, max_extrapolation=reach)


def train(
    observations: Sequence[Observation],
    simulate: SimulateFunction,
    adaptive: bool = False,
    uses_unmeasured_costs: Callable[[CallPoint], bool] = lambda _: False,
    default_runs: DefaultRuns = unknown_default,
) -> Selector:
    """Train a selector on observations; raise InputError if there are none.

    adaptive                whether an experiment design chose what was measured; otherwise a choice
                            that is missing at a point gave a wrong result there
    uses_unmeasured_costs   whether the simulations of a call rest on costs that were not measured
    """
    if not observations:
        raise InputError("expected measured collectives to learn from: run the probe")
    return Selector(observations, simulate, adaptive, uses_unmeasured_costs, default_runs)
