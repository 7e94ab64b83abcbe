"""A picture of the network between nodes: levels of a tree, or routers that are joined directly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tuner.report.drawing import LINKS, SOFT, box, canvas, dots, legend, rate, wire
from tuner.report.routers import draw_routers
from tuner.topology import Link, Topology

MOST_BOXES = 9  # in a row; of more, the first and the last ones are drawn
WIDTH, ROW, LOWEST = 9.6, 1.45, 0.85  # inches


@dataclass(frozen=True)
class Level:
    """One row of boxes; `shown` are the numbers of those drawn, with None where some are not."""

    names: Sequence[str]
    word: str
    shown: tuple[int | None, ...]

    def places(self) -> dict[str, float]:
        """Where the boxes are."""
        room = WIDTH - 3.1
        return {
            self.names[number]: 0.6 + room * (place + 0.5) / len(self.shown)
            for place, number in enumerate(self.shown)
            if number is not None
        }


def draw_fabric(topology: Topology, title: str, subtitle: str) -> Figure:
    """All nodes and switches; raises nothing for any topology."""
    levels = switch_levels(topology)
    beside = any(
        level and level == levels.get(link.target)
        for link in topology.links if (level := levels.get(link.source))
    )  # fmt: skip
    if beside:
        return draw_routers(topology, title, subtitle)
    return _draw_tree(topology, levels, title, subtitle)


def switch_levels(topology: Topology) -> dict[str, int]:
    """Each switch's distance from the nearest node, in links."""
    ends = set(topology.ports)
    above: dict[str, list[str]] = {}
    for link in topology.links:
        above.setdefault(link.source, []).append(link.target)
    levels: dict[str, int] = {}
    reached, level = list(ends), 0
    while reached:
        level += 1
        reached = [
            target
            for target in dict.fromkeys(t for name in reached for t in above.get(name, []))
            if target not in levels and target not in ends
        ]
        levels |= dict.fromkeys(reached, level)
    return levels


def _draw_tree(topology: Topology, levels: dict[str, int], title: str, subtitle: str) -> Figure:
    rows = _rows(topology, levels)
    height = LOWEST + ROW * (len(rows) - 1) + 1.05
    figure, axes = canvas(WIDTH, height, title, subtitle)
    heights = {number: LOWEST + ROW * number for number in range(len(rows))}
    at: dict[str, tuple[float, float]] = {}
    for number, level in enumerate(rows):
        for name, x in level.places().items():
            at[name] = (x, heights[number])
    drawn = _tree_links(axes, topology, at)
    for number, level in enumerate(rows):
        _row(axes, topology, level, heights[number], number)
    _taper(axes, topology, rows, heights)
    legend(axes, drawn, loc="lower left", bbox_to_anchor=(0.0, 0.0), ncols=3)
    return figure


def _rows(topology: Topology, levels: dict[str, int]) -> list[Level]:
    """Nodes, leaves, ... spines; nodes of which leaves are drawn come first."""
    by_level: dict[int, list[str]] = {}
    for name in topology.switches:
        by_level.setdefault(levels.get(name, 1), []).append(name)
    rows = []
    for level in sorted(by_level):
        word = "switch" if len(topology.switches) == 1 else "leaf switch" if level == 1 else (
            "spine switch" if level == max(by_level) else "switch"
        )  # fmt: skip
        rows.append(Level(by_level[level], word, _few(len(by_level[level]))))
    return [_node_row(topology, rows[:1]), *rows]


def _node_row(topology: Topology, leaves: Sequence[Level]) -> Level:
    """A node or some of every drawn leaf."""
    names = [node.name for node in topology.nodes]
    if len(names) <= MOST_BOXES or not leaves or len(leaves[0].names) == 1:
        return Level(names, "node", _few(len(names)))
    owner = _owner(topology)
    number = {name: i for i, name in enumerate(names)}
    shown: list[int | None] = []
    for place in leaves[0].shown:
        if place is None:
            shown.append(None)
            continue
        below = [number[owner[link.target]] for link in topology.links
                 if link.source == leaves[0].names[place] and link.target in owner]  # fmt: skip
        new = [one for one in below if one not in shown]
        shown += new[: 1 if len(leaves[0].shown) > 2 else 3]
    if None not in shown:
        shown = [*shown[:-1], None, *shown[-1:]]
    return Level(names, "node", tuple(shown))


def _few(count: int) -> tuple[int | None, ...]:
    if count <= MOST_BOXES:
        return tuple(range(count))
    return (*range(MOST_BOXES - 4), None, count - 2, count - 1)


def _owner(topology: Topology) -> dict[str, str]:
    """The node of each port."""
    return {port: node.name for node in topology.nodes for port in node.ports}


def _tree_links(axes: Axes, topology: Topology, at: dict[str, tuple[float, float]]) -> list[Link]:
    owner = _owner(topology)
    drawn = []
    for link in topology.links:
        ends = [owner.get(end, end) for end in (link.source, link.target)]
        if all(end in at for end in ends):
            (x0, y0), (x1, y1) = at[ends[0]], at[ends[1]]
            if y0 < y1:
                wire(axes, [x0, x1], [y0, y1], LINKS[link.kind], 0.8)
                drawn.append(link)
    return drawn


def _row(axes: Axes, topology: Topology, level: Level, y: float, number: int) -> None:
    places = level.places()
    wide = min(0.95, 0.8 * (WIDTH - 3.1) / len(level.shown))
    for name, x in places.items():
        box(axes, x, y, wide, 0.42, "network" if number else "node", _short(name), 7.5)
    for place, shown in enumerate(level.shown):
        if shown is None:
            dots(axes, 0.6 + (WIDTH - 3.1) * (place + 0.5) / len(level.shown), y)
    many = "" if len(level.names) == 1 else "es" if level.word.endswith("ch") else "s"
    text = f"{len(level.names):,} {level.word}{many}"
    ports = Counter(len(node.ports) for node in topology.nodes).most_common(1)[0][0]
    if not number and ports > 1:
        text += f"\n{ports} NICs each"
    axes.text(WIDTH - 2.35, y, text, ha="left", va="center", fontsize=9, fontweight="bold")


def _short(name: str) -> str:
    return name if len(name) <= 11 else name[:10] + "\u2026"


def _taper(
    axes: Axes, topology: Topology, rows: Sequence[Level], heights: dict[int, float]
) -> None:
    """What all links between two rows carry together in one direction."""
    row_of = {name: n for n, level in enumerate(rows) for name in level.names}
    owner = _owner(topology)
    total: dict[int, float] = {}
    cables: Counter[int] = Counter()
    for link in topology.links:
        a, b = (row_of[owner.get(end, end)] for end in (link.source, link.target))
        if a < b:
            total[a] = total.get(a, 0.0) + link.capacity
            cables[a] += link.count
    for number in sorted(total):
        text = f"{cables[number]:,} cables, {rate(total[number])} upwards"
        if number and total[number] < 0.999 * total[0]:
            text += f"\n{total[0] / total[number]:.3g}:1 taper"
        axes.text(WIDTH - 2.35, heights[number] + ROW / 2, text, ha="left", va="center",
                  fontsize=8, color=SOFT)  # fmt: skip
