"""A picture of the inside of a node: CPUs, PCIe switches, GPUs and NICs in rows, NVLink below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from tuner.report.drawing import LINKS, SOFT, box, canvas, dots, legend, plain, thickness, wire
from tuner.topology import CPU, GPU, NIC, SWITCH, Device, Interior, Link

MOST_LEAVES = 26  # GPUs and NICs; of more, the first and the last branches are drawn
LEAF, ROW = 0.82, 0.95  # inches from leaf to leaf, from row to row
LOW, WIDE = 0.42, 0.7  # size of a box
BEND = 0.45  # of an arc between GPUs: twice its depth over its width


@dataclass
class Branch:
    """A device with what hangs on it, away from the CPUs; `x` and `depth` are where it is drawn."""

    device: Device
    up: Link | None = None
    children: list[Branch] = field(default_factory=list)
    x: float = 0.0
    depth: int = 0

    def all(self) -> Iterable[Branch]:
        """Itself and everything below."""
        yield self
        for child in self.children:
            yield from child.all()

    def leaves(self) -> list[Branch]:
        """Its ends, in the order in which they are drawn."""
        return [branch for branch in self.all() if not branch.children]


def draw_node(interior: Interior, title: str) -> Figure:
    """The inside of one node; raises nothing for any interior."""
    hubs = nvlink_hubs(interior)
    shown, left_out = _few(_branches(interior, hubs))
    width = _spread(shown, left_out)
    placed = {branch.device.name: branch for root in shown for branch in root.all()}
    deepest = max(branch.depth for branch in placed.values())
    below, arcs = _room_below(interior, placed, hubs)
    height = 1.15 + ROW * deepest + LOW / 2 + below + 0.55
    figure, axes = canvas(max(width, 5.6), height, title, _subtitle(interior))
    rows = {depth: height - 1.15 - ROW * depth for depth in range(deepest + 1)}
    drawn = [_draw_branch(axes, root, rows) for root in shown]
    links = [link for some in drawn for link in some]
    links += _bus(axes, interior, shown, rows[0])
    links += _arcs(axes, arcs, placed, rows[deepest])
    links += _hub_links(axes, interior, placed, hubs, rows[deepest], width)
    if left_out:
        middle = (shown[-2].x + shown[-1].x) / 2
        dots(axes, middle, rows[0])
        axes.text(
            middle,
            rows[0] - 0.3,
            f"{left_out} more\nlike these",
            ha="center",
            va="top",
            fontsize=8,
            color=SOFT,
        )
    legend(axes, links, loc="lower left", bbox_to_anchor=(0.0, 0.0), ncols=3, columnspacing=1.6)
    return figure


def nvlink_hubs(interior: Interior) -> list[Device]:
    """Switches that NVLink leads to: drawn below the GPUs."""
    joined = {link.target for link in interior.links if link.kind == "nvlink"}
    return [d for d in interior.devices if d.kind == SWITCH and d.name in joined]


def _subtitle(interior: Interior) -> str:
    counted = {}
    for kind, word in ((CPU, "CPU"), (GPU, "GPU"), (NIC, "NIC")):
        devices = [device for device in interior.devices if device.kind == kind]
        products = sorted({device.product for device in devices} - {""})
        if devices:
            what = f"{len(devices)} {word}{'s' if len(devices) > 1 else ''}"
            counted[kind] = f"{what} ({', '.join(products)})" if products else what
    return " \u00b7 ".join(counted.values())


def _branches(interior: Interior, hubs: Sequence[Device]) -> list[Branch]:
    """A tree below each CPU, breadth first; without CPUs, below the first devices found."""
    devices = {device.name: device for device in interior.devices}
    skip = {hub.name for hub in hubs}
    roots = [d.name for d in interior.devices if d.kind == CPU] or [interior.devices[0].name]
    found = {name: Branch(devices[name]) for name in roots}
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
                branch = Branch(devices[link.target], link, depth=found[name].depth + 1)
                found[link.target] = branch
                found[name].children.append(branch)
                waiting.append(link.target)
    return [found[name] for name in roots]


def _few(roots: list[Branch]) -> tuple[list[Branch], int]:
    """The branches that are drawn, and how many are left out between the last two."""
    leaves = [len(root.leaves()) for root in roots]
    if sum(leaves) <= MOST_LEAVES or len(roots) <= 3:
        return roots, 0
    first = 1
    while first < len(roots) - 2 and sum(leaves[: first + 1]) + leaves[-1] <= MOST_LEAVES // 2:
        first += 1
    return [*roots[:first], roots[-1]], len(roots) - first - 1


def _spread(roots: Sequence[Branch], left_out: int) -> float:
    """Gives every branch its x, and all ends the same depth; the width of the picture."""
    x = 0.65
    deepest = max(branch.depth for root in roots for branch in root.all())
    for number, root in enumerate(roots):
        for leaf in root.leaves():
            leaf.x = x
            x += LEAF
            if leaf.device.kind in (GPU, NIC):
                leaf.depth = deepest
        x += 0.35 + (1.3 if left_out and number == len(roots) - 2 else 0.0)
        for branch in reversed(list(root.all())):
            if branch.children:
                branch.x = sum(child.x for child in branch.children) / len(branch.children)
    return x - LEAF + 0.65 - 0.35


def _room_below(
    interior: Interior, placed: dict[str, Branch], hubs: Sequence[Device]
) -> tuple[float, list[Link]]:
    """Inches below the GPUs, and the links between GPUs that are drawn there, each once."""
    arcs, seen = [], set()
    for link in interior.links:
        ends = frozenset((link.source, link.target))
        kinds = {placed[name].device.kind for name in ends if name in placed}
        if kinds == {GPU} and len(ends & placed.keys()) == 2 and ends not in seen:
            seen.add(ends)
            arcs.append(link)
    widest = max((abs(placed[a.source].x - placed[a.target].x) for a in arcs), default=0.0)
    hub_room = 0.95 + 0.5 * (len(hubs) - 1) if hubs else 0.0
    return max(BEND / 2 * widest, hub_room) + 0.15, arcs


def _draw_branch(axes: Axes, root: Branch, rows: dict[int, float]) -> list[Link]:
    """Its boxes and links; several kinds of links leave a box beside one another."""
    links = []
    for branch in root.all():
        device, y = branch.device, rows[branch.depth]
        wide = WIDE if device.kind in (GPU, NIC) else max(WIDE, 0.95)
        box(axes, branch.x, y, wide, LOW, device.kind, _label(device))
        ups = [(child, child.up) for child in branch.children if child.up is not None]
        kinds = sorted({link.kind for _, link in ups})
        for child, link in ups:
            aside = kinds.index(link.kind) - (len(kinds) - 1) / 2
            stem, bend = branch.x + 0.12 * aside, y - ROW / 2 + 0.12 * aside
            wire(
                axes,
                [stem, stem, child.x, child.x],
                [y, bend, bend, rows[child.depth]],
                LINKS[link.kind],
                thickness(link),
            )
            links.append(link)
    return links


def _label(device: Device) -> str:
    if device.kind == SWITCH:
        return device.product or device.name
    if device.kind == CPU:
        return f"{plain(device.name)}" + (f"\n{device.cores} cores" if device.cores else "")
    return plain(device.name)


def _bus(axes: Axes, interior: Interior, roots: Sequence[Branch], y: float) -> list[Link]:
    """Between neighbouring CPUs."""
    at = {root.device.name: root.x for root in roots}
    drawn = []
    for link in interior.links:
        if link.source in at and link.target in at and at[link.source] < at[link.target]:
            lift = 0.0 if len(roots) < 3 else 0.3
            wire(
                axes,
                [at[link.source], at[link.source], at[link.target], at[link.target]],
                [y, y + lift, y + lift, y],
                LINKS[link.kind],
                thickness(link) + 0.6,
            )
            drawn.append(link)
    return drawn


def _arcs(axes: Axes, arcs: Sequence[Link], placed: dict[str, Branch], y: float) -> list[Link]:
    for link in arcs:
        a, b = sorted((placed[link.source].x, placed[link.target].x))
        axes.add_patch(
            FancyArrowPatch(
                (a, y - LOW / 2),
                (b, y - LOW / 2),
                arrowstyle="-",
                connectionstyle=f"arc3,rad={BEND}",
                color=LINKS[link.kind],
                linewidth=thickness(link),
                zorder=1,
                shrinkA=0,
                shrinkB=0,
            )
        )
    return list(arcs)


def _hub_links(
    axes: Axes,
    interior: Interior,
    placed: dict[str, Branch],
    hubs: Sequence[Device],
    y: float,
    width: float,
) -> list[Link]:
    """One bar for each NVSwitch, with a line from every GPU that it serves."""
    drawn = []
    for number, hub in enumerate(hubs):
        low = y - 0.95 - 0.5 * number
        links = [
            link for link in interior.links if link.target == hub.name and link.source in placed
        ]
        for link in links:
            branch = placed[link.source]
            if branch.device.kind == GPU:
                wire(axes, [branch.x, branch.x], [y, low], LINKS[link.kind], thickness(link))
                axes.text(
                    branch.x + 0.09,
                    (y + low) / 2 - 0.03,
                    f"\u00d7 {link.count}",
                    fontsize=8,
                    color=LINKS[link.kind],
                    va="center",
                )
                drawn.append(link)
        reach = [
            placed[link.source].x for link in links if placed[link.source].device.kind == GPU
        ] or [width / 2]
        box(
            axes,
            (min(reach) + max(reach)) / 2,
            low,
            max(reach) - min(reach) + WIDE,
            0.34,
            "gpu",
            hub.product or hub.name,
        )
    return drawn
