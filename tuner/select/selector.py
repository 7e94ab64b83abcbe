"""The selector: believes how long every candidate takes at any call and chooses among those that
measurements, or simulations held against measurements elsewhere, speak for.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from tuner.base.errors import InputError
from tuner.base.statistics import NORMAL_95
from tuner.core.table import Choice
from tuner.select import value_of_information
from tuner.select.coverage import REACH, Support
from tuner.select.dataset import NOISE, Kind, Point, Row, Simulate, simulated_beside_default
from tuner.select.extrapolation import OTHER_SIZES, PLAIN, Choose, Way, best_way
from tuner.select.posterior import Belief, Beliefs, deviation, require_rows
from tuner.select.recommendation import Guess


class Selector:
    """Made by `train`.

    doubted whether the simulations of a call rest on costs that were not measured, so that no
            choice is taken for them alone
    way     how calls are guessed; None: at other sizes of a measured shape as `OTHER_SIZES` says,
            else found out by what guesses better at the measured ones
    """

    def __init__(
        self,
        rows: Sequence[Row],
        simulate: Simulate,
        designed: bool,
        way: Way | None = None,
        doubted: Callable[[Point], bool] = lambda _: False,
    ) -> None:
        self.support = Support(rows)
        self._doubted = doubted
        self._simulate = simulate
        self._designed = designed
        self._rows: dict[Kind, list[Row]] = defaultdict(list)
        for row in rows:
            self._rows[row.point.kind].append(row)
        self._beliefs = {kind: Beliefs(own, simulate) for kind, own in self._rows.items()}
        self._way = way
        self._guesses: dict[tuple[Kind, bool], Guess] = {}
        self._gains: dict[Point, Mapping[Choice, float]] = {}

    def covers(self, point: Point, choice: Choice, reach: float = REACH) -> bool:
        """Measurements next to `point` speak for this choice; or for any, while a simulation
        carries this one there, or where simulations carry both this one and the default. It was
        measured elsewhere, so that it is known how right that is; and it does not lack at `point`
        because it was wrong there.
        """
        if self.support.covers(point, choice, reach):
            return True
        known = self._beliefs.get(point.kind)
        if known is None or choice not in known.choices:
            return False
        if self.support.measured(point) and not self._designed:
            return False
        if self.support.within(point, reach):
            return self._carries(point, choice)
        known_here = simulated_beside_default(self._simulate, point, choice)
        return known_here and not self._doubted(point)

    def candidates(
        self, point: Point, allowed: Collection[Choice] | None = None, reach: float = REACH
    ) -> tuple[Choice, ...]:
        """The covered choices; `allowed` restricts others than the default."""
        known = self._beliefs.get(point.kind)
        return tuple(
            choice
            for choice in (known.choices if known else ())
            if (choice.is_default or allowed is None or choice in allowed)
            and self.covers(point, choice, reach)
        )

    def _carries(self, point: Point, choice: Choice) -> bool:
        return not self._doubted(point) and not math.isnan(self.simulated(point, choice))

    def simulated(self, point: Point, choice: Choice) -> float:
        """Seconds; NaN where no schedule says it."""
        return self._simulate(point, choice)

    def start(self, point: Point, choice: Choice) -> float:
        """Seconds that a belief starts from, before anything is learned of how far they are off."""
        return self._beliefs[point.kind].start(point, choice)

    def beliefs(self, kind: Kind) -> Beliefs:
        """Of calls of one kind."""
        if kind not in self._beliefs:
            self._beliefs[kind] = Beliefs([], self._simulate)
        return self._beliefs[kind]

    def belief(self, point: Point, choices: Sequence[Choice]) -> Belief:
        """What is believed of their times. Raises InputError for a choice that is unknown."""
        known = self._beliefs.get(point.kind)
        for choice in choices:
            if known is None or choice not in known.choices:
                raise InputError(f"{choice} was never measured for {point.collective}")
        return self._beliefs[point.kind].belief(point, choices)

    def seconds(self, point: Point, choice: Choice) -> tuple[float, float, float]:
        """Expected typical time and its 95 % interval. Raises InputError for an unknown choice."""
        found = self.belief(point, [choice])
        centre, spread = float(found.mean[0]), NORMAL_95 * deviation(found.covariance[0, 0])
        return math.exp(centre), math.exp(centre - spread), math.exp(centre + spread)

    def choose(self, point: Point, allowed: Collection[Choice] | None = None) -> Choice:
        """What is expected to be the fastest of the covered choices and the default.

        Where nothing is covered the library decides.
        """
        candidates = self.candidates(point, allowed)
        return self._guess(point).choose(point, candidates) if candidates else Choice()

    def _guess(self, point: Point) -> Guess:
        """For calls of its kind, on its own or on a measured shape."""
        kind = point.kind
        measured = self.support.measured(point)
        if (kind, measured) not in self._guesses:
            rows = self._rows[kind]
            way = self._way or (OTHER_SIZES if measured else best_way(rows, self._learn))
            beliefs = self._beliefs[kind] if way == PLAIN else Beliefs(rows, self._simulate, way)
            self._guesses[kind, measured] = Guess(beliefs, rows, self.support, way)
        return self._guesses[kind, measured]

    def _learn(self, rows: Sequence[Row], way: Way) -> Choose:
        return Selector(rows, self._simulate, self._designed, way, self._doubted).choose

    def choose_surely(
        self, point: Point, allowed: Collection[Choice] | None = None, noise: float = NOISE
    ) -> Choice:
        """As `choose`, of the choices that are surely faster; the default where there is none."""
        candidates = self.candidates(point, allowed, reach=1.0)
        ahead = self.sure(point, candidates, noise)
        return self.choose(point, ahead) if ahead else Choice()

    def sure(
        self, point: Point, choices: Sequence[Choice], noise: float = NOISE
    ) -> frozenset[Choice]:
        """Those that may replace the default: with 95 % believed to beat it, by more than noise.

        Elsewhere than on a measured shape by more than noise on each of the shapes around, too,
        unless its simulation carries it from shape to shape. The default changes its algorithm with
        the number of ranks, and mostly nobody tells where: what beats it on one side alone need not
        do so in between, however sure a smooth belief is.
        """
        if Choice() not in choices:
            return frozenset()
        ahead = value_of_information.sure(self.belief(point, choices), noise)
        return self.holding_around(point, ahead, noise)

    def holding_around(
        self, point: Point, choices: Collection[Choice], noise: float = NOISE
    ) -> frozenset[Choice]:
        """Those of which the shapes around say no other, as `sure` asks."""
        around = [near for near in self.support.around(point) if near != point]
        if not around or not choices:
            return frozenset(choices)
        gains = [self._gains_over_default(near) for near in around]
        return frozenset(
            choice
            for choice in choices
            if self._carries(point, choice)
            or (
                self.support.surrounds(point, choice)
                and all(own[choice] > math.log1p(noise) for own in gains)
            )
        )

    def _gains_over_default(self, point: Point) -> Mapping[Choice, float]:
        """Expected, as logarithms, of everything that was measured of the collective anywhere."""
        if point not in self._gains:
            known = self._beliefs[point.kind].choices
            found = self.belief(point, known)
            default = found.mean[known.index(Choice())]
            self._gains[point] = dict(zip(known, map(float, default - found.mean), strict=True))
        return self._gains[point]


def train(
    rows: Sequence[Row],
    simulate: Simulate,
    designed: bool = False,
    doubted: Callable[[Point], bool] = lambda _: False,
) -> Selector:
    """Learn from measured rows. Raises InputError without any.

    designed    a design chose what was measured: a choice that lacks at a point was not wrong there
    doubted     whether the simulations of a call rest on costs that were not measured
    """
    require_rows(rows)
    return Selector(rows, simulate, designed, doubted=doubted)
