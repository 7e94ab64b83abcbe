"""A picture of directly joined routers: a grid by their coordinates, or rings with chords.

Routers called `group3.1` are grouped by the name before the dot: one ring shows the groups, another
one the inside of the first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tuner.report.drawing import (
    BOX_COLOURS,
    MUTED_COLOUR,
    TEXT_COLOUR,
    format_bandwidth,
    new_canvas,
)
from tuner.topology import Link, Topology

WIDTH_IN = 9.6
HEIGHT_IN = 6.0
MAX_GRID_ROUTERS = 400
MAX_LABELLED_ROUTERS = 16  # in a ring
CHORD_COLOURS = ("#cc6677", "#332288", "#117733", "#aa7722", "#882255")  # Paul Tol's "muted"
MAX_CHORDS = 5000  # with more, every second, third, ... is drawn
Positions = Mapping[str, tuple[float, float]]


def draw_routers(topology: Topology, title: str, subtitle: str) -> Figure:
    """Draw the routers as a grid, as two rings, or as one ring.

    Routers whose names are coordinates form a grid; routers in several groups form two rings.
    """
    figure, axes = new_canvas(WIDTH_IN, HEIGHT_IN, title, subtitle)
    between = [
        link for link in topology.links if {link.source, link.target} <= {*topology.switches}
    ]
    group = {name: name.partition(".")[0] for name in topology.switches}
    widths = sorted({link.capacity for link in between})
    colours = dict(zip(widths, cycle(CHORD_COLOURS), strict=False))
    groups = list(dict.fromkeys(group.values()))
    grid = _grid(topology.switches)
    if grid:
        drawn = _draw_grid(axes, between, grid, colours)
    elif 1 < len(groups) < len(group):
        drawn = _two_rings(axes, between, group, groups, colours)
    else:
        places = _ring(topology.switches, WIDTH_IN / 2, 2.6, 2.0)
        drawn = _chords(axes, between, places, colours)
        _dots(axes, places, (WIDTH_IN / 2, 2.6))
    axes.text(
        WIDTH_IN - 0.2,
        HEIGHT_IN - 0.15,
        f"{len(topology.nodes):,} nodes on {len(topology.switches):,} routers",
        ha="right",
        va="top",
        fontsize=9,
        fontweight="bold",
        color=TEXT_COLOUR,
    )
    _legend(axes, drawn, colours)
    return figure


def _grid(names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the coordinates of routers called router1.0.2, of at most three parts.

    Return nothing if any router has another name, or if there are more than `MAX_GRID_ROUTERS`.
    """
    found = {}
    for name in names if len(names) <= MAX_GRID_ROUTERS else ():
        match = re.fullmatch(r"router(\d+(?:\.\d+){0,2})", name)
        if match is None:
            return {}
        found[name] = tuple(int(part) for part in match[1].split("."))
    return found


def _draw_grid(
    axes: Axes,
    links: Sequence[Link],
    grid: Mapping[str, tuple[int, ...]],
    colours: Mapping[float, str],
) -> list[Link]:
    """Draw neighbours joined by lines, and wrap-around links as a short stub at both ends."""
    flat = {name: _projected(place) for name, place in grid.items()}
    wide, high = (max(at[axis] for at in flat.values()) or 1.0 for axis in (0, 1))
    scale = min((WIDTH_IN - 2.4) / wide, (HEIGHT_IN - 2.6) / high, 1.1)
    left, low = (WIDTH_IN - wide * scale) / 2, 0.95 + (HEIGHT_IN - 2.6 - high * scale) / 2
    at = {name: (left + x * scale, low + y * scale) for name, (x, y) in flat.items()}
    near, stubs = [], []
    for link in links:
        (a, b), ends = (grid[link.source], grid[link.target]), (at[link.source], at[link.target])
        if math.dist(a, b) <= 1:
            near.append(ends)
        else:
            away = math.dist(*ends)
            reach = [0.28 * scale * (p - q) / away for p, q in zip(*ends, strict=True)]
            stubs.append((ends[0], (ends[0][0] + reach[0], ends[0][1] + reach[1])))
    colour = colours[links[0].capacity] if links else TEXT_COLOUR
    axes.add_collection(LineCollection(near, colors=colour, linewidths=1.2, zorder=1))
    axes.add_collection(
        LineCollection(stubs, colors=colour, linewidths=1.0, zorder=1, linestyles=(0, (2, 1.5)))
    )
    _dots(axes, at, None)
    axes.text(
        WIDTH_IN - 0.2,
        0.25,
        "dotted: round the end, to the router opposite",
        fontsize=8,
        color=MUTED_COLOUR,
        ha="right",
    )
    return list(links)


