"""Bar charts of where the time of a call goes: the parts of its critical path by message size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tuner.base.units import format_size, format_time
from tuner.report.figures import COLOURS
from tuner.sim.critical_paths import COMPONENT_DESCRIPTIONS, TIME_COMPONENTS

PART_STYLES = dict(
    zip(
        TIME_COMPONENTS,
        (
            (COLOURS[3], ""),
            (COLOURS[0], ""),
            (COLOURS[1], "///"),
            (COLOURS[8], ""),
            (COLOURS[2], "xxx"),
            ("#bbbbbb", "..."),
        ),
        strict=True,
    )
)

MIN_WIDTH_IN = 4.5  # inches
AXES_SHARE = 0.775  # share of a figure's width
LETTERS_PER_INCH = 12.5  # letters of a title per inch
MAX_LABEL_CHARACTERS = 13  # characters of a line below a bar
LABEL_LINE_HEIGHT = 0.045  # height of such a line, as a share of the bars' height


@dataclass(frozen=True)
class TimeBreakdown:
    """The time of one run: its algorithm, message size, and the seconds of each part."""

    algorithm: str
    nbytes: int
    parts: Mapping[str, float]

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())


def figure_width(number: int) -> float:
    """Return the width in inches of a figure with this number of bars."""
    return max(MIN_WIDTH_IN, 1.5 + 0.85 * number)


def draw_breakdown(figure: Figure, title: str, bills: Sequence[TimeBreakdown]) -> None:
    """Draw one bar of height 100 % for each breakdown into an empty figure."""
    axes = figure.add_subplot()
    for at, bill in enumerate(bills):
        bottom = 0.0
        for part in TIME_COMPONENTS:
            share = 100 * bill.parts[part] / (bill.seconds or 1.0)
            colour, hatch = PART_STYLES[part]
            axes.bar(
                at, share, 0.82, bottom, color=colour, hatch=hatch, edgecolor="white", linewidth=0.8
            )
            bottom += share
        axes.text(at, 101, format_time(bill.seconds), ha="center", va="bottom", fontsize=8)
    names = [f"{format_size(bill.nbytes)}\n{_folded(bill.algorithm)}" for bill in bills]
    axes.set_xticks(range(len(bills)), names, fontsize=7.5)
    axes.set_xlim(-0.6, len(bills) - 0.4)
    axes.set_ylim(0, 100)
    axes.set_ylabel("share of the critical path, %")
    letters = int(figure.get_figwidth() * AXES_SHARE * LETTERS_PER_INCH)
    axes.set_title("\n".join(wrap(title, letters)), pad=18)
    axes.grid(visible=False)
    axes.tick_params(bottom=False)
    used = [part for part in TIME_COMPONENTS if any(bill.parts[part] > 0 for bill in bills)]
    handles = [
        Patch(
            facecolor=PART_STYLES[part][0],
            hatch=PART_STYLES[part][1],
            edgecolor="white",
            label=f"{part}: {COMPONENT_DESCRIPTIONS[part]}",
        )
        for part in used[::-1]
    ]
    below = -0.06 - LABEL_LINE_HEIGHT * max(name.count("\n") + 1 for name in names)
    axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.0, below), frameon=False, fontsize=8
    )


def _folded(name: str) -> str:
    """Return a long name of an algorithm wrapped over several lines."""
    return "\n".join(wrap(name.replace("_", " "), MAX_LABEL_CHARACTERS))
