"""The ring of recorded calls: what it keeps, what it sums up, how ranks are put together."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.runtime import feedback
from tuner.runtime.feedback import Item, Ring, Shape, merge

SMALL = Shape("bcast", 1, 8, "host", "any", "binomial", 64)
LARGE = SMALL._replace(nbytes=65536, algorithm="pipeline(segment=32768)")


def test_calls_are_summed_up_by_shape() -> None:
    ring = Ring()
    small, large = ring.shape(SMALL), ring.shape(LARGE)
    assert ring.shape(SMALL) == small != large
    for seconds in (3.0, 1.0, 2.0, 9.0, 2.5):
        ring.record(small, seconds)
    ring.record(large, 7.0)
    assert ring.summary() == [Item(SMALL, 5, 2.5, 9.0), Item(LARGE, 1, 7.0, 7.0)]
    assert ring.summary()[1].record() == {
        "collective": "bcast", "nodes": 1, "ppn": 8, "memory": "host", "operators": "any",
        "algorithm": "pipeline(segment=32768)", "nbytes": 65536, "calls": 1, "median_s": 7.0,
        "max_s": 7.0,
    }  # fmt: skip


def test_the_oldest_calls_are_forgotten() -> None:
    ring = Ring(capacity=4)
    small, large = ring.shape(SMALL), ring.shape(LARGE)
    for seconds in (100.0, 100.0):
        ring.record(large, seconds)
    for seconds in (1.0, 2.0, 3.0):
        ring.record(small, seconds)
    assert ring.summary() == [Item(SMALL, 3, 2.0, 3.0), Item(LARGE, 1, 100.0, 100.0)]
    ring.record(small, 4.0)
    assert [item.calls for item in ring.summary()] == [4]


def test_there_is_no_end_of_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback, "SHAPES", 2)
    ring = Ring()
    numbers = [ring.shape(SMALL._replace(nbytes=n)) for n in range(5)]
    for number in numbers:
        ring.record(number, 1.0)
    assert [item.shape.nbytes for item in ring.summary()] == [0, 1]


def test_a_collective_took_as_long_as_on_its_slowest_rank() -> None:
    ranks = [[Item(SMALL, 5, median, longest)] for median, longest in ((2.0, 3.0), (1.0, 8.0))]
    ranks[1].append(Item(LARGE, 9, 1.0, 1.0))
    assert merge(ranks) == [Item(LARGE, 9, 1.0, 1.0), Item(SMALL, 5, 2.0, 8.0)]


def test_a_report_has_the_shapes_with_the_most_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback, "ITEMS", 3)
    ring, rng = Ring(), np.random.default_rng(0)
    for n in rng.permutation(10):
        number = ring.shape(SMALL._replace(nbytes=int(n)))
        for _ in range(n):
            ring.record(number, 1.0)
    assert [item.shape.nbytes for item in ring.summary()] == [9, 8, 7]
    assert [item.calls for item in merge([ring.summary()])] == [9, 8, 7]
