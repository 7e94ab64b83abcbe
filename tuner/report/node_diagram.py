"""A picture of the inside of a node: CPUs, PCIe switches, GPUs and NICs in rows, NVLink below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from tuner.report.drawing import (
    LINK_COLOURS,
    MUTED_COLOUR,
    device_label,
    draw_box,
    draw_ellipsis,
    draw_legend,
    draw_line,
    line_width,
    new_canvas,
)
from tuner.topology import CPU, GPU, NIC, SWITCH, Device, Link, NodeTopology

MAX_LEAVES = 26  # GPUs and NICs; with more, the first branches and the last one are drawn
LEAF_SPACING_IN = 0.82
ROW_HEIGHT_IN = 0.95
BOX_HEIGHT_IN = 0.42
BOX_WIDTH_IN = 0.7
ARC_CURVATURE = 0.45  # of an arc between GPUs: twice its depth over its width


@dataclass
class DeviceTree:
    """A device with the devices below it, away from the CPUs.

    uplink      link to the parent; None for a root
    x           horizontal position in the picture, inches
    depth       row in which it is drawn, 0 at the top
    """

    device: Device
    uplink: Link | None = None
    children: list[DeviceTree] = field(default_factory=list)
    x: float = 0.0
    depth: int = 0

    def iter_subtree(self) -> Iterable[DeviceTree]:
        """Yield this tree and everything below it."""
        yield self
        for child in self.children:
            yield from child.iter_subtree()

    def leaves(self) -> list[DeviceTree]:
        """Return the leaves in the order in which they are drawn."""
        return [branch for branch in self.iter_subtree() if not branch.children]


def draw_node(interior: NodeTopology, title: str) -> Figure:
    """Draw the inside of one node; every valid interior can be drawn."""
    hubs = nvlink_hubs(interior)
    shown, left_out = _choose_branches(_device_trees(interior, hubs))
    width = _position_branches(shown, left_out)
    placed = {branch.device.name: branch for root in shown for branch in root.iter_subtree()}
    deepest = max(branch.depth for branch in placed.values())
    below, arcs = _room_below(interior, placed, hubs)
    height = 1.15 + ROW_HEIGHT_IN * deepest + BOX_HEIGHT_IN / 2 + below + 0.55
    figure, axes = new_canvas(max(width, 5.6), height, title, _subtitle(interior))
    rows = {depth: height - 1.15 - ROW_HEIGHT_IN * depth for depth in range(deepest + 1)}
    drawn = [_draw_branch(axes, root, rows) for root in shown]
    links = [link for some in drawn for link in some]
    links += _draw_cpu_links(axes, interior, shown, rows[0])
    links += _draw_gpu_arcs(axes, arcs, placed, rows[deepest])
    links += _draw_nvswitches(axes, interior, placed, hubs, rows[deepest], width)
    if left_out:
        middle = (shown[-2].x + shown[-1].x) / 2
        draw_ellipsis(axes, middle, rows[0])
        axes.text(
            middle,
            rows[0] - 0.3,
            f"{left_out} more\nlike these",
            ha="center",
            va="top",
            fontsize=8,
            color=MUTED_COLOUR,
        )
    draw_legend(
        axes, links, loc="lower left", bbox_to_anchor=(0.0, 0.0), ncols=3, columnspacing=1.6
    )
    return figure


def nvlink_hubs(interior: NodeTopology) -> list[Device]:
    """Return the switches that NVLink leads to; they are drawn below the GPUs."""
    joined = {link.target for link in interior.links if link.kind == "nvlink"}
    return [d for d in interior.devices if d.kind == SWITCH and d.name in joined]


def _subtitle(interior: NodeTopology) -> str:
    counted = {}
    for kind, word in ((CPU, "CPU"), (GPU, "GPU"), (NIC, "NIC")):
        devices = [device for device in interior.devices if device.kind == kind]
        products = sorted({device.product for device in devices} - {""})
        if devices:
            what = f"{len(devices)} {word}{'s' if len(devices) > 1 else ''}"
            counted[kind] = f"{what} ({', '.join(products)})" if products else what
    return " \u00b7 ".join(counted.values())


def _device_trees(interior: NodeTopology, hubs: Sequence[Device]) -> list[DeviceTree]:
    """Return a tree below each CPU, found breadth first; without CPUs, below the first device."""
    devices = {device.name: device for device in interior.devices}
    skip = {hub.name for hub in hubs}
    roots = [d.name for d in interior.devices if d.kind == CPU] or [interior.devices[0].name]
    found = {name: DeviceTree(devices[name]) for name in roots}
    waiting = list(roots)
    neighbours: dict[str, list[Link]] = {}
    for link in interior.links:
        neighbours.setdefault(link.source, []).append(link)
    while waiting:
        name = waiting.pop(0)
        if devices[name].kind in (GPU, NIC) and name not in roots:
            continue
        for link in neighbours.get(name, []):
            if link.target not in found and link.target not in skip:
                branch = DeviceTree(devices[link.target], link, depth=found[name].depth + 1)
                found[link.target] = branch
                found[name].children.append(branch)
                waiting.append(link.target)
    return [found[name] for name in roots]


def _choose_branches(roots: list[DeviceTree]) -> tuple[list[DeviceTree], int]:
    """Return the trees to draw, and how many are left out between the last two."""
    leaves = [len(root.leaves()) for root in roots]
    if sum(leaves) <= MAX_LEAVES or len(roots) <= 3:
        return roots, 0
    first = 1
    while first < len(roots) - 2 and sum(leaves[: first + 1]) + leaves[-1] <= MAX_LEAVES // 2:
        first += 1
    return [*roots[:first], roots[-1]], len(roots) - first - 1


def _position_branches(roots: Sequence[DeviceTree], left_out: int) -> float:
    """Place every branch and put GPUs and NICs into the same row; return the picture's width."""
    x = 0.65
    deepest = max(branch.depth for root in roots for branch in root.iter_subtree())
    for number, root in enumerate(roots):
        for leaf in root.leaves():
            leaf.x = x
            x += LEAF_SPACING_IN
            if leaf.device.kind in (GPU, NIC):
                leaf.depth = deepest
        x += 0.35 + (1.3 if left_out and number == len(roots) - 2 else 0.0)
        for branch in reversed(list(root.iter_subtree())):
            if branch.children:
                branch.x = sum(child.x for child in branch.children) / len(branch.children)
    return x - LEAF_SPACING_IN + 0.65 - 0.35


