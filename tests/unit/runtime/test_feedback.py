"""The ring of recorded calls: what it keeps, what it sums up, how ranks are put together."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from mpi4py import MPI

from tests.support.ladders import table_of
from tests.support.services import Reply, Seen, always, serving
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice, Evidence, Rule, RuleKey, table_record
from tuner.runtime import feedback, tune
from tuner.runtime.agreement import library_name
from tuner.runtime.call_summaries import CallKind, CallSummary, merge_summaries
from tuner.runtime.dispatch_table import DispatchTable, RecordingDispatchTable
from tuner.runtime.feedback import CallRing

SMALL = CallKind("bcast", 1, 8, "host", "any", "binomial", 64)
LARGE = SMALL._replace(nbytes=65536, algorithm="pipeline(segment=32768)")


def test_calls_are_summed_up_by_shape() -> None:
    ring = CallRing()
    small, large = ring.kind_number(SMALL), ring.kind_number(LARGE)
    assert ring.kind_number(SMALL) == small != large
    for seconds in (3.0, 1.0, 2.0, 9.0, 2.5):
        ring.record(small, seconds)
    ring.record(large, 7.0)
    assert ring.summaries() == [CallSummary(SMALL, 5, 2.5, 9.0), CallSummary(LARGE, 1, 7.0, 7.0)]
    assert ring.summaries()[1].record() == {
        "collective": "bcast",
        "nodes": 1,
        "ppn": 8,
        "memory": "host",
        "operators": "any",
        "algorithm": "pipeline(segment=32768)",
        "nbytes": 65536,
        "calls": 1,
        "median_s": 7.0,
        "max_s": 7.0,
    }


def test_a_report_names_the_placement_that_is_not_usual() -> None:
    """Of others it says what it always said, so that older services take it."""
    key = RuleKey(Collective.BCAST, 2, 2, placement="cyclic")
    for own, told in ((key, {"placement": "cyclic"}), (replace(key, placement="consecutive"), {})):
        rules = (Rule(own, 0, math.inf, AlgorithmChoice("chain"), Evidence("none")),)
        ring = CallRing()
        ladder = RecordingDispatchTable(DispatchTable([0], [lambda: None], [None]), rules, ring)
        ladder.action(64)()
        (item,) = ring.summaries()
        assert {k: v for k, v in item.record().items() if k == "placement"} == told


def test_the_oldest_calls_are_forgotten() -> None:
    ring = CallRing(capacity=4)
    small, large = ring.kind_number(SMALL), ring.kind_number(LARGE)
    for seconds in (100.0, 100.0):
        ring.record(large, seconds)
    for seconds in (1.0, 2.0, 3.0):
        ring.record(small, seconds)
    assert ring.summaries() == [
        CallSummary(SMALL, 3, 2.0, 3.0),
        CallSummary(LARGE, 1, 100.0, 100.0),
    ]
    ring.record(small, 4.0)
    assert [item.calls for item in ring.summaries()] == [4]


def test_there_is_no_end_of_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback, "MAX_CALL_KINDS", 2)
    ring = CallRing()
    numbers = [ring.kind_number(SMALL._replace(nbytes=n)) for n in range(5)]
    for number in numbers:
        ring.record(number, 1.0)
    assert [item.kind.nbytes for item in ring.summaries()] == [0, 1]


def test_calls_of_too_many_shapes_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """They push nothing out of the ring, and nothing is remembered of their sizes."""
    monkeypatch.setattr(feedback, "MAX_CALL_KINDS", 2)
    table = table_of({(Collective.BCAST, 1): [(0, AlgorithmChoice())]})
    ring, calls = CallRing(capacity=4), list[int]()
    plain = DispatchTable([0], [calls.append], [None])
    ladder = RecordingDispatchTable(plain, table.rules, ring)
    for nbytes in (*range(100), 1):
        ladder.action(nbytes)(nbytes)
    assert calls == [*range(100), 1]
    assert {item.kind.nbytes: item.calls for item in ring.summaries()} == {0: 1, 1: 2}
    assert len(ladder._kind_numbers) == 2


def test_times_are_posted_for_the_table_that_was_followed(own_cache: None) -> None:
    """Another version in the middle: each gets what was recorded under it."""
    ladders = {(Collective.BCAST, 1): [(0, AlgorithmChoice("binomial", {}, SCHEDULE))]}
    record = table_record(table_of(ladders, library=library_name()))
    versions = iter((1, 1, 2))

    def reply(seen: Seen) -> Reply:
        if seen.path == "/v1/feedback":
            return Reply(b"{}", status=201)
        return Reply(json.dumps(record).encode(), headers={"ETag": f'"{next(versions)}-a"'})

    with serving(reply) as service:
        tuned = tune(MPI.COMM_SELF, service=service.url, feedback=True)
        for calls in (2, 3, 4):
            for _ in range(calls):
                tuned.Bcast(np.zeros(5))
            (tuned.finalize if calls == 4 else tuned.refresh)()
        posted = [json.loads(seen.body) for seen in service.seen if seen.body]
    assert [(post["version"], post["items"][0]["calls"]) for post in posted] == [(1, 5), (2, 4)]


def test_times_of_derived_communicators_are_posted_once(own_cache: None) -> None:
    """They share a ring: whoever is finalized first posts what is in it."""
    ladders = {(Collective.BCAST, 1): [(0, AlgorithmChoice("binomial", {}, SCHEDULE))]}
    record = table_record(table_of(ladders, library=library_name()))

    def reply(seen: Seen) -> Reply:
        if seen.path == "/v1/feedback":
            return Reply(b"{}", status=201)
        return Reply(json.dumps(record).encode(), headers={"ETag": '"1-a"'})

    with serving(reply) as service:
        tuned = tune(MPI.COMM_SELF, service=service.url, feedback=True)
        twin, part = tuned.Dup(), tuned.Split(0)
        for comm, calls in ((tuned, 2), (twin, 3), (tuned, 4), (part, 5), (part, 6)):
            for _ in range(calls):
                comm.Bcast(np.zeros(5))
            if calls in (3, 4, 6):
                comm.finalize()
        posted = [json.loads(seen.body) for seen in service.seen if seen.body]
    assert [post["items"][0]["calls"] for post in posted] == [5, 4, 11]


def test_what_a_service_did_not_take_is_posted_by_the_next(own_cache: None) -> None:
    ladders = {(Collective.BCAST, 1): [(0, AlgorithmChoice("binomial", {}, SCHEDULE))]}
    record = table_record(table_of(ladders, library=library_name()))
    table = Reply(json.dumps(record).encode(), headers={"ETag": '"1-a"'})
    with serving(lambda _: table) as service:
        tuned = tune(MPI.COMM_SELF, service=service.url, feedback=True)
        twin = tuned.Dup()
        for comm, status in ((twin, 403), (tuned, 201)):
            comm.Bcast(np.zeros(5))
            service.reply = always(Reply(b"{}", status=status))
            comm.finalize()
        posted = [json.loads(seen.body) for seen in service.seen if seen.body]
    assert [post["items"][0]["calls"] for post in posted] == [1, 2]


def test_a_collective_took_as_long_as_on_its_slowest_rank() -> None:
    ranks = [
        [CallSummary(SMALL, 5, median, longest)] for median, longest in ((2.0, 3.0), (1.0, 8.0))
    ]
    ranks[1].append(CallSummary(LARGE, 9, 1.0, 1.0))
    assert merge_summaries(ranks) == [
        CallSummary(LARGE, 9, 1.0, 1.0),
        CallSummary(SMALL, 5, 2.0, 8.0),
    ]


def test_a_report_has_the_shapes_with_the_most_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback, "MAX_SUMMARIES", 3)
    ring, rng = CallRing(), np.random.default_rng(0)
    for n in rng.permutation(10):
        number = ring.kind_number(SMALL._replace(nbytes=int(n)))
        for _ in range(n):
            ring.record(number, 1.0)
    assert [item.kind.nbytes for item in ring.summaries()] == [9, 8, 7]
    assert [item.calls for item in merge_summaries([ring.summaries()])] == [9, 8, 7]
