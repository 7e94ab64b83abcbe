"""Studies of what another version of NCCL chooses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuner.base.errors import InputError
from tuner.whatif.checked_study import study_record
from tuner.whatif.study_result import StudyResult
from tuner.whatif.study_runner import run_study
from tuner.whatif.study_spec import FileResolver, study_from_record

RECORD = {
    "name": "upgrade",
    "topology": "preset:dgx-h100:2",
    "collectives": ["allreduce"],
    "sizes": ["64KiB", "1MiB", "256MiB"],
    "algorithms": ["nccl_ring", "nccl_tree", "nvls_tree"],
    "limits": False,
}


def result_of(**keys: Any) -> StudyResult:
    return run_study(study_from_record({**RECORD, **keys}, FileResolver(Path())))


def test_an_upgrade_changes_what_nccl_chooses_and_nothing_else() -> None:
    """2.19 takes NVLSTree from 512 KiB on, 2.20 has none; a call in LL is the same in all."""
    old, without, newest = (result_of(nccl_version=one) for one in ("2.19.4", "2.20.5", "2.32.3"))
    chosen = [[point.nccl_choice for point in one.points] for one in (old, without, newest)]
    assert chosen == [
        ["nccl_tree", "nvls_tree", "nvls_tree"],
        ["nccl_tree", "nccl_tree", "nccl_ring"],
        ["nccl_tree", "nccl_tree", "nvls_tree"],
    ]
    assert {one.algorithm for point in without.points for one in point.candidates} == {
        "nccl_ring",
        "nccl_tree",
    }
    times = [
        {(point.nbytes, one.algorithm): one.seconds for one in point.candidates}
        for result in (old, without, newest)
        for point in result.points[:1]
    ]
    assert times[0] == times[2]
    assert times[1].items() <= times[0].items()
    assert old.summary.endswith(
        " NCCL chooses as 2.19.1 does. Times of NCCL before 2.27.3 were not compared."
    )
    assert "NCCL chooses as" not in newest.summary


def test_the_record_of_a_study_has_its_version() -> None:
    study = study_from_record({**RECORD, "nccl_version": "2.22.4"}, FileResolver(Path()))
    assert study.nccl_version == "2.22.3"
    again = study_from_record(json.loads(json.dumps(study_record(study))), FileResolver(Path()))
    assert study_record(again) == study_record(study)
    assert "nccl_version" not in study_record(study_from_record(RECORD, FileResolver(Path())))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"nccl_version": "2.17.1"}, r"nccl_version must be a version of NCCL from 2\.18\.1 on"),
        ({"nccl_version": 2.2}, r"such as 2\.26\.2, not 2\.2$"),
        ({"nccl_version": "newest"}, r"such as 2\.26\.2, not 'newest'$"),
        (
            {"nccl_version": "2.20.5", "vary": {"memory": ["host"]}, "algorithms": ["ring"]},
            "on buffers of GPUs",
        ),
        (
            {"nccl_version": "2.20.5", "topology": "preset:mi300x:2", "algorithms": ["nccl_ring"]},
            "on mi300x RCCL runs: leave it out",
        ),
    ],
)
def test_a_version_that_cannot_choose_is_refused(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        study_from_record({**RECORD, **changed}, FileResolver(Path()))


def test_algorithms_that_a_version_lacks_are_no_candidates() -> None:
    with pytest.raises(InputError, match=r"NCCL 2\.20\.3 has none of nvls_tree"):
        result_of(nccl_version="2.20.5", algorithms=["nvls_tree"])