def _room_below(
    interior: NodeTopology, placed: dict[str, DeviceTree], hubs: Sequence[Device]
) -> tuple[float, list[Link]]:
    """Return the inches needed below the GPUs, and the links between GPUs, each once."""
    arcs, seen = [], set()
    for link in interior.links:
        ends = frozenset((link.source, link.target))
        kinds = {placed[name].device.kind for name in ends if name in placed}
        if kinds == {GPU} and len(ends & placed.keys()) == 2 and ends not in seen:
            seen.add(ends)
            arcs.append(link)
    widest = max((abs(placed[a.source].x - placed[a.target].x) for a in arcs), default=0.0)
    hub_room = 0.95 + 0.5 * (len(hubs) - 1) if hubs else 0.0
    return max(ARC_CURVATURE / 2 * widest, hub_room) + 0.15, arcs


def _draw_branch(axes: Axes, root: DeviceTree, rows: dict[int, float]) -> list[Link]:
    """Draw the boxes and links of a tree, and return the links.

    Different kinds of links leave a box side by side.
    """
    links = []
    for branch in root.iter_subtree():
        device, y = branch.device, rows[branch.depth]
        wide = BOX_WIDTH_IN if device.kind in (GPU, NIC) else max(BOX_WIDTH_IN, 0.95)
        draw_box(axes, branch.x, y, wide, BOX_HEIGHT_IN, device.kind, _label(device))
        ups = [(child, child.uplink) for child in branch.children if child.uplink is not None]
        kinds = sorted({link.kind for _, link in ups})
        for child, link in ups:
            aside = kinds.index(link.kind) - (len(kinds) - 1) / 2
            stem, bend = branch.x + 0.12 * aside, y - ROW_HEIGHT_IN / 2 + 0.12 * aside
            draw_line(
                axes,
                [stem, stem, child.x, child.x],
                [y, bend, bend, rows[child.depth]],
                LINK_COLOURS[link.kind],
                line_width(link),
            )
            links.append(link)
    return links


def _label(device: Device) -> str:
    if device.kind == SWITCH:
        return device.product or device.name
    if device.kind == CPU:
        return f"{device_label(device.name)}" + (f"\n{device.cores} cores" if device.cores else "")
    return device_label(device.name)


def _draw_cpu_links(
    axes: Axes, interior: NodeTopology, roots: Sequence[DeviceTree], y: float
) -> list[Link]:
    """Draw the links between CPUs and return them."""
    at = {root.device.name: root.x for root in roots}
    drawn = []
    for link in interior.links:
        if link.source in at and link.target in at and at[link.source] < at[link.target]:
            lift = 0.0 if len(roots) < 3 else 0.3
            draw_line(
                axes,
                [at[link.source], at[link.source], at[link.target], at[link.target]],
                [y, y + lift, y + lift, y],
                LINK_COLOURS[link.kind],
                line_width(link) + 0.6,
            )
            drawn.append(link)
    return drawn


def _draw_gpu_arcs(
    axes: Axes, arcs: Sequence[Link], placed: dict[str, DeviceTree], y: float
) -> list[Link]:
    for link in arcs:
        a, b = sorted((placed[link.source].x, placed[link.target].x))
        axes.add_patch(
            FancyArrowPatch(
                (a, y - BOX_HEIGHT_IN / 2),
                (b, y - BOX_HEIGHT_IN / 2),
                arrowstyle="-",
                connectionstyle=f"arc3,rad={ARC_CURVATURE}",
                color=LINK_COLOURS[link.kind],
                linewidth=line_width(link),
                zorder=1,
                shrinkA=0,
                shrinkB=0,
            )
        )
    return list(arcs)


def _draw_nvswitches(
    axes: Axes,
    interior: NodeTopology,
    placed: dict[str, DeviceTree],
    hubs: Sequence[Device],
    y: float,
    width: float,
) -> list[Link]:
    """Draw one bar for each NVSwitch, with a line from every GPU attached to it."""
    drawn = []
    for number, hub in enumerate(hubs):
        low = y - 0.95 - 0.5 * number
        links = [
            link for link in interior.links if link.target == hub.name and link.source in placed
        ]
        for link in links:
            branch = placed[link.source]
            if branch.device.kind == GPU:
                draw_line(
                    axes, [branch.x, branch.x], [y, low], LINK_COLOURS[link.kind], line_width(link)
                )
                axes.text(
                    branch.x + 0.09,
                    (y + low) / 2 - 0.03,
                    f"\u00d7 {link.count}",
                    fontsize=8,
                    color=LINK_COLOURS[link.kind],
                    va="center",
                )
                drawn.append(link)
        reach = [
            placed[link.source].x for link in links if placed[link.source].device.kind == GPU
        ] or [width / 2]
        draw_box(
            axes,
            (min(reach) + max(reach)) / 2,
            low,
            max(reach) - min(reach) + BOX_WIDTH_IN,
            0.34,
            "gpu",
            hub.product or hub.name,
        )
    return drawn
