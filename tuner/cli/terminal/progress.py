"""Progress on the terminal: what is happening, and how long it will take.

A terminal gets one bar that is redrawn; a pipe or a log gets a line every few seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tuner.base.progress import ProgressCallback, StageCallback, no_progress, with_eta
from tuner.base.units import format_size, humanize
from tuner.cli.terminal.layout import display_width, shorten, wrap
from tuner.cli.terminal.output import console

REFRESHES_PER_S = 2  # times per second; more would take time from the ranks being measured
LINE_INTERVAL_S = 5.0  # seconds between lines where no bar can be redrawn
BAR_WIDTH = 16  # columns of text
LARGE_INPUT_BYTES = 32 << 20  # bytes; reading more takes seconds


def format_clock(seconds: float) -> str:
    """Return minutes and seconds, such as `2:05`."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


@dataclass
class Display:
    """A display of stages, one after the other. The times left that it shows never rise.

    console             default: standard error
    remaining_after     expected seconds of the stages after the present one
    shown_left          shortest time left of this stage that was shown, in seconds
    shown_in_all        shortest time left in all that was shown, in seconds
    """

    console: Console = field(default_factory=lambda: console(error=True))
    remaining_after: float = 0.0
    shown_left: float = math.inf
    shown_in_all: float = math.inf

    @contextmanager
    def stage(self, title: str, expected: float = 0.0) -> Iterator[StageCallback]:
        """Announce a stage, show what it reports, and say how long it took.

        expected    seconds it will take, subtracted from `remaining_after` (which includes it)
        """
        self.remaining_after = max(0.0, self.remaining_after - expected)
        self.shown_left = math.inf
        begun = time.monotonic()
        if self.console.is_terminal:
            with self._bar(title, expected) as report:
                yield report
        else:
            self.note(f"{title} ...{self._whole(expected)}")
            yield self.line_report(title)
        took = format_clock(time.monotonic() - begun)
        done = Text(wrap(f"done  {title}  ({took})", self.console.width))
        done.stylize("green", 0, len("done"))
        self.console.print(done, soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(Text(wrap(humanize(text), self.console.width)), soft_wrap=True)

    def _left(self, left: float | None) -> str:
        """Return the time left of this stage, and in all if other stages follow."""
        if left is None:
            return "just begun"
        self.shown_left = left = min(self.shown_left, left)
        return f"{format_clock(left)} left{self._whole(left) if self.remaining_after else ''}"

    def _whole(self, left: float) -> str:
        self.shown_in_all = whole = min(self.shown_in_all, self.remaining_after + left)
        return f" ({format_clock(whole)} left in all)" if whole >= 1 else ""

    @contextmanager
    def _bar(self, title: str, expected: float) -> Iterator[StageCallback]:
        line = _Line(title, left=self._left(expected) if expected else "")

        def report(fraction: float, left: float | None, text: str) -> None:
            line.fraction, line.left, line.text = fraction, self._left(left), humanize(text)

        with Live(line, console=self.console, transient=True, refresh_per_second=REFRESHES_PER_S):
            yield report

    def line_report(self, title: str) -> StageCallback:
        """Return a callback that prints a line every few seconds, and nothing for a quick stage."""
        last = time.monotonic()

        def report(fraction: float, left: float | None, text: str) -> None:
            nonlocal last
            if time.monotonic() - last >= LINE_INTERVAL_S:
                last = time.monotonic()
                self.note(f"  {title}: {fraction:4.0%}, {self._left(left)}  {text}")

        return report


@contextmanager
def reading(title: str, nbytes: int) -> Iterator[ProgressCallback]:
    """Yield a callback for the bytes read so far and in all, which shows them if they are many."""
    if nbytes < LARGE_INPUT_BYTES:
        yield no_progress
        return
    with Display().stage(title) as report:
        tell = with_eta(report)
        yield lambda done, whole: tell(done / whole, f"{format_size(done)} of {format_size(whole)}")


@dataclass
class _Line:
    """A line that is redrawn.

    If it is too long, parts are left out in this order: what is happening, the bar, the time left
    in all, the end of the title.
    """

    title: str
    left: str
    fraction: float = 0.0
    text: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        done = f"{self.fraction:.0%}".replace("%", " %")
        times = f"{done:>5}  {self.left}"
        if display_width(f"{self.title} {times}") > options.max_width:
            times = times.partition(" (")[0]
        title = shorten(self.title, options.max_width - display_width(times) - 1)
        room = options.max_width - display_width(title) - display_width(times) - 1
        cells: list[Text | ProgressBar] = [Text(title), Text(times)]
        if room > BAR_WIDTH:
            cells.insert(1, ProgressBar(1.0, min(1.0, self.fraction), width=BAR_WIDTH))
            cells.append(Text(shorten(self.text, room - BAR_WIDTH - 3), "dim"))
        line = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
        line.add_row(*cells)
        yield line
