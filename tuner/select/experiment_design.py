"""What to probe next: the points and choices that save most regret per second of probing.

The loop that measures drives it in rounds: `next` gives a batch, `learn` takes what was measured,
`bound` says how good a table of what is known would be.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv

from tuner.base.arrays import FloatArray
from tuner.base.errors import InputError
from tuner.core.table import Choice
from tuner.select.acquisition import Offers, Option, Task
from tuner.select.dataset import NOISE, Pair, Point, Row, Simulate, Wrong, is_wrong
from tuner.select.posterior import Belief, variance
from tuner.select.posterior_covariance import Influence
from tuner.select.selector import Selector
from tuner.select.value_of_information import Outlook

LEVEL = 0.95
REPETITIONS, PER_CALL = 12, 1e-3  # of each choice; seconds beside those of the call itself
_DRAWS, _FREEDOM = 256, 5.0
_OFTEN, _PRECISE = 3, 0.05  # unanswered questions; a choice that is not known to so much is open
_FIRST = (1, 2, 3, 5, 8, 13, 21)  # numbers of choices that are considered beside the default
_USUAL = 2e-4  # variance of the logarithm of a measured time
_LEAST = 1e-6  # regret that is not worth any measuring


@dataclass(frozen=True)
class Bound:
    """Of the mean regret over `points`: what is expected, and what it stays below with 95 %."""

    expected: float
    upper: float
    points: int


def price(seconds: float) -> float:
    """Of measuring one choice at one point, when one call takes so long."""
    return REPETITIONS * (seconds + PER_CALL)


class Design:
    """Chooses what to measure of a grid.

    candidates  the choices at every point that the table is for; the default is always one
    simulate    what is known of choices before and beside any measurement
    price       seconds of measuring one choice, from the seconds of one call
    noise       gains up to it are none
    doubted     whether the simulations of a call rest on costs that were not measured
    """

    def __init__(
        self,
        candidates: Mapping[Point, Sequence[Choice]],
        simulate: Simulate,
        price: Callable[[float], float] = price,
        noise: float = NOISE,
        seed: int = 1,
        doubted: Callable[[Point], bool] = lambda _: False,
    ) -> None:
        if not candidates:
            raise InputError("there is no point to probe: name collectives, shapes and sizes")
        self._candidates = dict[Point, tuple[Choice, ...]]()
        self._simulate, self._price, self._noise = simulate, price, noise
        self._rows, self._seed, self._doubted = dict[Pair, Row](), seed, doubted
        self._unanswered: Counter[Pair] = Counter()
        self._wrong: Wrong = frozenset()
        self.widen(candidates)

    def widen(self, candidates: Mapping[Point, Sequence[Choice]]) -> None:
        """More points, which count as much as the others."""
        added = {
            point: tuple(dict.fromkeys((Choice(), *choices)))
            for point, choices in candidates.items()
        }
        self._candidates = dict(sorted({**self._candidates, **added}.items()))
        self._draws = _draws(self._seed, max(map(len, self._candidates.values())))
        self.learn(self._rows.values(), self._wrong)

    def learn(self, rows: Iterable[Row], wrong: Wrong = frozenset()) -> None:
        """Everything measured so far, and what gave wrong results; it replaces what was known
        before.
        """
        known = tuple(rows)
        self._selector = Selector(known, self._simulate, designed=True, doubted=self._doubted)
        self._wrong = wrong
        self._open_to = {
            point: tuple(one for one in choices if not is_wrong((point, one), wrong))
            for point, choices in self._candidates.items()
        }
        before = {pair: len(row.samples) for pair, row in self._rows.items()}
        self._rows = {(row.point, row.choice): row for row in known}
        for pair, row in self._rows.items():
            if len(row.samples) > before.get(pair, 0):
                self._unanswered[pair] = 0
        self._forget()

    def choose(self, point: Point) -> Choice:
        """What a table would say there now."""
        return self._outlooks[point].decision.choice

    def bound(self) -> Bound:
        """Of the table that would be made now.

        The regrets of points go together as what is known of them does. Their mean is taken to be
        gamma distributed: it is positive, and its tail is long.
        """
        expected = np.array([own.decision.regret for own in self._outlooks.values()])
        spread = np.array([own.decision.spread for own in self._outlooks.values()])
        mean = float(expected.mean())
        variance = self._influence.spread(spread / len(spread))
        if mean <= 0 or variance <= 0:
            return Bound(max(mean, 0.0), max(mean, 0.0), len(expected))
        upper = float(gammaincinv(mean**2 / variance, LEVEL) * variance / mean)
        return Bound(mean, max(upper, mean), len(expected))

    def next(self, seconds: float, most: float = np.inf) -> tuple[Task, ...]:
        """Return the next batch, of at most so many seconds, or of one task that alone takes
        longer, but no more than `most` seconds.

        Empty when everything is measured that is worth it and fits.
        """
        offers = self._offers()
        batch: list[Task] = []
        while (option := offers.best(seconds if batch else max(seconds, most))) is not None:
            batch.append(option.task)
            self._unanswered.update((option.task.point, choice) for choice in option.task.choices)
            seconds -= option.task.seconds
            offers.take(option)
        return tuple(batch)

    def _forget(self) -> None:
        points = list(self._candidates)
        known = defaultdict[Point, set[Choice]](set)
        for point, choice in self._rows:
            known[point].add(choice)
        self._influence = Influence(points, [n for n, p in enumerate(points) if p in known])
        self._outlooks = {
            point: Outlook(
                self._belief(point),
                self._noise,
                self._draws,
                self._spoken(point),
                frozenset(known[point]),
            )
            for point in points
        }

    def _spoken(self, point: Point) -> frozenset[Choice]:
        """What a table may take at a call that was not measured, once that is surely faster
        (`tuner.select.significance.expect`).
        """
        covered = self._selector.candidates(point, reach=1.0)
        if Choice() not in covered:
            return frozenset()
        return self._selector.holding_around(point, covered, self._noise)

    def _belief(self, point: Point) -> Belief:
        known = self._selector.beliefs(point.kind)
        return known.belief(point, self._open_to[point])

    def _offers(self) -> Offers:
        regrets = np.array([own.decision.regret for own in self._outlooks.values()])
        options = [
            option for n, point in enumerate(self._candidates) for option in self._options(n, point)
        ]
        return Offers(options, regrets / len(regrets), self._influence.copy())

    def _options(self, number: int, point: Point) -> list[Option]:
        """Ways of measuring a point: the default with ever more of the likeliest winners."""
        outlook = self._outlooks[point]
        belief, regret = outlook.belief, outlook.decision.regret
        if regret < _LEAST:
            return []
        order = [
            n
            for n in np.argsort(-outlook.chances, kind="stable")
            if self._open(point, belief.choices[n])
        ]
        default = belief.choices.index(Choice())
        options = []
        for count in sorted({min(first, len(order)) for first in _FIRST} - {0}):
            chosen = [default, *map(int, order[:count])]
            known = [self._variance(point, belief.choices[n]) for n in chosen]
            saved = outlook.saved(chosen, known)
            cost = sum(self._price(float(np.exp(belief.mean[n]))) for n in chosen)
            task = Task(point, tuple(belief.choices[n] for n in chosen), cost)
            options.append(Option(number, task, min(max(saved / regret, 0.0), 1.0)))
        return options

    def _variance(self, point: Point, choice: Choice) -> float:
        """What a further measurement would be uncertain by: as much as the last one."""
        row = self._rows.get((point, choice))
        return _USUAL if row is None else max(variance(row) * max(len(row.samples), 1), _USUAL)

    def _open(self, point: Point, choice: Choice) -> bool:
        """Whether measuring it there tells anything: it was not measured, or not well, and asking
        for it does not go unanswered.
        """
        if choice.is_default or self._unanswered[point, choice] >= _OFTEN:
            return False
        row = self._rows.get((point, choice))
        return row is None or row.high > row.low * (1 + 2 * _PRECISE)


def _draws(seed: int, columns: int) -> FloatArray:
    """Of Student's distribution, every row with one scale: how far beliefs err is believed, too."""
    random = np.random.default_rng(seed)
    scale = np.sqrt(_FREEDOM / random.chisquare(_FREEDOM, (_DRAWS, 1)))
    return np.asarray(random.standard_normal((_DRAWS, columns)) * scale)
