"""The comparison of results notices what differs."""

from __future__ import annotations

import pytest

from tests.programs.results import largest_difference

RESULTS = "step 1 energy -7.785D+00\nstep 2 energy -7.8\n10 s"
STEPS = r"^step .*"


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (RESULTS, 0.0),
        (RESULTS.replace("10 s", "20 s"), 0.0),
        (RESULTS.replace("-7.8\n", "-3.9\n"), 0.5),
        (RESULTS.replace("-7.8\n", "7.8\n"), 2.0),
    ],
)
def test_numbers_differ(other: str, difference: float) -> None:
    assert largest_difference(RESULTS, other, STEPS) == difference


@pytest.mark.parametrize(
    "other",
    [RESULTS.replace("energy", "force"), RESULTS.replace("step 2", ""), "", f"{RESULTS}\nstep 3"],
)
def test_other_differences_are_refused(other: str) -> None:
    with pytest.raises(AssertionError):
        largest_difference(RESULTS, other, STEPS)


def test_there_must_be_results() -> None:
    with pytest.raises(AssertionError, match="have no"):
        largest_difference(RESULTS, RESULTS, "iterations")
