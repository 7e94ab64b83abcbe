"""One call from inside: its columns are the simulation's, and its trace can be opened."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.prediction.call_candidates import Candidate, build_schedule
from tuner.sim import critical_paths, simulate
from tuner.whatif import traced_call
from tuner.whatif.call_trace import call_trace_text
from tuner.whatif.machine_picture import picture_record
from tuner.whatif.traced_call import SimulatedCall, call_record, trace_call

FLAT = {"name": "flat", "nodes": 4, "latency": "4us", "bandwidth": "1GB/s"}


def traced(
    algorithm: str = "ring", params: dict[str, int] | None = None, **changes: Any
) -> SimulatedCall:
    own = {"name": "x", "topology": FLAT, "collectives": ["allreduce"], "sizes": [1 << 20]}
    return trace_call(own | {"algorithms": [algorithm]} | changes, params or {})


def test_copies_of_single_blocks_are_counted() -> None:
    flat = FLAT | {"nodes": 512}
    with pytest.raises(InputError, match=r"copies single blocks, .* too many to show: take fewer"):
        traced("bruck", topology=flat, collectives=["alltoall"])


def comet(algorithm: str = "ring", **params: int) -> SimulatedCall:
    """Two nodes with four GPUs each."""
    vary = {"nodes": [2], "ppn": [4]}
    return traced(algorithm, params, topology="preset:comet", vary=vary)


@pytest.mark.parametrize(
    "make",
    [
        traced,
        comet,
        partial(comet, "segmented_ring", segment=4096),
        partial(traced, "bruck", collectives=["alltoall"]),
    ],
    ids=range(4),
)
def test_the_columns_are_the_run(make: Callable[[], SimulatedCall]) -> None:
    call = make()
    record = call_record(call)
    costs = call.machine.calibration
    assert record["seconds"] == pytest.approx(
        simulate(call.schedule, call.placement, costs, call.nbytes, memory=call.memory)
    )
    moves = record["transfers"]
    rows = [row for number, r in enumerate(call.schedule.rounds()) for row in _rows(number, r)]
    names = ("round", "src", "dst", "src_chunk", "dst_chunk", "count", "reduce")
    assert list(zip(*(moves[name] for name in names), strict=True)) == [
        row for row in rows if row[1] != row[2]
    ]
    spans = call.run.transfers
    for name in ("started", "released", "arrived"):
        seconds = record["tick"] * np.array(moves[name])
        expected = [getattr(span, name) for span in spans]
        np.testing.assert_allclose(seconds, expected, atol=record["tick"])
    path = record["critical_path"]
    assert path["begin"][0] == 0
    assert path["end"][:-1] == path["begin"][1:]
    assert max(moves["arrived"]) <= 10**traced_call.TICKS_DIGITS


def _rows(number: int, r: Any) -> list[tuple[int, ...]]:
    src, dst, first, into, count, reduce = (column.tolist() for column in r.columns)
    numbers = [number] * len(src)
    return list(zip(numbers, src, dst, first, into, count, reduce, strict=True))


def test_paths_lead_over_the_links_of_the_picture() -> None:
    """Every path between nodes begins at the sender's and ends at the receiver's."""
    call = comet()
    record = call_record(call)
    machine, paths, moves = record["machine"], record["paths"], record["transfers"]
    network = len(machine["links"]["source"])
    inside = [machine["node_types"][kind]["links"] for kind in machine["node_type"]]
    assert network + sum(len(links["source"]) for links in inside) == len(
        call.machine.topology.capacity
    )
    for src, dst, path in zip(moves["src"], moves["dst"], moves["path"], strict=True):
        crossed = paths["links"][paths["start"][path] : paths["start"][path + 1]]
        ends = [
            (machine["links"]["source"][link], machine["links"]["target"][link])
            for link in crossed
            if link < network
        ]
        nodes = record["ranks"]["node"]
        if nodes[src] == nodes[dst]:
            assert not ends
        else:
            assert (ends[0][0], ends[-1][1]) == (nodes[src], nodes[dst])


def test_a_picture_has_capacities_and_levels() -> None:
    picture = picture_record(comet().machine.topology)
    assert picture["nodes"] == ["node0", "node1"]
    assert picture["switches"] == {"name": ["leaf0"], "level": [1]}
    assert set(picture["node_types"][0]["devices"]["kind"]) == {"cpu", "gpu", "nic"}
    flat = picture_record(traced().machine.topology)
    assert (flat["node_types"], flat["node_type"]) == ([], [-1] * 4)
    assert flat["memory_bandwidth"] is None
    assert flat["links"]["capacity"] == [1e9] * 8


@pytest.mark.parametrize(
    ("collective", "algorithm", "holders"),
    [("allgather", "ring", "owner"), ("bcast", "binomial", "root"), ("reduce", "binomial", "all")],
)
def test_it_says_who_holds_what_at_first(collective: str, algorithm: str, holders: str) -> None:
    assert call_record(traced(algorithm, collectives=[collective]))["holders"] == holders


def test_what_nccl_predicts_stands_beside_the_schedule() -> None:
    call = traced("nccl_ring", topology="preset:dgx-a100", vary={"nodes": [2], "ppn": [8]})
    predicted = call_record(call)["nccl_seconds"]
    assert 0.0 < predicted < 1.0
    assert call_record(comet())["nccl_seconds"] is None


def test_one_rank_has_an_empty_timeline() -> None:
    record = call_record(traced(vary={"nodes": [1]}))
    assert record["seconds"] == 0.0
    assert record["transfers"]["src"] == record["critical_path"]["rank"] == []


def test_what_cannot_be_shown_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="none of the algorithms is one of allreduce; it has: "):
        traced("none")
    with pytest.raises(InputError, match="segmentt"):
        traced("segmented_ring", {"segmentt": 4})
    with pytest.raises(InputError, match="give each axis one value"):
        traced(vary={"nodes": [2, 4]})
    call = comet()
    monkeypatch.setattr(traced_call, "MAX_CROSSED_LINKS", 3)
    with pytest.raises(InputError, match="more than the 3 that can be shown: take fewer ranks"):
        call_record(call)
    monkeypatch.setattr(critical_paths, "MAX_TRACED_TRANSFERS", 3)
    with pytest.raises(InputError, match="more than 3 transfers, too many to trace: take fewer"):
        traced()


@pytest.mark.parametrize("algorithm", ["ring", "linear"])
def test_the_trace_has_every_message_at_both_ends(algorithm: str) -> None:
    """Spans of a thread do not overlap, as Perfetto would take one for a part of the other."""
    collective = Collective.BCAST if algorithm == "linear" else Collective.ALLREDUCE
    call = traced(algorithm, collectives=[collective.value])
    made = build_schedule(collective, Candidate(algorithm, {}), 4, 1 << 20)
    events = json.loads(call_trace_text(call))["traceEvents"]
    spans = [one for one in events if one["ph"] == "X"]
    moved = sum(len(r) for r in made.rounds())
    assert [sum(one["cat"] == end for one in spans) for end in ("sending", "receiving")] == [
        moved,
        moved,
    ]
    path = sum(one["dur"] for one in spans if one["cat"] == "critical path")
    assert 1e-6 * path == pytest.approx(call.run.seconds)
    threads = defaultdict(list)
    for one in spans:
        threads[one["pid"], one["tid"]].append((one["ts"], one["ts"] + one["dur"]))
    for times in threads.values():
        assert all(before[1] <= after[0] + 1e-6 for before, after in pairwise(sorted(times)))
    named = {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name"}
    assert {place for place in threads if place[0]} <= named
