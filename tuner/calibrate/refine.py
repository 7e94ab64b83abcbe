"""Fit parameters to measured collectives that messages between two ranks do not show.

Each parameter gets a factor. The factors minimise the errors of predicted collectives and their own
distance from 1, in units of the uncertainty that the ping-pongs leave: a regularised least squares
fit with the measured value as prior (ridge regression on logarithms). Cross-validation on
held-out collectives decides whether the result is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from tuner.base.arrays import FloatArray
from tuner.base.errors import InputError
from tuner.base.progress import ProgressCallback, no_progress
from tuner.base.statistics import NORMAL_95
from tuner.calibrate.accuracy import (
    CollectivePrediction,
    PredictionErrors,
    Ranking,
    errors_by_algorithm,
    summarise_errors,
    summarise_ranking,
)
from tuner.calibrate.measured_collectives import (
    MeasuredCollective,
    predict_all,
    simulatable_collectives,
    subsample,
)
from tuner.core.calibration import Calibration, Estimate, PathCost
from tuner.core.measurement import Measurements
from tuner.topology import Topology
from tuner.topology.readers import topology_for

N_FOLDS = 3
MAX_COLLECTIVES = 120  # maximum number of collectives that parameters are fitted to
CONTENTION_PRIOR_SD = 0.10  # relative, by which concurrent messages may cost more than single ones
PREDICTION_SD = 0.05  # relative, of a prediction with correct parameters
MAX_EVALUATIONS = 5  # of Gauss-Newton
FINITE_DIFFERENCE_STEP = 0.02  # of a log factor
MAX_ERROR_RATIO = 0.8  # another port discipline is used only below this multiple of the error
# Of regret and rank correlation: two equally fast algorithms may swap ranks.
RANKING_TOLERANCE = 0.005

EstimateTransform = Callable[[str, Estimate], Estimate]  # takes the parameter's name


@dataclass(frozen=True)
class PredictionQuality:
    """The quality of predictions of collectives that no parameter was fitted to."""

    errors: PredictionErrors
    ranking: Ranking


@dataclass(frozen=True)
class Refinement:
    """The calibration to use, refined or unchanged.

    before, after       quality on the same collectives, with the calibration unchanged, and refined
                        without them
    factors             parameter -> the factor that it was multiplied by
    accepted            whether the refinement is used
    reason              why the refinement is or is not used
    """

    calibration: Calibration
    before: PredictionQuality
    after: PredictionQuality
    factors: dict[str, float]
    accepted: bool
    reason: str


def refine(
    calibration: Calibration,
    measurements: Measurements,
    topology: Topology | None = None,
    n_folds: int = N_FOLDS,
    on_progress: ProgressCallback = no_progress,
) -> Refinement:
    """Fit factors to the measured collectives, and use them if they predict better.

    They are used if they predict collectives better that they were not fitted to, and rank
    algorithms no worse.

    topology        of the measurements; None: one computer
    n_folds         folds of the cross-validation
    on_progress     called before every fit

    Raises InputError when fewer than two points for each fold can be simulated.
    """
    where = topology_for(measurements.cluster, calibration, topology)
    priced = [
        call
        for call in simulatable_collectives(measurements, where)
        if call.has_known_costs(calibration)
    ]
    own = subsample(priced, MAX_COLLECTIVES)
    _require_points(len({call.point for call in own}), 2 * n_folds)
    before = predict_all(own, calibration)
    after = _cross_validated(own, calibration, n_folds, on_progress)
    on_progress(n_folds, n_folds + 1)
    found, factors = _ParameterFactors(_with_best_port_discipline(calibration, own)).fit(own)
    old, new = (
        PredictionQuality(summarise_errors(cases), summarise_ranking(cases))
        for cases in (before, after)
    )
    accepted, reason = _decide_acceptance(old, new)
    record = {
        "before": asdict(old),
        "after": asdict(new),
        "factors": factors,
        "accepted": accepted,
        "reason": reason,
        "algorithms": _algorithm_records(after if accepted else before),
    }
    used = found if accepted else calibration
    used = replace(used, provenance={**used.provenance, "refined": record})
    return Refinement(used, old, new, factors, accepted, reason)


def _require_points(found: int, needed: int) -> None:
    if found < needed:
        raise InputError(
            f"{found} sizes and shapes of collectives were measured whose algorithms can be"
            f" simulated: a refinement needs {needed} or more; probe more of them"
        )


def _cross_validated(
    calls: Sequence[MeasuredCollective],
    calibration: Calibration,
    n_folds: int,
    on_progress: ProgressCallback,
) -> list[CollectivePrediction]:
    """Return predictions of all calls, each by factors fitted to the other folds."""
    points = dict.fromkeys(call.point for call in calls)
    fold = {point: number % n_folds for number, point in enumerate(points)}
    found: list[CollectivePrediction] = []
    for number in range(n_folds):
        on_progress(number, n_folds + 1)
        used = [call for call in calls if fold[call.point] != number]
        kept = [call for call in calls if fold[call.point] == number]
        fitted = _ParameterFactors(_with_best_port_discipline(calibration, used)).fit(used)[0]
        found += predict_all(kept, fitted)
    return found


def _algorithm_records(predictions: Sequence[CollectivePrediction]) -> list[dict[str, Any]]:
    """Return the errors of each algorithm and band of sizes (bytes) as records."""
    return [
        {"collective": str(collective), "algorithm": name, "from": low, "to": high, **asdict(own)}
        for (collective, name, low, high), own in errors_by_algorithm(predictions).items()
    ]


def _decide_acceptance(old: PredictionQuality, new: PredictionQuality) -> tuple[bool, str]:
    if new.errors.mean >= old.errors.mean:
        found = f"the mean error grows {_format_change(old.errors.mean, new.errors.mean)}"
    elif new.ranking.regret > old.ranking.regret + RANKING_TOLERANCE:
        worse = _format_change(old.ranking.regret, new.ranking.regret)
        found = f"the choice gets worse, its mean regret grows {worse}"
    elif new.ranking.tau < old.ranking.tau - RANKING_TOLERANCE:
        found = (
            f"the order gets worse, tau falls from {old.ranking.tau:.3f} to {new.ranking.tau:.3f}"
        )
    else:
        found = f"the mean error falls {_format_change(old.errors.mean, new.errors.mean)}"
        return True, f"on collectives that were kept out {found}"
    return False, f"on collectives that were kept out {found}"


def _format_change(old: float, new: float) -> str:
    return f"from {old:.1%} to {new:.1%}"


def _with_best_port_discipline(
    calibration: Calibration, collectives: Sequence[MeasuredCollective]
) -> Calibration:
    """Return the calibration with the port discipline that fits best, if none was measured.

    Collectives in which ranks send to several others show what trains to one rank do not.
    """
    if calibration.port_sharing_threshold < math.inf:
        return calibration
    limits = {cost.eager_limit for cost in calibration.paths.values()}
    options = [
        replace(calibration, port_sharing_threshold=begin) for begin in (0.0, *sorted(limits))
    ]
    off = [summarise_errors(predict_all(collectives, one)).mean for one in (calibration, *options)]
    best = int(np.argmin(off))
    return options[best - 1] if best and off[best] < MAX_ERROR_RATIO * off[0] else calibration


class _ParameterFactors:
    """The parameters of a calibration by name, to make the calibration with other values."""

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration
        self._prior: dict[str, float] = {}
        self._transform(lambda name, one: self._set_prior(name, one))

    def _set_prior(self, name: str, estimate: Estimate) -> Estimate:
        """Record the uncertainty that the ping-pongs leave of a parameter with a positive value."""
        if estimate.value > 0.0:
            width = math.log(
                max(estimate.high, estimate.value) / max(min(estimate.low, estimate.value), 1e-30)
            )
            self._prior[name] = math.hypot(min(width / 2 / NORMAL_95, 1.0), CONTENTION_PRIOR_SD)
        return estimate

    def _transform(self, transform: EstimateTransform) -> Calibration:
        """Return the calibration with `transform` applied to every parameter."""
        old = self._calibration
        return replace(
            old,
            paths={
                (path, memory): _transform_path(cost, f"{path} ({memory})", transform)
                for (path, memory), cost in old.paths.items()
            },
            reduction={
                name: replace(
                    cost,
                    launch=transform(f"reduction {name} launch", cost.launch),
                    gamma=transform(f"reduction {name} gamma", cost.gamma),
                )
                for name, cost in old.reduction.items()
            },
            capacities={
                name: transform(f"capacity {name}", one) for name, one in old.capacities.items()
            },
        )

    def _scaled_by(self, logs: FloatArray, names: Sequence[str]) -> Calibration:
        factor = dict(zip(names, np.exp(logs).tolist(), strict=True))
        return self._transform(lambda name, one: _scale(one, factor.get(name, 1.0)))

    def fit(
        self, collectives: Sequence[MeasuredCollective]
    ) -> tuple[Calibration, dict[str, float]]:
        """Return the calibration that predicts these calls best, and its factors.

        Parameters that no call depends on have no factor.
        """
        base = np.array([case.predicted_s for case in predict_all(collectives, self._calibration)])
        names = [name for name in self._prior if self._is_sensitive(name, collectives, base)]
        prior = np.array([self._prior[name] for name in names])

        def off(logs: FloatArray) -> FloatArray:
            cases = predict_all(collectives, self._scaled_by(logs, names))
            misses = np.log([case.predicted_s / case.measured_s for case in cases]) / PREDICTION_SD
            return np.concatenate([misses, logs / prior])

        def slopes(logs: FloatArray) -> FloatArray:
            here, nudges = off(logs), FINITE_DIFFERENCE_STEP * np.eye(len(logs))
            return np.stack(
                [(off(logs + nudge) - here) / FINITE_DIFFERENCE_STEP for nudge in nudges], axis=1
            )

        if not names:
            return self._calibration, {}
        start = np.zeros(len(names))
        found = least_squares(
            off, start, slopes, loss="huber", x_scale=prior, max_nfev=MAX_EVALUATIONS
        )
        factors = dict(zip(names, np.exp(found.x).tolist(), strict=True))
        return self._scaled_by(found.x, names), factors

    def _is_sensitive(
        self, name: str, collectives: Sequence[MeasuredCollective], base: FloatArray
    ) -> bool:
        cases = predict_all(collectives, self._scaled_by(np.array([CONTENTION_PRIOR_SD]), [name]))
        return bool(np.any(np.abs([case.predicted_s for case in cases] / base - 1) > 1e-4))


def _transform_path(cost: PathCost, path: str, transform: EstimateTransform) -> PathCost:
    segments = tuple(
        replace(
            s,
            alpha=transform(f"{path} alpha {k}", s.alpha),
            beta=transform(f"{path} beta {k}", s.beta),
        )
        for k, s in enumerate(cost.segments)
    )
    return replace(cost, segments=segments, overhead=transform(f"{path} overhead", cost.overhead))


def _scale(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(estimate.value * factor, estimate.low * factor, estimate.high * factor)
