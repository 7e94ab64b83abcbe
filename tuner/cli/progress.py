"""What a person sees while something long runs: what is happening, and how long it will take.

A terminal gets one bar that is redrawn; a pipe or a log gets a line every few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from tuner.progress import Counted

ENOUGH = 0.1  # done fraction from which on the time taken tells the time left
REDRAWN = 2  # times per second; more would steal time from the ranks being measured
LINE_EVERY = 5.0  # seconds between lines where no bar can be redrawn

Report = Callable[[float, float | None, str], None]
# (fraction done, seconds left or None while nobody knows, what is happening)


def clock(seconds: float) -> str:
    """`2:05`."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


@dataclass
class Display:
    """Stages one after the other; `later` is how long the stages after the present one take."""

    console: Console
    later: float = 0.0
    _begun: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        """Seconds since the first stage began."""
        return time.monotonic() - self._begun

    @contextmanager
    def stage(self, title: str, expected: float = 0.0) -> Iterator[Report]:
        """Announce a stage, show what it reports, and say how long it took.

        expected    seconds it will take, counted off `later` (which includes it)
        """
        self.later = max(0.0, self.later - expected)
        begun = time.monotonic()
        if self.console.is_terminal:
            with self._bar(title, expected) as report:
                yield report
        else:
            self.console.print(f"{title} ...{self._whole(expected)}", markup=False)
            yield self.lines(title)
        took = clock(time.monotonic() - begun)
        self.console.print(f"[green]done[/green]  {title}  ({took})")

    def skip(self, text: str, expected: float) -> None:
        """A stage that need not run."""
        self.later = max(0.0, self.later - expected)
        self.note(text)

    def note(self, text: str) -> None:
        """A line that stays."""
        self.console.print(text, markup=False)

    def _left(self, left: float | None) -> str:
        """Of this stage, and of everything where there is more to come."""
        if left is None:
            return "just begun"
        return f"{clock(left)} left{self._whole(left) if self.later else ''}"

    def _whole(self, left: float) -> str:
        return f" ({clock(self.later + left)} left in all)" if self.later + left >= 1 else ""

    @contextmanager
    def _bar(self, title: str, expected: float) -> Iterator[Report]:
        whole = Column(no_wrap=True)
        rest = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        columns = (
            TextColumn("{task.description}", table_column=whole), BarColumn(16),
            TextColumn("{task.percentage:3.0f} %  {task.fields[times]}", table_column=whole),
            TextColumn("[dim]{task.fields[text]}", table_column=rest),
        )  # fmt: skip
        with Progress(
            *columns, console=self.console, transient=True, expand=True,
            refresh_per_second=REDRAWN,
        ) as progress:  # fmt: skip
            times = self._left(expected) if expected else ""
            task = progress.add_task(title, total=1.0, times=times, text="")
            yield self._redraw(progress, task)

    def _redraw(self, progress: Progress, task: TaskID) -> Report:
        def report(fraction: float, left: float | None, text: str) -> None:
            progress.update(task, completed=fraction, times=self._left(left), text=text)

        return report

    def lines(self, title: str) -> Report:
        """Of what need not be announced: nothing is said while it is quick."""
        last = time.monotonic()

        def report(fraction: float, left: float | None, text: str) -> None:
            nonlocal last
            if time.monotonic() - last >= LINE_EVERY:
                last = time.monotonic()
                self.console.print(
                    f"  {title}: {fraction:4.0%}, {self._left(left)}  {text}", markup=False
                )

        return report


def timed(report: Report) -> Callable[[float, str], None]:
    """A callback (fraction, text) that estimates the time left from the time taken.

    What the first call reports was done before, or takes no time worth counting.
    """
    first: tuple[float, float] | None = None

    def tell(fraction: float, text: str) -> None:
        nonlocal first
        now = time.monotonic()
        begun, before = first = first or (now, fraction)
        done = fraction - before
        left = (now - begun) * (1 - fraction) / done if done > ENOUGH * (1 - before) else None
        report(fraction, left, text)

    return tell


def within(tell: Callable[[float, str], None], part: int, parts: int, text: str) -> Counted:
    """A callback (done, total) of one of several equal parts, of what `tell` hears of whole."""
    return lambda done, total: tell((part + done / total) / parts, text)


def counted(report: Report) -> Counted:
    """Likewise a callback (done, total)."""
    tell = timed(report)
    return lambda done, total: tell(done / total if total else 1.0, f"{done} of {total}")
