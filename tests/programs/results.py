"""Comparison of the results of two runs of a program."""

from __future__ import annotations

import re

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[EeDd][-+]?\d+)?")


def largest_difference(one: str, other: str, compared: str) -> float:
    """Return the largest relative difference of two numbers at the same place of two results.

    compared    regular expression of the parts that are compared

    Raises AssertionError where these differ in anything but numbers, or where there are none.
    """
    first, second = (_parts(text, compared) for text in (one, other))
    assert first, f"the results have no {compared!r}"
    worst = 0.0
    for left, right in zip(first, second, strict=False):
        assert NUMBER.sub("#", left) == NUMBER.sub("#", right), f"{left!r}, but {right!r}"
        numbers = zip(NUMBER.findall(left), NUMBER.findall(right), strict=True)
        worst = max([worst, *(_difference(_value(a), _value(b)) for a, b in numbers)])
    assert len(first) == len(second), f"{len(first)} results, but {len(second)}"
    return worst


def _parts(text: str, compared: str) -> list[str]:
    """Return the parts that are compared, with single spaces between words."""
    return [" ".join(m[0].split()) for m in re.finditer(compared, text, re.MULTILINE)]


def _value(number: str) -> float:
    return float(re.sub("[Dd]", "e", number))


def _difference(one: float, other: float) -> float:
    return abs(one - other) / (max(abs(one), abs(other)) or 1.0)
