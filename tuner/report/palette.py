"""The colour of an algorithm: the same for every collective, in every picture and in the studio.

Paul Tol's "muted" scheme, distinguishable with every common kind of colour blindness
(personal.sron.nl/~pault, 2021), in a darker and a lighter form, so that each has a contrast of 3 to
1 with the background. `tuner/studio/pages/palette.js` has the same colours and gives them out
alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache

from tuner.algorithms import REQUIREMENTS, algorithm_names
from tuner.core.collective import Collective
from tuner.core.table import DEFAULT

LIGHT = (
    "#332288",
    "#cc6677",
    "#117733",
    "#3a8fb5",
    "#882255",
    "#7f7f1d",
    "#2b8c7d",
    "#aa4499",
    "#a86f14",
)
DARK = (
    "#a99cf5",
    "#e58a99",
    "#52c47a",
    "#88ccee",
    "#e07aa8",
    "#c9c95c",
    "#44c7b4",
    "#dd8ccf",
    "#ddcc77",
)
DEFAULT_COLOUR = "#222222"
MARKERS = "osD^vPX<>"
DASHES = 8  # styles of curves, which differ where colours repeat
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo")  # of areas, likewise
FillStyle = tuple[str, str]  # colour, hatch


@cache
def place_of(name: str) -> int:
    """Return the place of an algorithm, by which it gets its colour.

    Names that only a library has get one that their letters decide.
    """
    known = _known_names()
    return known[name] if name in known else sum(map(ord, name))


def colour_of(name: str) -> str:
    """Return the colour of an algorithm on white; the default is black."""
    return DEFAULT_COLOUR if name == DEFAULT else LIGHT[place_of(name) % len(LIGHT)]


def marker_of(name: str) -> str:
    """Return the marker of an algorithm's curve, which differs where colours repeat."""
    place = place_of(name)
    return MARKERS[(place + place // len(LIGHT)) % len(MARKERS)]


def dash_number(name: str) -> int:
    """Return the number of the style that the curve of an algorithm has."""
    return place_of(name) // len(LIGHT) % DASHES


def fill_styles(algorithms: Mapping[str, str]) -> dict[str, FillStyle]:
    """Return colour and hatch by label, from the algorithm by label.

    Labels whose colours are equal get hatches in their order, the first none.
    """
    used = Counter[str]()
    styles: dict[str, FillStyle] = {}
    for label, algorithm in algorithms.items():
        colour = colour_of(algorithm)
        styles[label] = (colour, HATCHES[used[colour] % len(HATCHES)])
        used[colour] += 1
    return styles


@cache
def _known_names() -> dict[str, int]:
    names = {name for each in Collective for name in algorithm_names(each, REQUIREMENTS)}
    return {name: place for place, name in enumerate(sorted(names))}
