"""Comparison of what two runs of a program say."""

from __future__ import annotations

import re

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[EeDd][-+]?\d+)?")


def largest_difference(one: str, other: str, unsteady: str) -> float:
    """Return the largest relative difference of two numbers at the same place of two outputs.

    unsteady    regular expression of what is left out, in which ^ and $ are those of a line

    Raises AssertionError where they differ in anything but numbers.
    """
    first, second = (_lines(text, unsteady) for text in (one, other))
    worst = 0.0
    for left, right in zip(first, second, strict=False):
        assert NUMBER.sub("#", left) == NUMBER.sub("#", right), f"{left!r}, but {right!r}"
        numbers = zip(NUMBER.findall(left), NUMBER.findall(right), strict=True)
        worst = max([worst, *(_difference(_value(a), _value(b)) for a, b in numbers)])
    assert len(first) == len(second), f"{len(first)} lines, but {len(second)}"
    return worst


def _lines(text: str, unsteady: str) -> list[str]:
    """Return the steady lines, with single spaces between words."""
    kept = re.sub(unsteady, "", text, flags=re.MULTILINE)
    return [" ".join(line.split()) for line in kept.splitlines() if line.strip()]


def _value(number: str) -> float:
    return float(re.sub("[Dd]", "e", number))


def _difference(one: float, other: float) -> float:
    return abs(one - other) / (max(abs(one), abs(other)) or 1.0)
