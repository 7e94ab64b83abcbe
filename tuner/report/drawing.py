"""Drawing primitives and colours of the pictures of nodes and networks.

The pictures are drawn from the `Topology` alone, so that imported machines have pictures too. What
repeats many times is drawn a few times, with a count.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch

from tuner.topology import GPU_LINK_KINDS, Link

DIAGRAM_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "svg.hashsalt": "tuner",
    "font.family": "sans-serif",
}
TEXT_COLOUR, MUTED_COLOUR, BACKGROUND_COLOUR = "#222222", "#666666", "#ffffff"
# Fills and edges of the boxes, and colours of the links: Paul Tol's "light" and "muted" schemes,
# distinguishable with every common kind of colour blindness (personal.sron.nl/~pault, 2021).
BOX_COLOURS = {
    "cpu": ("#dbe7f5", "#4477aa"),
    "gpu": ("#dcefd9", "#117733"),
    "nic": ("#f8e3d9", "#cc6677"),
    "switch": ("#eeeeee", "#888888"),
    "node": ("#dbe7f5", "#4477aa"),
    "network": ("#f3ead2", "#998833"),
}
LINK_COLOURS = {
    "nvlink": "#117733",
    "xgmi": "#117733",
    "pcie": "#8899aa",
    "socket": "#aa7722",
    "memory": "#aa4499",
    "network": "#cc6677",
}
LINK_NAMES = {
    **GPU_LINK_KINDS,
    "pcie": "PCIe",
    "socket": "CPU bus",
    "memory": "memory",
    "network": "network",
}


def render_image(figure: Figure, form: str) -> bytes:
    """Return the picture as `svg` or `png`; the same picture gives the same bytes."""
    buffer = io.BytesIO()
    with mpl.rc_context(DIAGRAM_STYLE):
        figure.savefig(
            buffer,
            format=form,
            bbox_inches="tight",
            pad_inches=0.15,
            dpi=150,
            facecolor=BACKGROUND_COLOUR,
            metadata={"Date": None} if form == "svg" else None,
        )
    return buffer.getvalue()


def new_canvas(width: float, height: float, title: str, subtitle: str) -> tuple[Figure, Axes]:
    """Return a figure of this size in inches with one data unit per inch, y upwards."""
    with mpl.rc_context(DIAGRAM_STYLE):
        figure = Figure(figsize=(width, height))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0.0, width)
    axes.set_ylim(0.0, height)
    axes.set_axis_off()
    axes.text(0.1, height - 0.1, title, fontsize=13, fontweight="bold", color=TEXT_COLOUR, va="top")
    axes.text(0.1, height - 0.42, subtitle, fontsize=9, color=MUTED_COLOUR, va="top")
    return figure, axes


def draw_box(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    kind: str,
    text: str,
    fontsize: float = 8.0,
) -> None:
    """Draw a rounded box with its centre at (x, y)."""
    fill, edge = BOX_COLOURS[kind]
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            facecolor=fill,
            edgecolor=edge,
            boxstyle="round,pad=0,rounding_size=0.06",
            linewidth=1.1,
            zorder=3,
        )
    )
    axes.text(
        x,
        y,
        text,
        ha="center",
        va="center",
        fontsize=fontsize,
        color=TEXT_COLOUR,
        zorder=4,
        linespacing=1.15,
    )


def draw_line(
    axes: Axes, x: Sequence[float], y: Sequence[float], colour: str, width: float
) -> None:
    """Draw a line through the points, below the boxes."""
    axes.plot(x, y, color=colour, linewidth=width, zorder=1, solid_capstyle="round")


def draw_ellipsis(axes: Axes, x: float, y: float) -> None:
    """Draw an ellipsis for what is left out."""
    axes.text(x, y, "\u22ef", ha="center", va="center", fontsize=16, color=MUTED_COLOUR, zorder=4)


def line_width(link: Link) -> float:
    """Return the width of a link's line in points, which grows with the number of cables."""
    return 1.0 + 0.75 * min(link.count - 1, 4)


def format_bandwidth(bandwidth: float) -> str:
    """Return a bandwidth for people, such as `12.5 GB/s` or `1.2 TB/s`."""
    for unit, scale in (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6)):
        if bandwidth >= scale:
            return f"{bandwidth / scale:.3g} {unit}"
    return f"{bandwidth:.3g} B/s"


def link_label(link: Link) -> str:
    """Return the label of a link, such as `NVLink, 2 x 21.7 GB/s`."""
    many = f"{link.count} \u00d7 " if link.count > 1 else ""
    return f"{LINK_NAMES[link.kind]}, {many}{format_bandwidth(link.capacity / link.count)}"


def draw_legend(axes: Axes, links: Iterable[Link], **place: Any) -> None:
    """Draw a legend with one line per kind of link."""
    seen = {(link_label(link), LINK_COLOURS[link.kind], line_width(link)): None for link in links}
    handles = [
        Line2D([], [], color=colour, linewidth=width, label=text)
        for text, colour, width in sorted(seen)
    ]
    axes.legend(handles=handles, frameon=False, fontsize=8, handlelength=1.8, **place)


def device_label(name: str) -> str:
    """Return `GPU 12` for `gpu12`, `CPU 0` for `cpu0`, and other names as they are."""
    match = re.fullmatch(r"(gpu|cpu|nic)(\d+)", name)
    return f"{match[1].upper()} {match[2]}" if match else name
