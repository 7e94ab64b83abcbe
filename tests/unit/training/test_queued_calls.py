"""Calls that follow one another without a pause, whose ranks are out of step from the beginning."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tuner.core.calibration import Calibration, CostSegment, Estimate, PathCost
from tuner.core.collective import Collective
from tuner.core.path_classes import HOST, NETWORK, NETWORK_BIDIRECTIONAL, NETWORK_RING
from tuner.topology import Placement
from tuner.training.call_times import CallTimes
from tuner.training.groups import Call, Group
from tuner.training.job import TrainingJob
from tuner.training.policies import FastestKnown
from tuner.training.recorded import COMMUNICATION
from tuner.training.timeline import CALL, COPY, FORWARD, Timeline
from tuner.training.workload import Workload, workload_from_record

RANKS = 8
NBYTES = 1 << 20
BETA = 1e-7
LONG = 1 << 16
CALL_OF_ALL = Call(Collective.ALLREDUCE.value, NBYTES, Group(RANKS))


def path(long_beta: float) -> PathCost:
    """Return a cost that is BETA for messages below LONG bytes."""
    zero = Estimate.exact(0.0)
    segments = (
        CostSegment(0.0, LONG, zero, Estimate.exact(BETA)),
        CostSegment(LONG, math.inf, zero, Estimate.exact(long_beta)),
    )
    return PathCost(segments, math.inf, zero)


def workload(calibration: Calibration | None = None) -> Workload:
    machine = {"name": "eight", "nodes": RANKS, "latency": "0us", "bandwidth": "10MB/s"}
    made = workload_from_record(
        {
            "model": "resnet50",
            "batch": 1,
            "rate": 1,
            "framework": "ddp",
            "topology": {**machine, "latency": "1us"},
            "ranks": RANKS,
            "algorithms": ["recursive_doubling"],
        },
        Path(),
    )
    own = calibration or made.machine.calibration
    return replace(made, machine=replace(made.machine, calibration=own))


def times(*, exchanges: bool) -> CallTimes:
    """Times where an exchange out of step takes twice as long as a message, if that is known."""
    made = workload()
    classes = {(NETWORK, HOST): path(BETA)}
    if exchanges:
        classes |= {(one, HOST): path(2 * BETA) for one in (NETWORK_BIDIRECTIONAL, NETWORK_RING)}
    calibration = replace(made.machine.calibration, paths=classes, reduction={})
    placement = Placement.block(made.machine.topology, 1, RANKS)
    return CallTimes(placement, calibration, HOST, FastestKnown(("recursive_doubling",)))


def test_the_first_round_of_a_queued_call_is_not_in_step() -> None:
    """Three rounds: one message and two exchanges; after another call three exchanges."""
    known = times(exchanges=True)
    message = BETA * NBYTES
    assert known.seconds(CALL_OF_ALL) == pytest.approx(5 * message, rel=0.01)
    assert known.seconds_after(CALL_OF_ALL, CALL_OF_ALL) == pytest.approx(6 * message, rel=0.01)


def test_without_costs_of_exchanges_a_queued_call_takes_its_usual_time() -> None:
    known = times(exchanges=False)
    assert known.seconds_after(CALL_OF_ALL, CALL_OF_ALL) == known.seconds(CALL_OF_ALL)


def test_ranks_stay_in_step_after_short_messages() -> None:
    """An exchange of messages below the limit takes no longer than one message."""
    known, short = times(exchanges=True), CALL_OF_ALL._replace(nbytes=1 << 10)
    assert known.seconds_after(short, CALL_OF_ALL) == known.seconds(CALL_OF_ALL)
    assert known.seconds_after(CALL_OF_ALL, short) == pytest.approx(known.seconds(short), rel=0.01)


def test_a_call_follows_another_one_if_its_stream_does_not_pause() -> None:
    timeline = Timeline()
    computed = timeline.add("layer", "compute", FORWARD, 1.0)
    assert timeline.call_before(COMMUNICATION, [computed]) is None
    timeline.add("allreduce", COMMUNICATION, CALL, 2.0, [computed], call=CALL_OF_ALL)
    assert timeline.call_before(COMMUNICATION, [computed]) == CALL_OF_ALL
    assert timeline.call_before(COMMUNICATION, [computed], not_before=3.5) is None
    copied = timeline.add("copy", COMMUNICATION, COPY, 0.1, [computed])
    assert timeline.call_before(COMMUNICATION, [copied]) == CALL_OF_ALL
    later = timeline.add("layer", "compute", FORWARD, 9.0)
    timeline.add("copy", COMMUNICATION, COPY, 0.1, [later])
    assert timeline.call_before(COMMUNICATION, [later]) is None


def test_a_job_gives_queued_calls_their_time() -> None:
    known, timeline = times(exchanges=True), Timeline()
    made = workload()
    job = TrainingJob(made.model, np.ones(1), np.ones(1), 0.0, known)
    numbers = [job.add_call(timeline, Collective.ALLREDUCE, NBYTES) for _ in range(2)]
    first, second = (
        float((timeline.operations[at].end - timeline.operations[at].start)[0]) for at in numbers
    )
    assert second == pytest.approx(6 / 5 * first, rel=0.01)
