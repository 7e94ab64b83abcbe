"""Studies of what versions of NCCL choose, which is an axis of theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuner.base.errors import InputError
from tuner.cli.views.study_answers import print_answers
from tuner.cli.views.study_view import print_study
from tuner.machines import preset
from tuner.whatif.checked_study import Study, study_record
from tuner.whatif.live_study import LiveStudy
from tuner.whatif.machine_axes import describe_axes
from tuner.whatif.study_result import StudyResult
from tuner.whatif.study_runner import run_study
from tuner.whatif.study_spec import FileResolver, read_study, study_from_record
from tuner.whatif.study_tasks import plan_study
from tuner.whatif.traced_call import trace_call

EXAMPLE = Path(__file__).parents[3] / "docs/examples/studies/nccl-version.yaml"

RECORD = {
    "name": "upgrade",
    "topology": "preset:dgx-h100:2",
    "collectives": ["allreduce"],
    "sizes": ["64KiB", "1MiB", "256MiB"],
    "algorithms": ["nccl_ring", "nccl_tree", "nvls_tree"],
    "limits": False,
}

VERSIONS = (("2.26.2",), ("2.26.2", "2.30.7"))


def study_of(*versions: Any, **keys: Any) -> Study:
    """Return the study of some versions; the axis is left out where there are none."""
    vary = {"nccl_version": [*versions]} if versions else {}
    record = {**RECORD, **keys, "vary": {**vary, **keys.get("vary", {})}}
    return study_from_record(record, FileResolver(Path()))


def result_of(*versions: Any, **keys: Any) -> StudyResult:
    return run_study(study_of(*versions, **keys))


def test_an_upgrade_changes_what_nccl_chooses_and_nothing_else() -> None:
    """2.19 takes NVLSTree from 512 KiB on, 2.20 has none; a call in LL is the same in all."""
    result = result_of("2.19.4", "2.20.5", "2.32.3")
    old, without, newest = (result.points[at : at + 3] for at in (0, 3, 6))
    chosen = [[point.nccl_choice for point in one] for one in (old, without, newest)]
    assert chosen == [
        ["nccl_tree", "nvls_tree", "nvls_tree"],
        ["nccl_tree", "nccl_tree", "nccl_ring"],
        ["nccl_tree", "nccl_tree", "nvls_tree"],
    ]
    assert {one.algorithm for point in without for one in point.candidates} == {
        "nccl_ring",
        "nccl_tree",
    }
    times = [
        {one.algorithm: one.seconds for one in points[0].candidates}
        for points in (old, without, newest)
    ]
    assert times[0] == times[2]
    assert times[1].items() <= times[0].items()
    assert result.summary.endswith(
        " NCCL 2.19.4 chooses as 2.19.1 does. NCCL 2.20.5 chooses as 2.20.3 does."
        " Times of NCCL before 2.27.3 were not compared."
    )


def test_without_the_axis_the_newest_version_chooses() -> None:
    own, newest = result_of(), result_of("2.32.3")
    assert [point.nccl_choice for point in own.points] == [
        point.nccl_choice for point in newest.points
    ]
    assert own.summary == newest.summary


def test_the_record_of_a_study_has_its_versions_as_written() -> None:
    study = study_of("2.30.7", "2.22.4", "2.30.7")
    assert study.axes["nccl_version"] == ("2.30.7", "2.22.4")
    again = study_from_record(json.loads(json.dumps(study_record(study))), FileResolver(Path()))
    assert study_record(again) == study_record(study)
    assert "nccl_version" not in study_record(study_of())["vary"]


def test_versions_that_choose_alike_change_nothing() -> None:
    result = result_of("2.30.3", "2.30.7")
    assert {step.nccl_speedups for step in result.axis_steps} == {(1.0, 1.0)}
    assert result.summary.endswith(" NCCL 2.30.7 chooses as 2.30.3 does.")


def test_a_verdict_says_what_a_version_changes_where_the_best_stays() -> None:
    """The best algorithms stay from 2.26 to 2.30, and NCCL leaves NVLSTree at 1 MiB."""
    result = result_of("2.26.2", "2.30.7", vary={"nodes": [2, 4]})
    assert any(
        "nccl version 2.30.7 gains nothing over 2.26.2" in text
        and text.endswith("what NCCL chooses by itself gains at most 27%.")
        for text in result.verdicts
    )


def test_the_choices_of_versions_stand_side_by_side(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    print_answers(result_of("2.20.5", "2.26.2", "2.30.7"), set())
    table = capsys.readouterr().out.partition("what NCCL chooses by itself\n")[2]
    cells = [line.split() for line in table.partition("\n\n")[0].splitlines()]
    assert [line for line in cells if line[0] == "allreduce"] == [
        ["allreduce", "1MiB", "nccl_tree", "61.9us", "nvls_tree", "78.5us", "nccl_tree", "61.9us"],
        ["allreduce", "256MiB", "nccl_ring", "1.99ms", "nvls_tree", "1.3ms", "same"],
    ]


def test_a_version_that_changes_the_choice_alone_does_not_change_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """NVLSTree, the only algorithm of the study, stays the best at all sizes."""
    result = result_of("2.26.2", "2.30.7", algorithms=["nvls_tree"])
    same = print_study(result)
    assert "nccl_version" not in same
    print_answers(result, same)
    printed = " ".join(capsys.readouterr().out.split())
    assert "nccl version changes only what NCCL chooses by itself" in printed
    assert "nccl version 2.26.2 to 2.30.7" in printed


def test_versions_older_than_the_gpus_are_told() -> None:
    told = "NCCL 2.20.3 counts GPUs of compute capability 10.0 as those of 9.0"
    assert told in result_of("2.20.5", topology="preset:dgx-b200").summary
    assert told not in result_of("2.20.5").summary


def test_ranks_that_share_gpus_are_simulated_in_every_version() -> None:
    result = result_of("2.26.2", "2.30.7", vary={"nodes": [2], "ppn": [16]}, algorithms=["ring"])
    assert {point.nccl_choice for point in result.points} == {""}


def test_the_default_of_a_library_is_priced_beside_several_versions() -> None:
    result = result_of("2.26.2", "2.30.7", table="default:openmpi", algorithms=["ring"])
    assert result.default_title


def test_the_study_of_the_documentation_compares_three_versions() -> None:
    result = run_study(read_study(EXAMPLE))
    assert result.axes["nccl_version"] == ("2.20.5", "2.26.2", "2.30.7")
    assert any(point.nccl_choice == "nvls_tree" for point in result.points)


@pytest.mark.parametrize(
    ("versions", "changed", "sentence"),
    [
        (["2.30.7", "2.17.1"], {}, r"nccl_version must be three numbers, a version of NCCL"),
        (["2.30"], {}, r"from 2\.18\.1 on such as 2\.26\.2, not '2\.30'$"),
        ([2.2], {}, r"such as 2\.26\.2, not 2\.2$"),
        (["newest"], {}, r"such as 2\.26\.2, not 'newest'$"),
        (["2.32.3"], {"vary": {"memory": ["host"]}, "algorithms": ["ring"]}, "on buffers of GPUs"),
        (
            ["2.20.5"],
            {"topology": "preset:mi300x:2", "algorithms": ["nccl_ring"]},
            "on mi300x RCCL runs: take it out",
        ),
        (
            ["2.20.5"],
            {"topology": ["preset:dgx-h100:2", "preset:mi300x:2"], "algorithms": ["nccl_ring"]},
            "on mi300x RCCL runs: take it out",
        ),
    ],
)
def test_a_version_that_cannot_choose_is_refused(
    versions: list[Any], changed: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        study_of(*versions, **changed)


def test_a_version_beside_the_axes_is_refused() -> None:
    record = {**RECORD, "nccl_version": "2.20.5"}
    with pytest.raises(InputError, match=r"write `vary: \{nccl_version: \['2\.20\.5'\]\}`"):
        study_from_record(record, FileResolver(Path()))


def test_several_machines_can_be_compared_over_versions() -> None:
    machines = ["preset:dgx-h100:2", "preset:dgx-a100:2"]
    result = result_of("2.20.5", "2.30.7", topology=machines, algorithms=["nccl_ring", "nccl_tree"])
    assert len(result.points) == 2 * 2 * 3


def test_algorithms_that_a_version_lacks_are_no_candidates() -> None:
    with pytest.raises(
        InputError, match=r"allreduce has none of nvls_tree at .* version 2\.20\.5: "
    ):
        result_of("2.26.2", "2.20.5", algorithms=["nvls_tree"])


def test_one_call_of_an_algorithm_that_its_version_lacks_is_refused() -> None:
    call = {**RECORD, "sizes": ["1MiB"], "algorithms": ["nvls_tree"]}
    with pytest.raises(
        InputError, match=r"none of nvls_tree at .* version 2\.20\.5: .* choose other algorithms"
    ):
        trace_call({**call, "vary": {"nccl_version": ["2.20.5"]}}, {})
    shown = trace_call({**call, "vary": {"nccl_version": ["2.26.2"]}}, {})
    assert shown.nccl_seconds is not None


def test_a_step_between_versions_compares_calls_at_which_nccl_chooses() -> None:
    """Calls on hosts would say that the version changes some calls alone."""
    vary = {"memory": ["host", "cuda"], "nodes": [2]}
    how = {"algorithms": ["nvls_tree", "nccl_ring", "ring"], "sizes": ["256MiB"]}
    result = result_of("2.19.4", "2.20.5", vary=vary, **how)
    (step,) = [one for one in result.axis_steps if one.axis == "nccl_version"]
    assert step.min_speedup == step.max_speedup < 1.0
    assert step.max_at["memory"] == "cuda"
    (verdict,) = [one for one in result.verdicts if ": nccl version" in one]
    assert "at most" not in verdict.partition(": what")[0]


def test_versions_share_the_schedules_that_are_simulated() -> None:
    keys = {"algorithms": ["ring", "nccl_ring"], "vary": {"memory": ["host", "cuda"]}}
    one, two = (plan_study(study_of(*own, **keys), lambda _: None) for own in VERSIONS)
    simulated = [[task.algorithm for task in plan.tasks].count("ring") for plan in (one, two)]
    assert simulated == [simulated[0]] * 2
    alone, both = (result_of(*own, **keys).points for own in VERSIONS)
    assert alone == tuple(one for one in both if one.axis_values["nccl_version"] == "2.26.2")


def test_a_question_of_one_version_has_its_choices_and_caution() -> None:
    record = {**RECORD, "vary": {"nodes": [2], "nccl_version": ["2.26.2"]}}
    outline = LiveStudy.from_record({**record, "topology": "preset:dgx-h100"}).outline()
    assert outline["nccl_choices"] == ["nccl_tree", "nvls_tree", "nvls_tree"]
    assert "Times of NCCL before 2.27.3 were not compared." in outline["cautions"]


def test_machines_have_versions_where_nccl_runs() -> None:
    own, other = (describe_axes(preset(name, 2)) for name in ("dgx-h100", "mi300x"))
    assert "nccl_version" in own["axes"]
    assert own["nccl_versions"][0] == "2.32.3"
    assert "nccl_version" not in other["axes"]
    assert other["nccl_versions"] == []
