"""The timeline: streams, dependencies, calls on all ranks."""

from __future__ import annotations

import numpy as np

from tuner.training.timeline import CALL, FORWARD, Timeline, busy_seconds


def test_operations_of_a_stream_follow_one_another() -> None:
    timeline = Timeline()
    timeline.add("a", "compute", FORWARD, 2.0)
    timeline.add("b", "compute", FORWARD, 3.0)
    timeline.add("c", "other", FORWARD, 1.0)
    assert [float(one.start[0]) for one in timeline.operations] == [0.0, 2.0, 0.0]
    assert timeline.end_of("compute") == 5.0
    assert timeline.end_of("idle") == 0.0


def test_an_operation_waits_for_others_and_for_a_moment() -> None:
    timeline = Timeline()
    first = timeline.add("a", "compute", FORWARD, 2.0)
    second = timeline.add("b", "other", FORWARD, 1.0, [first])
    third = timeline.add("c", "third", FORWARD, 1.0, [first], not_before=7.0)
    assert timeline.ready([second]) == 3.0
    assert timeline.ready([third]) == 8.0
    assert timeline.ready([]) == 0.0


def test_a_call_begins_when_the_last_rank_is_there() -> None:
    timeline = Timeline(3)
    computed = timeline.add("a", "compute", FORWARD, np.array([1.0, 5.0, 2.0]))
    called = timeline.add("b", "communication", CALL, 2.0, [computed])
    after = timeline.add("c", "compute", FORWARD, 1.0)
    assert timeline.operations[called].start.tolist() == [5.0, 5.0, 5.0]
    assert timeline.operations[called].end.tolist() == [7.0, 7.0, 7.0]
    assert timeline.operations[after].end.tolist() == [2.0, 6.0, 3.0]


def test_busy_seconds_count_what_overlaps_once() -> None:
    timeline = Timeline()
    timeline.add("a", "one", CALL, 4.0)
    timeline.add("b", "two", CALL, 2.0, not_before=3.0)
    timeline.add("c", "three", CALL, 1.0, not_before=10.0)
    assert busy_seconds(timeline.operations) == 6.0
