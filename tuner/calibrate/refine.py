"""Parameters that messages between two ranks do not show, from measured collectives.

Each parameter gets a factor. The factors minimise the errors of predicted collectives and their own
distance from 1, in units of what the ping-pongs leave open: a regularised least squares fit with
the measured value as prior (ridge regression on logarithms). Collectives that were kept out decide
whether the result is used.
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
from tuner.base.progress import Counted, quietly
from tuner.base.statistics import NORMAL_95
from tuner.calibrate.accuracy import Case, Errors, Ranking, by_algorithm, errors, ranking
from tuner.calibrate.measured_collectives import Call, calls, predict, thinned
from tuner.core.calibration import Calibration, Estimate, PathCost
from tuner.core.measurement import Measurements
from tuner.topology import Topology
from tuner.topology.readers import described

FOLDS = 3
MOST_CALLS = 120  # that parameters are fitted to
UNDER_LOAD = 0.10  # relative, by how much messages of a crowd may cost more than lone ones
PRECISION = 0.05  # relative, of a prediction that nothing is wrong with
MOST_ROUNDS, NUDGE = 5, 0.02  # of Gauss-Newton; log factor of a finite difference
CLEARLY = 0.8  # a port discipline is another only if it lowers the error to this or less
TOLERANCE = 0.005  # of regret and rank correlation: two algorithms equally fast may change places

Change = Callable[[str, Estimate], Estimate]  # of a parameter, by name


@dataclass(frozen=True)
class Quality:
    """Of predictions of collectives that no parameter was fitted to."""

    errors: Errors
    ranking: Ranking


@dataclass(frozen=True)
class Refined:
    """The calibration to use, refined or as it was.

    before, after       of the same collectives, with the calibration as it was, and refined without
                        them
    factors             parameter -> what it was multiplied with
    reason              why the refinement is or is not used
    """

    calibration: Calibration
    before: Quality
    after: Quality
    factors: dict[str, float]
    accepted: bool
    reason: str


def refine(
    calibration: Calibration,
    measurements: Measurements,
    topology: Topology | None = None,
    folds: int = FOLDS,
    on_progress: Counted = quietly,
) -> Refined:
    """Fit factors to the measured collectives, and use them if they predict those better that they
    were not fitted to, and rank them no worse.

    topology        of the measurements; None: one computer
    on_progress     hears of every fit

    Raises InputError when fewer than two points for each fold can be simulated.
    """
    where = described(measurements.cluster, calibration, topology)
    priced = [call for call in calls(measurements, where) if call.priced(calibration)]
    own = thinned(priced, MOST_CALLS)
    points = list(dict.fromkeys(call.point for call in own))
    if len(points) < 2 * folds:
        raise InputError(
            f"{len(points)} sizes and shapes of collectives were measured whose algorithms can be"
            f" simulated: a refinement needs {2 * folds} or more; probe more of them"
        )
    fold = {point: number % folds for number, point in enumerate(points)}
    before = predict(own, calibration)
    after: list[Case] = []
    for number in range(folds):
        on_progress(number, folds + 1)
        mine = [call for call in own if fold[call.point] != number]
        kept = [call for call in own if fold[call.point] == number]
        after += predict(kept, _Factors(_disciplined(calibration, mine)).fitted(mine)[0])
    on_progress(folds, folds + 1)
    found, factors = _Factors(_disciplined(calibration, own)).fitted(own)
    old, new = (Quality(errors(cases), ranking(cases)) for cases in (before, after))
    accepted, reason = _judged(old, new)
    record = {
        "before": asdict(old),
        "after": asdict(new),
        "factors": factors,
        "accepted": accepted,
        "reason": reason,
        "algorithms": _listed(after if accepted else before),
    }
    used = _noted(found if accepted else calibration, record)
    return Refined(used, old, new, factors, accepted, reason)


def _listed(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Errors of each algorithm and band of sizes, bytes."""
    return [
        {"collective": str(collective), "algorithm": name, "from": low, "to": high, **asdict(own)}
        for (collective, name, low, high), own in by_algorithm(cases).items()
    ]


def _judged(old: Quality, new: Quality) -> tuple[bool, str]:
    if new.errors.mean >= old.errors.mean:
        found = f"the mean error grows {_percents(old.errors.mean, new.errors.mean)}"
    elif new.ranking.regret > old.ranking.regret + TOLERANCE:
        worse = _percents(old.ranking.regret, new.ranking.regret)
        found = f"the choice gets worse, its mean regret grows {worse}"
    elif new.ranking.tau < old.ranking.tau - TOLERANCE:
        found = (
            f"the order gets worse, tau falls from {old.ranking.tau:.3f} to {new.ranking.tau:.3f}"
        )
    else:
        found = f"the mean error falls {_percents(old.errors.mean, new.errors.mean)}"
        return True, f"on collectives that were kept out {found}"
    return False, f"on collectives that were kept out {found}"


