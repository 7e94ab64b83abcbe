"""The plots of the report's page, as SVG whose colours come from the page's style sheet.

Their texts grow on narrow screens, so labels are few. What a plot shows at a size stands in the
table below it, from which the page's script takes what it says about the size pointed at.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from tuner.base.units import format_range, format_size, format_time, humanize
from tuner.core.table import DEFAULT, Rule
from tuner.report.curves import Curve
from tuner.report.palette import LIGHT, dash_number, place_of

WIDTH = 540.0
HEIGHT = 300.0
LEFT = 62.0  # margins
RIGHT = 12.0
TOP = 10.0
STRIP_HEIGHT = 16.0
TICKS_HEIGHT = 26.0
LETTER_WIDTH = 11.0  # of a letter on a narrow screen
MAX_TICKS = 6
MIN_RATIO = 0.1  # below it a curve leaves the plot
MAX_RATIO = 3.0  # above it a curve leaves the plot
RATIO_TICKS = (0.1, 0.15, 0.25, 0.4, 0.6, 0.8, 1, 1.2, 1.5, 2, 3)


@dataclass(frozen=True)
class PlotFrame:
    """The area of a plot and its scales, both logarithmic.

    sizes       ascending
    low, high   limits of the vertical axis
    bottom      of the area
    """

    sizes: Sequence[int]
    low: float
    high: float
    bottom: float

    def x(self, nbytes: float) -> float:
        """Return the place of a size; that of a size beyond the ends is at the end."""
        first, last = _log_size(self.sizes[0]), _log_size(self.sizes[-1])
        span = max(last - first, 1e-9)
        share = min(max((_log_size(nbytes) - first) / span, -0.03), 1.03)
        if first == last:
            share = 0.5
        return LEFT + (WIDTH - LEFT - RIGHT) * (share + 0.03) / 1.06

    def y(self, value: float) -> float:
        return TOP + (self.bottom - TOP) * math.log(self.high / value) / math.log(
            self.high / self.low
        )


def _log_size(nbytes: float) -> float:
    """Return the logarithm of a size; 0 bytes are as far from 1 byte as that is from 2."""
    return math.log2(nbytes) if nbytes > 0 else -1.0


def curve_class(name: str) -> str:
    """Return the classes that give a curve its colour and its dashes."""
    if name == DEFAULT:
        return "a-default"
    algorithm = name.partition(" ")[0]
    return f"a{place_of(algorithm) % len(LIGHT)} d{dash_number(algorithm)}"


def fastest_names(curves: Mapping[str, Curve]) -> list[str]:
    """Return the curves that are the fastest at some size, the most frequent first."""
    best: dict[int, tuple[float, str]] = {}
    for name, curve in curves.items():
        for call in curve:
            best[call.nbytes] = min(best.get(call.nbytes, (math.inf, "")), (call.seconds, name))
    return [name for name, _ in Counter(name for _, name in best.values()).most_common()]


def ratio_plot(
    curves: Mapping[str, Curve],
    leading: set[str],
    banded: set[str],
    rule_lists: Mapping[str, Sequence[Rule]],
) -> str:
    """Return the plot of the time relative to the default, above the table's rules.

    leading     curves in colour
    banded      curves with their 95 % intervals as bands
    rule_lists  rules by the operators that they are for
    """
    bottom = HEIGHT - TICKS_HEIGHT - STRIP_HEIGHT * len(rule_lists) - 4
    frame = PlotFrame(_sizes(curves), *_ratio_limits(curves, leading), bottom)
    ordered = sorted(curves.keys() - {DEFAULT}, key=lambda name: (name in leading, name))
    drawn = [_band(frame, curves[name], name) for name in ordered if name in banded]
    for name in ordered:
        points = [(call.nbytes, call.relative[0]) for call in curves[name] if call.relative]
        drawn.append(_line(frame, points, name, name in leading))
    around = [_ratio_grid(frame)]
    for number, (operators, rule_list) in enumerate(rule_lists.items()):
        around.append(_strip(frame, rule_list, bottom + 4 + STRIP_HEIGHT * number, operators))
    return _svg(frame, around, drawn, "Time relative to the default over the message size")


def time_plot(
    curves: Mapping[str, Curve], predicted: Mapping[str, Mapping[int, float]], leading: set[str]
) -> str:
    """Return the plot of the measured time, with predicted times as rings."""
    times = [call.seconds for curve in curves.values() for call in curve if call.seconds > 0]
    frame = PlotFrame(_sizes(curves), min(times) / 1.5, max(times) * 1.5, HEIGHT - TICKS_HEIGHT)
    drawn = []
    for name in sorted(curves, key=lambda name: (name == DEFAULT, name in leading, name)):
        points = [(call.nbytes, call.seconds) for call in curves[name] if call.seconds > 0]
        drawn.append(_line(frame, points, name, name in leading or name == DEFAULT))
        drawn += _rings(frame, predicted.get(name, {}), name) if name in leading else []
    return _svg(frame, [_time_grid(frame)], drawn, "Time of one call over the message size")


def interval_bar(ratio: float, low: float, high: float, limits: tuple[float, float]) -> str:
    """Return a bar of a ratio with its interval beside the line of 1.0, for a row of a table."""
    width, middle = 200.0, 9.0

    def x(value: float) -> float:
        inside = min(max(value, limits[0]), limits[1])
        return 4 + (width - 8) * math.log(inside / limits[0]) / math.log(limits[1] / limits[0])

    kind = "gain" if high < 1 else "loss" if low > 1 else "noise"
    return (
        f'<svg class="bar" viewBox="0 0 {width:g} 18" aria-hidden="true">'
        f'<path class="one" d="M{x(1):.1f} 0V18"/>'
        f'<path class="{kind}" d="M{x(low):.1f} {middle}H{x(high):.1f}"/>'
        f'<circle class="{kind}" cx="{x(ratio):.1f}" cy="{middle}" r="4"/></svg>'
    )


def _sizes(curves: Mapping[str, Curve]) -> list[int]:
    return sorted({call.nbytes for curve in curves.values() for call in curve})


def _ratio_limits(curves: Mapping[str, Curve], leading: set[str]) -> tuple[float, float]:
    known = [
        call.relative[0] for name in leading for call in curves[name] if call.relative is not None
    ]
    low, high = min([0.9, *known]) * 0.93, max([1.25, *known]) * 1.07
    return max(low, MIN_RATIO), min(high, MAX_RATIO)


def _ratio_grid(frame: PlotFrame) -> str:
    wide = frame.high / frame.low > 6
    ticks = [tick for tick in RATIO_TICKS if frame.low <= tick <= frame.high]
    shown = [tick for tick in ticks if not wide or tick not in (0.15, 0.8, 1.2)]
    lines = [_grid_line(frame, tick, f"{tick:g}\u00d7", tick == 1) for tick in shown]
    return "".join(lines) + _size_ticks(frame)


def _time_grid(frame: PlotFrame) -> str:
    steps = (1, 2, 5) if frame.high / frame.low < 300 else (1,)
    powers = range(math.floor(math.log10(frame.low)), math.ceil(math.log10(frame.high)))
    times = [step * 10.0**power for power in powers for step in steps]
    lines = [
        _grid_line(frame, time, format_time(time), False)
        for time in times
        if frame.low <= time <= frame.high
    ]
    return "".join(lines) + _size_ticks(frame)


def _grid_line(frame: PlotFrame, value: float, label: str, is_one: bool) -> str:
    y = frame.y(value)
    return (
        f'<path class="{"one" if is_one else "grid"}" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    )


def _size_ticks(frame: PlotFrame) -> str:
    stride = math.ceil(len(frame.sizes) / MAX_TICKS)
    parts, edge = [], -math.inf
    for nbytes in frame.sizes[::stride]:
        x, half = frame.x(nbytes), LETTER_WIDTH * len(format_size(nbytes)) / 2 + 4
        if x - half >= edge:
            parts.append(
                f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">'
                f"{format_size(nbytes)}</text>"
            )
            edge = x + half
    return "".join(parts)


def _line(
    frame: PlotFrame, points: Sequence[tuple[int, float]], name: str, is_leading: bool
) -> str:
    if not points:
        return ""
    path = "L".join(f"{frame.x(size):.1f} {frame.y(value):.1f}" for size, value in points)
    classes = f"curve {curve_class(name)}" if is_leading else "curve faint"
    dots = "".join(
        f'<circle cx="{frame.x(size):.1f}" cy="{frame.y(value):.1f}" r="2.6"/>'
        for size, value in points
    )
    return f'<g class="{classes}"><path d="M{path}"/>{dots if is_leading else ""}</g>'


def _band(frame: PlotFrame, curve: Curve, name: str) -> str:
    known = [(frame.x(call.nbytes), call.relative) for call in curve if call.relative]
    if name == DEFAULT or len(known) < 2:
        return ""
    lower = [f"{x:.1f} {frame.y(relative[1]):.1f}" for x, relative in known]
    upper = [f"{x:.1f} {frame.y(relative[2]):.1f}" for x, relative in reversed(known)]
    return f'<path class="band {curve_class(name)}" d="M{"L".join([*lower, *upper])}Z"/>'


def _rings(frame: PlotFrame, predicted: Mapping[int, float], name: str) -> list[str]:
    return [
        f'<circle class="ring {curve_class(name)}" cx="{frame.x(size):.1f}"'
        f' cy="{frame.y(seconds):.1f}" r="4.5"/>'
        for size, seconds in predicted.items()
        if frame.low <= seconds <= frame.high and size in frame.sizes
    ]


def _strip(frame: PlotFrame, rule_list: Sequence[Rule], top: float, operators: str) -> str:
    """Return which algorithm the table takes at which size, as a coloured strip."""
    label = "table" if operators == "any" else "commut."
    parts = [f'<text class="tick" x="{LEFT - 6}" y="{top + 11}" text-anchor="end">{label}</text>']
    for rule in rule_list:
        left = LEFT if rule.start_bytes == 0 else frame.x(rule.start_bytes)
        right = frame.x(rule.stop_bytes)
        if right <= left:
            continue
        name = rule.choice.algorithm
        said = f"{format_range(rule.start_bytes, rule.stop_bytes)}: {humanize(str(rule.choice))}"
        parts.append(
            f'<rect class="rule {curve_class(name)}" x="{left:.1f}" y="{top}"'
            f' width="{right - left - 1:.1f}" height="{STRIP_HEIGHT - 3}">'
            f"<title>{escape(said)}</title></rect>"
        )
    return "".join(parts)


def _svg(frame: PlotFrame, around: Iterable[str], drawn: Iterable[str], label: str) -> str:
    """Return the plot; what is drawn is clipped to the area, as an inner picture is."""
    places = " ".join(f"{size}:{frame.x(size):.1f}" for size in frame.sizes)
    width, height = WIDTH - LEFT - RIGHT, frame.bottom - TOP
    area = f'x="{LEFT}" y="{TOP}" width="{width}" height="{height}"'
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" tabindex="0"'
        f' aria-label="{label}" data-places="{places}">{"".join(around)}'
        f'<svg {area} viewBox="{LEFT} {TOP} {width} {height}">{"".join(drawn)}</svg>'
        f'<path class="cursor" d="M0 {TOP}V{frame.bottom:.1f}" visibility="hidden"/></svg>'
    )
