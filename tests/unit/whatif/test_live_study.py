"""Studies that are answered in steps: the same times as of `run_study`, in the order asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.base.errors import InputError
from tuner.machines.loader import machine_from_record
from tuner.whatif import live_study
from tuner.whatif.live_study import BestCalls, LiveStudy
from tuner.whatif.machine_axes import describe_axes
from tuner.whatif.study_runner import run_study
from tuner.whatif.study_spec import FileResolver, study_from_record

FLAT = {"name": "flat", "nodes": 4, "latency": "4us", "bandwidth": "1GB/s"}
SIZES = [1024, 1 << 20]


def record(**changes: Any) -> dict[str, Any]:
    own = {"name": "x", "topology": FLAT, "collectives": ["allreduce"], "sizes": SIZES}
    return own | {"algorithms": ["ring", "recursive_doubling"]} | changes


def test_steps_give_the_times_and_gains_of_the_study() -> None:
    study = LiveStudy.from_record(record())
    best, times = BestCalls(), dict[tuple[int, str], float]()
    left = study.order(())
    while left:
        done, priced = study.price(left, 0.0)
        assert done == 1  # there was no time for more
        left = left[done:]
        best.add(priced)
        for one in priced:
            for size, name, seconds in zip(one.sizes, one.candidates, one.seconds, strict=True):
                assert seconds is not None
                times[SIZES[size], name] = seconds
    result = run_study(study_from_record(record(), FileResolver(Path())))
    expected = {
        (point.nbytes, str(c)): c.seconds for point in result.points for c in point.candidates
    }
    assert times == expected
    assert [best.found[index][2] for index in range(2)] == [p.best.seconds for p in result.points]
    resources = study.outline()["resources"]
    for number, point in enumerate(result.points):
        calls = [best.found[index] for index in range(2)]
        gains = {name: study.gains(calls, name)[number] for name in resources}
        assert gains == pytest.approx(dict(point.sensitivities))


def test_what_is_asked_for_comes_first_and_what_takes_long_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = LiveStudy.from_record(record())
    for number in range(len(study.plan.tasks)):
        assert study.order([study.label(number)])[0] == number
    assert study.outline()["skipped"] == []
    monkeypatch.setattr(live_study, "MAX_TASK_S", 0.0)
    assert study.order(()) == []
    assert study.outline()["skipped"] == ["recursive_doubling", "ring"]


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
    assert all(one.predicted_by == "nccl" for one in nccl.price(nccl.order(()), 60.0)[1])


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