def _percents(old: float, new: float) -> str:
    return f"from {old:.1%} to {new:.1%}"


def _noted(calibration: Calibration, record: dict[str, Any]) -> Calibration:
    return replace(calibration, provenance={**calibration.provenance, "refined": record})


def _disciplined(calibration: Calibration, own: Sequence[Call]) -> Calibration:
    """With that port discipline which fits best, where no burst has shown which it is.

    Ranks that send to several at once show what a burst to one does not.
    """
    if calibration.shared_from < math.inf:
        return calibration
    limits = {cost.eager_limit for cost in calibration.paths.values()}
    options = [replace(calibration, shared_from=begin) for begin in (0.0, *sorted(limits))]
    off = [errors(predict(own, one)).mean for one in (calibration, *options)]
    best = int(np.argmin(off))
    return options[best - 1] if best and off[best] < CLEARLY * off[0] else calibration


class _Factors:
    """The parameters of a calibration, by name, and the calibration with other values for them."""

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration
        self._prior: dict[str, float] = {}
        self._of(lambda name, one: self._known(name, one))

    def _known(self, name: str, one: Estimate) -> Estimate:
        """Notes what the ping-pongs leave open of a parameter; of one without value nothing."""
        if one.value > 0.0:
            width = math.log(max(one.high, one.value) / max(min(one.low, one.value), 1e-30))
            self._prior[name] = math.hypot(min(width / 2 / NORMAL_95, 1.0), UNDER_LOAD)
        return one

    def _of(self, change: Change) -> Calibration:
        """The calibration with every parameter put through `change`."""
        old = self._calibration
        return replace(
            old,
            paths={
                (path, memory): _changed(cost, f"{path} ({memory})", change)
                for (path, memory), cost in old.paths.items()
            },
            reduction={
                name: replace(
                    cost,
                    launch=change(f"reduction {name} launch", cost.launch),
                    gamma=change(f"reduction {name} gamma", cost.gamma),
                )
                for name, cost in old.reduction.items()
            },
            capacities={
                name: change(f"capacity {name}", one) for name, one in old.capacities.items()
            },
        )

    def _with(self, logs: FloatArray, names: Sequence[str]) -> Calibration:
        factor = dict(zip(names, np.exp(logs).tolist(), strict=True))
        return self._of(lambda name, one: _scaled(one, factor.get(name, 1.0)))

    def fitted(self, own: Sequence[Call]) -> tuple[Calibration, dict[str, float]]:
        """The calibration that predicts these calls best, and its factors; of parameters that no
        call depends on there is none."""
        base = np.array([case.predicted for case in predict(own, self._calibration)])
        names = [name for name in self._prior if self._matters(name, own, base)]
        prior = np.array([self._prior[name] for name in names])

        def off(logs: FloatArray) -> FloatArray:
            cases = predict(own, self._with(logs, names))
            misses = np.log([case.predicted / case.measured for case in cases]) / PRECISION
            return np.concatenate([misses, logs / prior])

        def slopes(logs: FloatArray) -> FloatArray:
            here, nudges = off(logs), NUDGE * np.eye(len(logs))
            return np.stack([(off(logs + nudge) - here) / NUDGE for nudge in nudges], axis=1)

        if not names:
            return self._calibration, {}
        start = np.zeros(len(names))
        found = least_squares(off, start, slopes, loss="huber", x_scale=prior, max_nfev=MOST_ROUNDS)
        factors = dict(zip(names, np.exp(found.x).tolist(), strict=True))
        return self._with(found.x, names), factors

    def _matters(self, name: str, own: Sequence[Call], base: FloatArray) -> bool:
        cases = predict(own, self._with(np.array([UNDER_LOAD]), [name]))
        return bool(np.any(np.abs([case.predicted for case in cases] / base - 1) > 1e-4))


def _changed(cost: PathCost, path: str, change: Change) -> PathCost:
    segments = tuple(
        replace(
            s, alpha=change(f"{path} alpha {k}", s.alpha), beta=change(f"{path} beta {k}", s.beta)
        )
        for k, s in enumerate(cost.segments)
    )
    return replace(cost, segments=segments, overhead=change(f"{path} overhead", cost.overhead))


def _scaled(one: Estimate, factor: float) -> Estimate:
    return Estimate(one.value * factor, one.low * factor, one.high * factor)
