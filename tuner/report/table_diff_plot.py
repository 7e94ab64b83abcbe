"""A picture of the differences between two tables: the rules of each call before and after."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from tuner.base.units import format_size
from tuner.core.table import Rule, RuleKey, TuningTable
from tuner.report import palette
from tuner.report.figures import GAIN_COLOUR, LOSS_COLOUR, TEXT_COLOUR, powers_of_two
from tuner.report.palette import FillStyle
from tuner.report.study_plots import save_figure
from tuner.select.table_diff import RuleChange, TableDiff, visible_rules

WIDTH_IN = 10.0
ROW_HEIGHT_IN = 0.62
MARGIN_IN = 1.9
TITLE_HEIGHT_IN = 0.6  # of a figure with nothing but a title
MAX_ROWS = 40
LANE_HEIGHT = 0.34  # share of a row's height
DEFAULT_COLOUR = "#dddddd"
LETTER_WIDTH_IN = 0.105  # width of a letter of a label


@dataclass(frozen=True)
class TableDiffFigure:
    """The content of a figure.

    changes         changed rules by call
    omitted_calls   number of calls that there was no room for
    """

    old: TuningTable
    new: TuningTable
    changes: Mapping[RuleKey, Sequence[RuleChange]]
    omitted_calls: int

    @property
    def height(self) -> float:
        return MARGIN_IN + ROW_HEIGHT_IN * len(self.changes) if self.changes else TITLE_HEIGHT_IN


def select_changes(old: TuningTable, new: TuningTable, found: TableDiff) -> TableDiffFigure:
    """Return the changed calls to draw: at most `MAX_ROWS`, those of the largest gain or loss."""
    changes: dict[RuleKey, list[RuleChange]] = {}
    for change in found.changes:
        changes.setdefault(change.key, []).append(change)
    largest = sorted(changes, key=lambda key: -max(map(_weight, changes[key])))[:MAX_ROWS]
    drawn = {key: own for key, own in changes.items() if key in set(largest)}
    return TableDiffFigure(old, new, drawn, len(changes) - len(drawn))


def _weight(change: RuleChange) -> float:
    return abs(math.log(change.gain)) if change.has_gain else 0.0


def save_table_diff(path: Path, old: TuningTable, new: TuningTable, found: TableDiff) -> list[Path]:
    """Draw the changes and write them to files by the suffix of `path`; return the files.

    Raises InputError where a file cannot be written.
    """
    drawn = select_changes(old, new, found)
    return save_figure(path, WIDTH_IN, drawn.height, partial(draw_table_diff, drawn=drawn))


def draw_table_diff(figure: Figure, drawn: TableDiffFigure) -> None:
    """Draw two lanes for each call, before above after, with changes framed and their gain."""
    axes = figure.add_subplot()
    axes.set_title(_title(drawn))
    if not drawn.changes:
        axes.set_axis_off()
        return
    rule_lists = {
        key: (visible_rules(key, drawn.old), visible_rules(key, drawn.new)) for key in drawn.changes
    }
    low, high = _limits(
        rule for pair in rule_lists.values() for rule_list in pair for rule in rule_list
    )
    look = fill_styles(
        rule for pair in rule_lists.values() for rule_list in pair for rule in rule_list
    )
    _frame(axes, drawn, low, high)
    for row, (key, (before, after)) in enumerate(rule_lists.items()):
        _draw_lane(axes, before, row - LANE_HEIGHT / 2, look, (low, high))
        _draw_lane(axes, after, row + LANE_HEIGHT / 2, look, (low, high))
        for change in drawn.changes[key]:
            _draw_change(axes, change, row, (low, high))
    handles = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=name)
        for name, (colour, hatch) in look.items()
    ]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)


def fill_styles(rules: Iterable[Rule]) -> dict[str, FillStyle]:
    """Return colour and hatch of each choice: grey for the default, plain for the most frequent."""
    number = Counter(rule.choice for rule in rules)
    named = {str(choice): choice.algorithm for choice, _ in number.most_common()}
    return {**palette.fill_styles(named), "default": (DEFAULT_COLOUR, "")}


def _limits(rules: Iterable[Rule]) -> tuple[float, float]:
    """Return the limits of the size axis, which include all rule starts and all probed sizes."""
    sizes = {n for rule in rules for n in (rule.start_bytes, *rule.evidence.nbytes) if n > 0} or {1}
    return min(sizes) / 2, max(sizes) * 2


def _frame(axes: Axes, drawn: TableDiffFigure, low: float, high: float) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlim(low, high)
    axes.set_ylim(len(drawn.changes) - 0.45, -0.55)
    axes.xaxis.set_major_locator(
        FixedLocator(powers_of_two(max(math.ceil(low), 1), math.floor(high)))
    )
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_size(value)))
    axes.set_yticks(range(len(drawn.changes)), [_call(key) for key in drawn.changes])
    axes.tick_params(left=False)
    axes.grid(visible=False)
    for side in ("left", "top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel(
        "message size; dots: sizes with evidence for a rule\nframed: what changed, and how many"
        " times as fast it becomes (green: surely faster, purple: surely slower)"
    )


def _title(drawn: TableDiffFigure) -> str:
    where = f"{drawn.new.library} on {drawn.new.cluster.name}"
    if not drawn.changes:
        return f"{where}: both tables decide alike"
    more = f"; {drawn.omitted_calls} more calls changed" if drawn.omitted_calls else ""
    return f"{where}: rules before (upper lane) and after (lower lane){more}"


def _call(key: RuleKey) -> str:
    operators = "\ncommutative" if key.operators == "commutative" else ""
    memory = "" if key.memory == "host" else f" {key.memory}"
    return f"{key.collective} {key.shape}{memory}{operators}"


def _draw_lane(
    axes: Axes,
    rule_list: Sequence[Rule],
    middle: float,
    look: Mapping[str, FillStyle],
    limits: tuple[float, float],
) -> None:
    """Draw the rules, and a dot at each size that a rule is based on."""
    for rule in rule_list:
        lo, hi = max(rule.start_bytes, limits[0]), min(rule.stop_bytes, limits[1])
        colour, hatch = look[str(rule.choice)]
        if lo < hi:
            axes.barh(
                middle,
                hi - lo,
                LANE_HEIGHT,
                lo,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                linewidth=0.5,
            )
        if not rule.choice.is_default:
            sizes = rule.evidence.nbytes
            axes.plot(sizes, [middle] * len(sizes), ".", color="white", markersize=3.5)


def _draw_change(axes: Axes, change: RuleChange, row: int, limits: tuple[float, float]) -> None:
    lo, hi = max(change.start_bytes, limits[0]), min(change.stop_bytes, limits[1])
    if lo >= hi:
        return
    sure = change.has_gain and not change.interval[0] <= 1 <= change.interval[1]
    colour = (GAIN_COLOUR if change.gain > 1 else LOSS_COLOUR) if sure else TEXT_COLOUR
    axes.barh(row, hi - lo, 2 * LANE_HEIGHT, lo, color="none", edgecolor=colour, linewidth=1.1)
    room = math.log2(hi / lo) / math.log2(limits[1] / limits[0]) * WIDTH_IN * 0.65
    text = f"\u00d7{change.gain:.2f}"
    if change.has_gain and room > LETTER_WIDTH_IN * len(text):
        axes.text(
            math.sqrt(lo * hi),
            row,
            text,
            ha="center",
            va="center",
            fontsize=8,
            color=colour,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.9},
        )
