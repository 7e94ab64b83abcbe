"""Structured costs: what the schedule of an algorithm says of its times, with fitted costs.

The time of a call is a sum over `TERMS`, each a quantity that algorithm, ranks and size determine
times a cost: t = sum_k exp(theta_mk + delta_ak) f_k. The costs theta belong to a machine m, and the
deviations delta to an algorithm a; both have normal priors, theta around `ROUGH_COSTS`, which are
those of networks of today. A part of the variance of theta is common to all machines. So a few
measurements of any algorithm tell of all of them, an algorithm without any is believed to be what
its family is elsewhere on the machine, and a machine without any to be like the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.optimize import minimize

from tuner.base.arrays import FloatArray
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.select.blas import single_threaded_blas
from tuner.select.dataset import CallPoint, Observation

# A call, its rounds, the messages of one rank, the bytes through its port, and those that it copies
# or reduces. Costs in seconds.
TERMS = ("call", "rounds", "messages", "port bytes", "local bytes")
ROUGH_COSTS = np.array([1e-6, 2e-6, 3e-7, 1e-10, 1e-10])
COST_CORRELATION = 0.5  # of the logarithms of the costs of two machines
COST_SD = 1.0  # prior standard deviation of the logarithms of a machine's costs
_COMMON_SD = COST_SD * math.sqrt(COST_CORRELATION)  # of what all machines have in common
_OWN_SD = COST_SD * math.sqrt(1 - COST_CORRELATION)  # of what they have not
_FAMILY_SD = 0.5  # of an algorithm's deviations from these
_UNKNOWN_SD = 1.5  # of an algorithm without a family
_ERROR_SCALE = 0.25  # of the logarithm of a time, under Cauchy's loss
_CAUCHY = 9.0  # squared errors, in scales, from which on observations lose weight
_TOLERANCE = 1e-5  # relative decrease of the loss at which the search ends
_MAX_LOG = 30.0  # of a cost over the rough one, so that no step of the search overflows

# Families by words in the names of algorithms, the first that has one. Whole vectors are cut in
# halves again and again and put together in `halving`; they go round in `ring`.
_FAMILIES = {
    "halving": (
        *("scatter_allgather", "scatter_recursive_doubling_allgather", "scatter_ring_allgather"),
        *("rabenseifner", "bdw", "b_cont", "gather_scatter"),
    ),
    "ring": ("ring", "neighbor", "chain", "pipeline"),
    "logarithmic": (
        *("tree", "binomial", "binary", "knomial", "knary", "bine", "bruck", "swing", "sparbit"),
        *("recursive", "recdoub", "halving", "doubling", "dissemination", "hypercube"),
        *("nonoverlapping", "reduce_bcast"),
    ),
    "linear": ("linear", "flat", "pairwise", "spread"),
}


@dataclass(frozen=True)
class LinearisedCost:
    """The prior of the log-seconds of a call, linear in the logarithms of the costs.

    seconds         the time at the most probable costs
    log_seconds     the mean of its logarithm where all costs are those of the prior
    shares          of the terms in the time, (5,): its derivatives by the logarithms of the costs
    deviation_sd    prior standard deviation of the algorithm's own costs, in `COST_SD`
    """

    seconds: float
    log_seconds: float
    shares: FloatArray
    deviation_sd: float


AlgorithmKey = tuple[AlgorithmChoice, str]  # of the default with its machine, else with ""


def algorithm_key(choice: AlgorithmChoice, machine: str) -> AlgorithmKey:
    """Return what identifies an algorithm: what the default runs differs between machines."""
    return choice, machine if choice.is_default else ""


@cache
def family(name: str) -> str | None:
    """Return the family of an algorithm, or None for a name that tells none."""
    return next(
        (known for known, words in _FAMILIES.items() if any(word in name for word in words)), None
    )


def quantities(point: CallPoint, name: str) -> FloatArray:
    """Return the quantities of `TERMS`, (5,), that an algorithm needs for a call.

    Without a family they are those of a tree that goes up and down.
    """
    p, m = point.p, float(point.nbytes)
    divided, exchanging, twice = _traits(point.collective)
    levels, others, shares = max(math.ceil(math.log2(p)), 1), max(p - 1, 1), m * (p - 1) / p
    match family(name):
        case "halving":
            gathering = others if "ring" in name.split("_") else levels
            rounds, messages, port = levels + gathering, levels + gathering, 2 * shares
        case "ring":
            rounds, messages, port = twice * others, twice * others, twice * shares
        case "linear":
            rounds, messages, port = 1, others, shares if divided else others * m
        case "logarithmic":
            rounds, messages = levels, levels
            port = levels * m / 2 if exchanging else shares if divided else levels * m
        case _:
            rounds, messages, port = 2 * levels, 2 * levels, 2 * m
    return np.array([1.0, rounds, messages, port, m])


@cache
def _traits(collective: str) -> tuple[bool, bool, int]:
    """Return whether ranks have blocks, whether each has one for each, and how often data go round.

    Collectives that only imported files know have no blocks.
    """
    known = Collective.spelled(collective)
    if known is None:
        return False, False, 1
    to_all = known.is_reduction and not known.is_rooted and not known.has_blocks
    return known.has_blocks, known.gives_in_scratch, 1 + to_all


class StructuredCost:
    """The most probable costs of one kind of call, given observations of it."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        known = (
            key
            for row in observations
            for key in (row.machine, algorithm_key(row.choice, row.machine))
        )
        # What all machines have in common is in row 0, then the deviations of each.
        self._rows = {key: n for n, key in enumerate(dict.fromkeys(known), start=1)}
        self._logs = np.zeros((1 + len(self._rows), len(TERMS)))
        if observations:
            self._fit(observations)

    def linearised(
        self, point: CallPoint, choice: AlgorithmChoice, machine: str = ""
    ) -> LinearisedCost:
        """Return the prior of a call's time, linearised at the most probable costs."""
        keys = machine, algorithm_key(choice, machine)
        rows = [0, *(self._rows[key] for key in keys if key in self._rows)]
        logs = self._logs[rows].sum(axis=0)
        times = ROUGH_COSTS * np.exp(logs) * quantities(point, choice.algorithm)
        shares = times / times.sum()
        return LinearisedCost(
            float(times.sum()),
            math.log(times.sum()) - float(shares @ logs),
            shares,
            _deviation_sd(choice) / COST_SD,
        )

    @single_threaded_blas()
    def _fit(self, observations: Sequence[Observation]) -> None:
        """Find the costs of the highest posterior density."""
        known = np.array([quantities(row.point, row.choice.algorithm) for row in observations])
        target = np.log([row.seconds for row in observations])
        where = np.array([self._rows[row.machine] for row in observations])
        own = np.array([self._rows[algorithm_key(row.choice, row.machine)] for row in observations])
        sds = np.array([_COMMON_SD, *map(_prior_sd, self._rows)])[:, None]

        def loss(flat: FloatArray) -> tuple[float, FloatArray]:
            """Return the negative logarithm of the density, and its gradient."""
            logs = flat.reshape(self._logs.shape)
            sums = np.minimum(logs[0] + logs[where] + logs[own], _MAX_LOG)
            times = ROUGH_COSTS * np.exp(sums) * known
            errors = (target - np.log(times.sum(axis=1))) / _ERROR_SCALE
            prior = logs / sds
            pull = errors / (1 + np.square(errors) / _CAUCHY) / _ERROR_SCALE
            slopes = pull[:, None] * times / times.sum(axis=1, keepdims=True)
            gradient = prior / sds
            gradient[0] -= slopes.sum(axis=0)
            np.subtract.at(gradient, where, slopes)
            np.subtract.at(gradient, own, slopes)
            robust = _CAUCHY * np.log1p(np.square(errors) / _CAUCHY).sum()
            return float(robust + np.square(prior).sum()) / 2, gradient.ravel()

        found = minimize(loss, self._logs.ravel(), jac=True, method="L-BFGS-B", tol=_TOLERANCE)
        self._logs = found.x.reshape(self._logs.shape)


def _prior_sd(key: str | AlgorithmKey) -> float:
    """Return the prior standard deviation of the deviations of a machine or an algorithm."""
    if isinstance(key, str):
        return _OWN_SD
    return _deviation_sd(key[0])


def _deviation_sd(choice: AlgorithmChoice) -> float:
    return _UNKNOWN_SD if family(choice.algorithm) is None else _FAMILY_SD
