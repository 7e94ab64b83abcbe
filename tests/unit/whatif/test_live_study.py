"""Studies that are answered in steps: the same times as of `run_study`, in the order asked for."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.base.errors import InputError
from tuner.machines.loader import machine_from_record
from tuner.whatif import live_study
from tuner.whatif.best_calls import BestCalls, PricedTask
from tuner.whatif.live_study import LiveStudy
from tuner.whatif.machine_axes import describe_axes
from tuner.whatif.study_runner import run_study
from tuner.whatif.study_spec import study_from_record

FLAT = {"name": "flat", "nodes": 4, "latency": "4us", "bandwidth": "1GB/s"}
SIZES = [1024, 1 << 20]


def record(**changes: Any) -> dict[str, Any]:
    own = {"name": "x", "topology": FLAT, "collectives": ["allreduce"], "sizes": SIZES}
    return own | {"algorithms": ["ring", "recursive_doubling"]} | changes


def priced(study: LiveStudy) -> tuple[BestCalls, list[PricedTask]]:
    """Price all tasks step by step."""
    best, found, left = BestCalls(), list[PricedTask](), study.order(())
    while left:
        done, more = study.price(left, 0.0, best)
        assert done == 1  # there was no time for more
        left, found = left[done:], found + more
    return best, found


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithms": ["ring", "recursive_doubling", "segmented_ring"]},
        {"algorithms": ["chain", "pipeline", "binomial"], "collectives": ["bcast"]},
        {"topology": "preset:dgx-h100", "vary": {"nodes": [4], "nics": [4]}, "algorithms": []},
    ],
)
def test_steps_give_the_best_times_and_the_gains_of_the_study(changes: dict[str, Any]) -> None:
    own = record(**changes, sizes=[1024, 1 << 20, 4 << 20])
    if not own["algorithms"]:
        del own["algorithms"]
    study = LiveStudy.from_record(own)
    best, found = priced(study)
    result = run_study(study_from_record(own, live_study._PresetResolver()))
    expected = dict[tuple[str, int], float]()
    for index, point in enumerate(result.points):
        for one in point.candidates:
            key = one.algorithm, index
            expected[key] = min(one.seconds, expected.get(key, one.seconds))
    assert {key: call[2] for key, call in best.found.items()} == expected
    fastest = best.of_all()
    assert [fastest[index][2] for index in range(3)] == [p.best.seconds for p in result.points]
    times = {
        (index, name): seconds
        for one in found
        for index, name, seconds in zip(one.sizes, one.candidates, one.seconds, strict=True)
    }
    every = {
        (index, str(one)): one.seconds
        for index, point in enumerate(result.points)
        for one in point.candidates
    }
    assert times.items() <= every.items()
    resources = study.outline()["resources"]
    calls = [fastest[index] for index in range(3)]
    gains = {name: study.gains(calls, name) for name in resources}
    shares = {name: study.shares(calls, name) for name in resources}
    for number, point in enumerate(result.points):
        own_shares = {name: row[number] for name, row in shares.items()}
        assert own_shares == pytest.approx({name: point.shares.get(name, 0.0) for name in shares})
        own_gains = {name: row[number] for name, row in gains.items()}
        assert own_gains == pytest.approx(dict(point.sensitivities))


def test_a_variant_that_is_not_the_fastest_is_not_simulated_to_its_end() -> None:
    study = LiveStudy.from_record(
        record(sizes=[1 << 20, 4 << 20], algorithms=["two_level_ring", "two_level_rabenseifner"])
        | {"topology": "preset:dgx-h100", "vary": {"nodes": [4]}}
    )
    _, found = priced(study)
    known = sum(len(one.sizes) for one in found)
    assert known < sum(len(task.sizes) for task in study.plan.tasks)


def test_the_cheapest_comes_first_then_what_is_asked_for_and_what_takes_long_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = LiveStudy.from_record(record(algorithms=["ring", "recursive_doubling", "linear"]))
    cheapest, *others = study.order(())
    assert len(others) == 2
    for number in others:
        assert study.order([study.label(number)])[:2] == [cheapest, number]
    assert study.outline()["skipped"] == []
    monkeypatch.setattr(live_study, "MAX_TASK_S", 0.0)
    assert study.order(()) == []
    assert study.outline()["skipped"] == ["linear", "recursive_doubling", "ring"]


def test_there_is_soon_a_time_at_every_size() -> None:
    study = LiveStudy.from_record(record(algorithms=["pipeline", "chain"], collectives=["bcast"]))
    sizes = [len(study.plan.tasks[number].sizes) for number in study.order(())]
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (2, 1)


def test_the_outline_says_what_nccl_chooses() -> None:
    presets = {"topology": "preset:dgx-a100", "vary": {"nodes": [2]}}
    nccl = LiveStudy.from_record(record(**presets, algorithms=["nccl_ring", "nccl_tree"]))
    outline = nccl.outline()
    assert (outline["nodes"], outline["ppn"], outline["memory"]) == (2, 8, "cuda")
    assert set(outline["nccl_choices"]) <= {"", "nccl_ring", "nccl_tree"}
    assert "NCCL" in outline["notes"][0]
    assert all(
        one.predicted_by == "nccl" for one in nccl.price(nccl.order(()), 60.0, BestCalls())[1]
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"vary": {"nodes": [2, 4]}}, "one machine and one collective"),
        ({"collectives": ["bcast", "allreduce"], "algorithms": ["ring", "chain"]}, "one machine"),
        ({"topology": "flat64.yaml"}, "expected preset:NAME or the record of a topology"),
        ({"topology": "preset:dgx-a100", "vary": {"nodes": "many"}}, "list of values"),
        ({"calibration": "c.json"}, "given whole"),
        ({"table": "t.json"}, "given whole"),
    ],
)
def test_a_question_that_is_none_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        LiveStudy.from_record(record(**changes))


def test_a_machine_without_network_has_no_axes_of_one() -> None:
    local = {"latency": "300ns", "bandwidth": "10GB/s"}
    node = machine_from_record({"name": "n", "nodes": 1, **local})
    axes = describe_axes(node)
    assert axes["axes"][:2] == ["nodes", "ppn"]
    assert axes["max_nodes"] >= axes["nodes"] == 1
