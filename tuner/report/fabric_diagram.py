"""A picture of the network between nodes: levels of a tree, or routers that are joined directly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tuner.report.drawing import (
    LINK_COLOURS,
    MUTED_COLOUR,
    draw_box,
    draw_ellipsis,
    draw_legend,
    draw_line,
    format_bandwidth,
    line_width,
    new_canvas,
)
from tuner.report.router_diagram import draw_routers
from tuner.topology import Link, Topology

MAX_BOXES = 9  # in a row; with more, the first and the last ones are drawn
WIDTH_IN = 9.6
ROW_HEIGHT_IN = 1.45
BOTTOM_IN = 0.85
BOX_HEIGHT_IN = 0.42


@dataclass(frozen=True)
class FabricLevel:
    """One row of boxes.

    names   all names of the level, drawn or not
    noun    word for one of them
    boxes   names that each box stands for; an empty tuple is drawn as an ellipsis
    """

    names: Sequence[str]
    noun: str
    boxes: Sequence[tuple[str, ...]]

    def x_positions(self) -> list[float]:
        """Return the x coordinates of the boxes' centres in inches."""
        room = WIDTH_IN - 3.1
        return [0.6 + room * (place + 0.5) / len(self.boxes) for place in range(len(self.boxes))]


def draw_fabric(topology: Topology, title: str, subtitle: str) -> Figure:
    """Draw all nodes and switches; every valid topology can be drawn."""
    levels = topology.switch_levels
    beside = any(
        level and level == levels.get(link.target)
        for link in topology.links
        if (level := levels.get(link.source))
    )
    if beside:
        return draw_routers(topology, title, subtitle)
    return _draw_tree(topology, levels, title, subtitle)


def _draw_tree(topology: Topology, levels: dict[str, int], title: str, subtitle: str) -> Figure:
    rows = _rows(topology, levels)
    height = BOTTOM_IN + ROW_HEIGHT_IN * (len(rows) - 1) + 1.05
    figure, axes = new_canvas(WIDTH_IN, height, title, subtitle)
    heights = {number: BOTTOM_IN + ROW_HEIGHT_IN * number for number in range(len(rows))}
    at = {
        name: (x, heights[number])
        for number, level in enumerate(rows)
        for x, names in zip(level.x_positions(), level.boxes, strict=True)
        for name in names
    }
    drawn = _tree_links(axes, topology, at)
    for number, level in enumerate(rows):
        _draw_row(axes, level, heights[number], "network" if number else "node")
        _draw_counts(axes, level, heights[number], [] if number else _notes(topology, level, at))
    _draw_taper(axes, topology, rows, heights)
    draw_legend(axes, drawn, loc="lower left", bbox_to_anchor=(0.0, 0.0), ncols=3)
    return figure


def _rows(topology: Topology, levels: dict[str, int]) -> list[FabricLevel]:
    """Return the rows from bottom to top: nodes, leaf switches, ..., spine switches."""
    by_level: dict[int, list[str]] = {}
    for name in topology.switches:
        by_level.setdefault(levels.get(name, 1), []).append(name)
    rows = []
    for level in sorted(by_level):
        word = (
            "switch"
            if len(topology.switches) == 1
            else "leaf switch"
            if level == 1
            else ("spine switch" if level == max(by_level) else "switch")
        )
        rows.append(FabricLevel(by_level[level], word, _boxes_of(by_level[level])))
    return [_node_row(topology, rows[:1]), *rows]


def _node_row(topology: Topology, leaves: Sequence[FabricLevel]) -> FabricLevel:
    """Return the row of nodes; if they are many, one box for all nodes below a drawn leaf."""
    names = [node.name for node in topology.nodes]
    if len(names) <= MAX_BOXES or not leaves or len(leaves[0].names) == 1:
        return FabricLevel(names, "node", _boxes_of(names))
    owner = _node_of_port(topology)
    below: dict[str, dict[str, None]] = {leaf: {} for box in leaves[0].boxes for leaf in box}
    for link in topology.links:
        if link.source in below and link.target in owner:
            below[link.source][owner[link.target]] = None
    boxes: list[tuple[str, ...]] = []
    for drawn in leaves[0].boxes:
        together = tuple(below[drawn[0]]) if drawn else ()
        if together not in boxes:
            boxes.append(together)
    return FabricLevel(names, "node", boxes)


