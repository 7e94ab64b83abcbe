"""Colours and style that the plots have in common."""

from __future__ import annotations

import math
from typing import Any

from tuner.report.palette import DEFAULT_COLOUR, LIGHT

COLOURS = LIGHT  # of what is no algorithm
TEXT_COLOUR = DEFAULT_COLOUR
GRID_COLOUR = "#dddddd"
GAIN_COLOUR = LIGHT[2]
LOSS_COLOUR = LIGHT[4]
FIGURE_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": TEXT_COLOUR,
    "axes.grid": True,
    "grid.color": GRID_COLOUR,
    "grid.linewidth": 0.6,
    "svg.hashsalt": "tuner",
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
}


def powers_of_two(smallest: int, largest: int) -> list[int]:
    """Return at most eight powers of two between two sizes, evenly spaced."""
    first, last = math.ceil(math.log2(smallest)), math.floor(math.log2(largest))
    stride = max(1, math.ceil((last - first + 1) / 8))
    return [2**exponent for exponent in range(first, last + 1, stride)]
