"""How much measuring one point tells about the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from tuner.select.dataset import Point
from tuner.select.regressor import ArmKernel

Array = NDArray[np.float64]

_KNOWN = 1e-4  # variance that is left where a point was measured, of a prior one of 1
_LEVEL = 0.05  # prior variance beside it that is the same everywhere in a group


class Influence:
    """The covariance of what is not known of one arm, over points, given those measured.

    It is that of the regressor's kernel, for an arm as such: which arms were measured is left out.
    """

    def __init__(self, points: Sequence[Point], measured: Iterable[int]) -> None:
        groups = {kind: n for n, kind in enumerate({(p.collective, p.memory): 0 for p in points})}
        places = np.array([
            (groups[p.collective, p.memory], math.log(max(p.nbytes, 1)), math.log(p.nodes),
             math.log(p.ppn)) for p in points
        ])  # fmt: skip
        same = places[:, :1] == places[:, 0]
        self._covariance = ArmKernel(shared=0.0)(places) + _LEVEL * same
        for number in measured:
            self.add(number)

    def add(self, number: int) -> None:
        """Take the point of this number as measured."""
        column = self._covariance[:, number]
        pivot = column[number] + _KNOWN
        self._covariance = self._covariance - np.outer(column, column) / pivot

    def copy(self) -> Influence:
        """Another one, which `add` changes alone."""
        return copy(self)

    def correlation(self) -> Array:
        """Of what is not known of the points, (n, n)."""
        deviations = np.sqrt(np.maximum(np.diag(self._covariance), 1e-12))
        return np.asarray(self._covariance / np.outer(deviations, deviations))

    def shares(self) -> Array:
        """Which fraction of what is not known of every point (column) measuring another (row)
        would tell, (n, n); all of itself.
        """
        shares = np.square(self.correlation())
        unknown = np.diag(self._covariance) > 2 * _KNOWN
        shares *= unknown[:, None]
        np.fill_diagonal(shares, 1.0)
        return shares