def _projected(place: tuple[int, ...]) -> tuple[float, float]:
    """Return up to three coordinates projected on paper; the third goes back and to the right."""
    x, y, z = (*place, 0, 0)[:3]
    return x + 0.32 * z, y + 0.24 * z


def _two_rings(
    axes: Axes,
    links: Sequence[Link],
    group: Mapping[str, str],
    groups: Sequence[str],
    colours: Mapping[float, str],
) -> list[Link]:
    across = {
        (group[a.source], group[a.target]): a for a in links if group[a.source] != group[a.target]
    }
    cables = sum(link.count for link in links if group[link.source] != group[link.target]) // 2
    outer = _ring(groups, 2.5, 2.55, 1.75)
    joined = [
        Link(a, b, link.capacity, link.latency, link.kind, link.count)
        for (a, b), link in across.items()
    ]
    drawn = _chords(axes, joined, outer, colours)
    _dots(axes, outer, (2.5, 2.55))
    first = [name for name in group if group[name] == groups[0]]
    inner = _ring(first, 7.1, 2.55, 1.75)
    drawn += _chords(
        axes, [a for a in links if a.source in inner and a.target in inner], inner, colours
    )
    _dots(axes, inner, (7.1, 2.55))
    texts = (
        (2.5, f"{len(groups)} groups, {cables:,} cables between them"),
        (7.1, f"inside {groups[0]}: {len(first)} routers"),
    )
    for x, text in texts:
        axes.text(
            x, HEIGHT_IN - 1.05, text, ha="center", fontsize=9, fontweight="bold", color=TEXT_COLOUR
        )
    return drawn


def _ring(
    names: Sequence[str], x: float, y: float, radius: float
) -> dict[str, tuple[float, float]]:
    """Return the positions of names on a circle, clockwise from the top."""
    angles = [math.tau * i / len(names) for i in range(len(names))]
    return {
        name: (x + radius * math.sin(angle), y + radius * math.cos(angle))
        for name, angle in zip(names, angles, strict=True)
    }


def _chords(
    axes: Axes, links: Iterable[Link], places: Positions, colours: Mapping[float, str]
) -> list[Link]:
    """Draw one line per pair of routers, and return the links drawn.

    With more than `MAX_CHORDS` pairs, every second, third, ... is drawn.

    colours     colour by the capacity of a link
    """
    pairs = {frozenset((link.source, link.target)): link for link in links}
    kept = list(pairs.values())[:: max(1, math.ceil(len(pairs) / MAX_CHORDS))]
    for width in {link.capacity for link in kept}:
        lines = [
            (places[link.source], places[link.target]) for link in kept if link.capacity == width
        ]
        axes.add_collection(
            LineCollection(
                lines,
                colors=colours[width],
                zorder=1,
                alpha=0.7,
                linewidths=0.5 if len(kept) > 200 else 0.9,
            )
        )
    return kept


def _legend(axes: Axes, links: Iterable[Link], colours: Mapping[float, str]) -> None:
    widths = sorted({link.capacity / link.count: link.capacity for link in links}.items())
    handles = [
        Line2D([], [], color=colours[all_of], label=format_bandwidth(one)) for one, all_of in widths
    ]
    axes.legend(
        handles=handles,
        frameon=False,
        fontsize=8,
        handlelength=1.8,
        ncols=3,
        loc="lower left",
        bbox_to_anchor=(0.0, 0.0),
    )


def _dots(axes: Axes, places: Positions, centre: tuple[float, float] | None) -> None:
    """Draw the routers; if they are few, write their names outside the ring.

    centre      centre of the ring; None: no names are written
    """
    size = 9 if len(places) <= MAX_LABELLED_ROUTERS else 5
    fill, edge = BOX_COLOURS["network"]
    axes.plot(
        [x for x, _ in places.values()],
        [y for _, y in places.values()],
        "o",
        markersize=size,
        color=fill,
        markeredgecolor=edge,
        zorder=3,
    )
    if centre is None or len(places) > MAX_LABELLED_ROUTERS:
        return
    for name, (x, y) in places.items():
        out = 1 + 0.3 / math.dist((x, y), centre)
        axes.text(
            centre[0] + (x - centre[0]) * out,
            centre[1] + (y - centre[1]) * out,
            name.replace("group", ""),
            ha="center",
            va="center",
            fontsize=8,
            color=TEXT_COLOUR,
        )
