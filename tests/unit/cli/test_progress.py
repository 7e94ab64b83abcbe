"""What people see while they wait."""

import io

import pytest
from rich.console import Console

from tuner.base import progress
from tuner.base.progress import progress_from_counts
from tuner.cli.terminal.progress import Display, format_clock


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (65.4, "1:05"), (-3, "0:00")])
def test_clock(seconds: float, text: str) -> None:
    assert format_clock(seconds) == text


def display(*, terminal: bool) -> tuple[Display, io.StringIO]:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=100, highlight=False)
    return Display(console, remaining_after=90.0), screen


def test_a_pipe_gets_lines_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.cli.terminal.progress.LINE_INTERVAL_S", 0.0)
    shown, screen = display(terminal=False)
    with shown.stage("probing", 30.0) as report:
        report(0.5, 15.0, "bcast [4 ranks]")
        report(0.0, None, "starting")
    lines = screen.getvalue().splitlines()
    assert lines[0] == "probing ... (1:30 left in all)"
    assert lines[1] == "  probing:  50%, 0:15 left (1:15 left in all)  bcast [4 ranks]"
    assert "just begun" in lines[2]
    assert lines[3].startswith("done")


def test_times_left_never_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.cli.terminal.progress.LINE_INTERVAL_S", 0.0)
    shown, screen = display(terminal=False)
    with shown.stage("probing", 30.0) as report:
        report(0.5, 15.0, "")
        report(0.6, 40.0, "")
    with shown.stage("tuning", 30.0) as report:
        report(0.1, 50.0, "")
    lines = [line for line in screen.getvalue().splitlines() if line.startswith("  ")]
    assert [line.split(", ")[1].strip() for line in lines] == [
        "0:15 left (1:15 left in all)",
        "0:15 left (1:15 left in all)",
        "0:50 left (1:00 left in all)",  # as the stage began
    ]


def test_a_pipe_is_not_flooded() -> None:
    shown, screen = display(terminal=False)
    with shown.stage("probing") as report:
        for number in range(1000):
            report(number / 1000, 1.0, "")
    assert len(screen.getvalue().splitlines()) == 2


def test_a_terminal_gets_a_bar_that_is_cleared() -> None:
    shown, screen = display(terminal=True)
    with shown.stage("probing", 30.0) as report:
        report(0.5, 15.0, "bcast")
    assert "\x1b[2K" in screen.getvalue()
    assert "done" in screen.getvalue().splitlines()[-1]


def test_a_stage_that_fails_is_not_called_done() -> None:
    shown, screen = display(terminal=False)
    with pytest.raises(KeyboardInterrupt), shown.stage("probing"):
        raise KeyboardInterrupt
    assert "done" not in screen.getvalue()


def test_counting_says_nothing_about_the_time_until_enough_is_done() -> None:
    told: list[float | None] = []
    tell = progress_from_counts(lambda fraction, left, text: told.append(left))
    tell(1, 100)
    tell(50, 100)
    assert told[0] is None
    assert told[1] is not None
    assert told[1] >= 0


def test_what_was_done_before_says_nothing_about_the_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = iter([0.0, 1.0, 10.0])
    monkeypatch.setattr("tuner.base.progress.time.monotonic", lambda: next(now))
    told: list[float | None] = []
    tell = progress.with_eta(lambda fraction, left, text: told.append(left))
    for fraction in (0.6, 0.61, 0.8):
        tell(fraction, "")
    assert told[:2] == [None, None]
    assert told[2] == pytest.approx(10.0)