def _boxes_of(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return one box for each name, or for the first and the last ones if they are many."""
    if len(names) <= MAX_BOXES:
        return [(name,) for name in names]
    first, last = names[: MAX_BOXES - 4], names[-2:]
    return [*((name,) for name in first), (), *((name,) for name in last)]


def _node_of_port(topology: Topology) -> dict[str, str]:
    return {port: node.name for node in topology.nodes for port in node.ports}


def _tree_links(axes: Axes, topology: Topology, at: dict[str, tuple[float, float]]) -> list[Link]:
    """Draw the links between rows, from edge to edge of the boxes, and return those drawn.

    Links that lie on one another are drawn once.
    """
    owner = _node_of_port(topology)
    drawn: dict[tuple[float, ...], Link] = {}
    for link in topology.links:
        ends = [owner.get(end, end) for end in (link.source, link.target)]
        if all(end in at for end in ends):
            (x0, y0), (x1, y1) = at[ends[0]], at[ends[1]]
            if y0 < y1:
                drawn.setdefault(
                    (x0, x1, y0 + BOX_HEIGHT_IN / 2, y1 - BOX_HEIGHT_IN / 2, link.count), link
                )
    for (x0, x1, y0, y1, _), link in drawn.items():
        draw_line(axes, [x0, x1], [y0, y1], LINK_COLOURS[link.kind], line_width(link))
    return list(drawn.values())


def _draw_row(axes: Axes, level: FabricLevel, y: float, kind: str) -> None:
    wide = min(0.95, 0.8 * (WIDTH_IN - 3.1) / len(level.boxes))
    number = {name: i for i, name in enumerate(level.names)}
    for x, names in zip(level.x_positions(), level.boxes, strict=True):
        if names:
            draw_box(axes, x, y, wide, BOX_HEIGHT_IN, kind, _box_text([*names], number), 7.5)
        else:
            draw_ellipsis(axes, x, y)


def _box_text(names: list[str], number: dict[str, int]) -> str:
    """Return the text of a box: a name, a range of names, or their number if others lie between."""
    if len(names) == 1:
        return _short(names[0])
    names.sort(key=lambda name: number[name])
    if number[names[-1]] - number[names[0]] == len(names) - 1:
        return f"{_short(names[0])}\n\u2026 {_short(names[-1])}"
    return f"{_short(names[0])} \u2026\n{len(names):,} in all"


def _draw_counts(axes: Axes, level: FabricLevel, y: float, notes: Sequence[str]) -> None:
    many = "" if len(level.names) == 1 else "es" if level.noun.endswith("ch") else "s"
    lifted = 0.08 * len(notes)
    axes.text(
        WIDTH_IN - 2.35,
        y + lifted,
        f"{len(level.names):,} {level.noun}{many}",
        ha="left",
        va="center",
        fontsize=9,
        fontweight="bold",
    )
    axes.text(
        WIDTH_IN - 2.35,
        y + lifted - 0.1,
        "\n".join(notes),
        ha="left",
        va="top",
        fontsize=8,
        color=MUTED_COLOUR,
    )


def _notes(topology: Topology, level: FabricLevel, at: dict[str, tuple[float, float]]) -> list[str]:
    """Return notes on what the boxes of the nodes do not show."""
    notes = []
    ports = Counter(len(node.ports) for node in topology.nodes).most_common(1)[0][0]
    if ports > 1:
        notes.append(f"{ports} NICs each")
    if any(len(names) > 1 for names in level.boxes):
        notes.append("a line: one cable of each node")
    owner = _node_of_port(topology)
    if any(
        owner.get(link.source) in at and link.target not in at
        for link in topology.links
        if link.target not in owner
    ):
        notes.append("not all of their leaves are drawn")
    return notes


def _short(name: str) -> str:
    return name if len(name) <= 11 else name[:10] + "\u2026"


def _draw_taper(
    axes: Axes, topology: Topology, rows: Sequence[FabricLevel], heights: dict[int, float]
) -> None:
    """Write between two rows what all their links carry together in one direction."""
    row_of = {name: n for n, level in enumerate(rows) for name in level.names}
    owner = _node_of_port(topology)
    total: dict[int, float] = {}
    cables: Counter[int] = Counter()
    for link in topology.links:
        a, b = (row_of[owner.get(end, end)] for end in (link.source, link.target))
        if a < b:
            total[a] = total.get(a, 0.0) + link.capacity
            cables[a] += link.count
    for number in sorted(total):
        text = f"{cables[number]:,} cables, {format_bandwidth(total[number])} upwards"
        if number and total[number] < 0.999 * total[0]:
            text += f"\n{total[0] / total[number]:.3g}:1 taper"
        axes.text(
            WIDTH_IN - 2.35,
            heights[number] + ROW_HEIGHT_IN / 2,
            text,
            ha="left",
            va="center",
            fontsize=8,
            color=MUTED_COLOUR,
        )
