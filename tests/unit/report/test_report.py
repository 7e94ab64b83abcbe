"""The report says what the figures say, and says so when nothing was gained."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster, Measurement, Measurements
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable
from tuner.report import LibraryResult, cautions, geometric_mean_speedup, split_control, summarise
from tuner.report.curves import measured_curves, predicted_curves, prediction_error
from tuner.report.measured_gain import describe_measured_gain
from tuner.report.page import render_page
from tuner.report.summary import describe_confirmed_rules, describe_outcome

CLUSTER = Cluster("box", 1, 4, "A CPU & more", 8 << 30)
LIBRARY = "openmpi 5.0.11"


def held(ratio: float, width: float = 1.05, algorithm: str = "ring", p: int = 4) -> dict[str, Any]:
    return {
        "collective": "allreduce",
        "p": p,
        "nbytes": 3000,
        "algorithm": algorithm,
        "default_s": 1e-5 * ratio,
        "tuned_s": 1e-5,
        "ratio": ratio,
        "ci95": [ratio / width, ratio * width],
    }


def validation(confirmed: bool) -> dict[str, Any]:
    return {
        "collective": "bcast",
        "nodes": 1,
        "ppn": 4,
        "p": 4,
        "operators": "any",
        "start_bytes": 0 if confirmed else 1024,
        "nbytes": 4096,
        "expected": "knomial",
        "executed": "linear",
        "confirmed": confirmed,
        "reason": "" if confirmed else "it fell back",
    }


def series(algorithm: str, nbytes: int, seconds: float, **params: int) -> Measurement:
    return Measurement("collective", "bcast", 1, 4, 4, nbytes, (seconds,) * 3, algorithm, params)


@pytest.fixture
def result() -> LibraryResult:
    key = RuleKey(Collective.BCAST, 1, 4)
    table = TuningTable(
        CLUSTER,
        LIBRARY,
        (
            Rule(key, 0, 1024, AlgorithmChoice(), Evidence("none")),
            Rule(
                key,
                1024,
                math.inf,
                AlgorithmChoice("knomial", {"radix": 4}),
                Evidence("measured", (2048,), (2e-5,), (1e-5,), gain=2.0, gain_ci95=(1.8, 2.2)),
            ),
        ),
    )
    probed = [
        series(name, nbytes, 1e-6 * nbytes)
        for name in ("default", "knomial", "linear")
        for nbytes in (64, 2048, 65536)
    ]
    predictions = [
        {
            "collective": "bcast",
            "algorithm": "knomial",
            "params": {},
            "p": 4,
            "nbytes": 64,
            "seconds": 1e-6,
        }
    ]
    return LibraryResult(
        "openmpi",
        Measurements(CLUSTER, LIBRARY, {}, tuple(probed)),
        table,
        predictions,
        [validation(True), validation(False)],
        [held(2.0), held(0.5), held(1.0, algorithm="default")],
    )


def test_geometric_mean_is_of_ratios_and_as_uncertain_as_each_of_them() -> None:
    """Points share launches: what favours one favours all, and more points do not help."""
    assert geometric_mean_speedup([held(2.0), held(0.5)])[0] == pytest.approx(1.0)
    assert geometric_mean_speedup([held(4.0)]) == pytest.approx((4.0, 4.0 / 1.05, 4.0 * 1.05))
    assert geometric_mean_speedup([held(2.0)] * 4) == pytest.approx((2.0, 2.0 / 1.05, 2.0 * 1.05))


def test_figures_count_rules_and_name_what_is_not_confirmed(result: LibraryResult) -> None:
    record = summarise([result])
    assert (record["rules_total"], record["rules_confirmed"]) == (2, 1)
    assert record["rules_unconfirmed"][0]["rule"] == "bcast on 4 ranks at 4KiB: knomial"
    assert record["rules_unconfirmed"][0]["reason"] == "it fell back"
    assert record["geomean_speedup"] == pytest.approx(1.0)
    one = summarise([replace(result, validations=[validation(True)])])
    assert (one["rules_total"], one["rules_confirmed"]) == (len(result.table.rules), 1)
    assert one["rules_unconfirmed"][0]["reason"] == "the file that was proved does not hold it"
    changed = record["changed"]
    assert (changed["calls"], changed["faster"], changed["slower"]) == (2, 1, 1)
    assert record["control"]["calls"] == 1
    assert set(record["heldout"][0]) >= {
        "collective",
        "p",
        "nbytes",
        "algorithm",
        "default_s",
        "tuned_s",
        "ratio",
        "ci95",
    }


@pytest.mark.parametrize(
    ("heldout", "opening"),
    [
        ([], "Nothing was compared"),
        ([held(1.0, algorithm="default")], "Nothing was gained and nothing lost"),
        ([held(1.01)], "The changed calls show no significant gain"),
        ([held(1.3)] * 5, "Calls whose algorithm the table changes became 1.30 times"),
        ([held(0.8)] * 5, "Something was lost"),
        ([held(1.3), held(0.5), held(1.5)], "Some calls gained, but not all"),
    ],
)
def test_the_result_opens_with_the_truth(heldout: list[dict[str, Any]], opening: str) -> None:
    assert describe_outcome(heldout).startswith(opening)


def test_without_a_comparison_the_gain_is_that_of_the_measurements(result: LibraryResult) -> None:
    told = summarise([replace(result, heldout=(), validations=())])
    figures = told["libraries"]["openmpi"]
    assert figures["cautions"][0].startswith("No rule was tried in the library")
    calls, gain = figures["measured"]["calls"], figures["measured"]["geomean_speedup"]
    assert calls > 0
    assert f"calls were {gain:.2f} times as fast in the measurements" in figures["result"]
    assert f"over {calls} call" in figures["result"]
    assert told["result"] == figures["result"]


@pytest.mark.parametrize(
    ("choice", "basis", "told"),
    [
        ("default", "measured", "All rules leave calls to the library's default"),
        ("ring", "learned", "None of the rules that leave the library's default was measured"),
    ],
)
def test_a_gain_that_was_not_measured_is_not_told(
    result: LibraryResult, choice: str, basis: str, told: str
) -> None:
    rules = [
        replace(rule, choice=AlgorithmChoice(choice), evidence=replace(rule.evidence, basis=basis))
        for rule in result.table.rules
    ]
    table = TuningTable(CLUSTER, result.table.library, tuple(rules))
    assert describe_measured_gain(table).startswith(told)


def test_cautions_come_before_the_result(result: LibraryResult) -> None:
    record = summarise([result])["libraries"]["openmpi"]
    assert record["cautions"] == [
        "1 call became slower, at most 2.00 times (allreduce of 2.93KiB on 4 ranks).",
        "1 of 2 rules is not confirmed: the library was not seen to run the algorithm.",
        "The ranks were launched only once, so only gains that hardly vary are seen. Measure with"
        " more launches, or with a larger --budget.",
    ]
    assert record["verdict"] == " ".join([*record["cautions"], record["result"]])
    page = render_page([result])
    assert page.index("Caution: 1 call became slower") < page.index(record["result"][:40])


@pytest.mark.parametrize(
    ("heldout", "opening"),
    [
        ([held(1.3), *[held(1.24, algorithm="default")] * 8], "Calls that ran the same code on"),
        (
            [held(1.3, width=1.2)],
            "The comparison is too noisy: in half of the calls a difference"
            " below 18% cannot be seen.",
        ),
        ([held(1.3), held(0.8), held(0.7)], "2 calls became slower, at most 1.43 times"),
    ],
)
def test_what_makes_a_comparison_doubtful_is_said(
    heldout: list[dict[str, Any]], opening: str
) -> None:
    (caution,) = cautions.comparison_cautions(*split_control(heldout))
    assert caution.startswith(opening)


def test_a_quiet_comparison_needs_no_caution() -> None:
    equal = [held(1.01, algorithm="default")] * 8
    assert cautions.comparison_cautions(*split_control([held(1.3), *equal])) == []
    assert cautions.validation_cautions([validation(True)]) == []


def test_rules_of_ranks_that_shared_cores_are_a_caution(result: LibraryResult) -> None:
    table = result.table
    crowded = TuningTable(replace(CLUSTER, cores=2), table.library, table.rules)
    (caution,) = cautions.table_cautions(crowded)
    assert caution.startswith("Rules for 4 ranks come from more ranks than a node has cores (2)")
    assert cautions.table_cautions(TuningTable(CLUSTER, table.library, table.rules)) == []


def test_gains_that_are_seldom_true_are_a_caution_until_a_program_confirms_them(
    result: LibraryResult,
) -> None:
    *others, last = result.table.rules
    great = replace(last, evidence=replace(last.evidence, gain=20.4))
    table = TuningTable(CLUSTER, result.table.library, (*others, great))
    (caution,) = cautions.table_cautions(table)
    assert caution.startswith("1 rule would make calls over 10 times as fast (at most 20 times)")
    accepted = TuningTable(CLUSTER, table.library, table.rules, {"acceptance": {}})
    assert cautions.table_cautions(accepted) == []


def test_disturbed_calls_are_a_caution(result: LibraryResult) -> None:
    told = {"disturbed": ["bcast of 64 bytes on 1x2 ranks in launch 1", "another"]}
    table = TuningTable(CLUSTER, result.table.library, result.table.rules, told)
    assert cautions.table_cautions(table) == [
        "Something held up 2 calls in a launch, such as bcast of 64 bytes on 1x2 ranks in launch 1:"
        " these times are left out."
    ]


def test_what_was_seen_at_work_is_told_from_what_changes() -> None:
    figures = {"rules_total": 12, "rules_confirmed": 12, "rules_default": 9}
    assert describe_confirmed_rules(figures) == (
        "12 of 12 rules were seen at work in the real library: 3 that name another algorithm than"
        " its default, 9 that leave calls to it."
    )


def test_what_a_probe_noticed_is_a_caution(result: LibraryResult) -> None:
    launched = tuple(replace(one, launch=n) for n in range(3) for one in result.measurements.series)
    notes = {"notes": ["too noisy: 65536 B messages are known to 12% only"]}
    noticed = replace(result.measurements, series=launched, provenance=notes)
    assert cautions.measurement_cautions(noticed) == [
        "Too noisy: 64KiB messages are known to 12% only."
    ]


def test_control_is_what_the_table_leaves_alone() -> None:
    changed, control = split_control([held(2.0), held(1.0, algorithm="default")])
    assert [record["ratio"] for record in changed] == [2.0]
    assert [record["ratio"] for record in control] == [1.0]


def test_curves_take_the_best_parameters_and_ascend() -> None:
    probed = [
        series("chain", 64, 3e-6, chains=4),
        series("chain", 64, 2e-6, chains=2),
        series("chain", 8, 1e-6, chains=2),
    ]
    ((key, curves),) = measured_curves(probed).items()
    assert key == RuleKey(Collective.BCAST, 1, 4)
    assert [(call.nbytes, call.seconds) for call in curves["chain"]] == [(8, 1e-6), (64, 2e-6)]
    assert curves["chain"][1].choice.params == {"chains": 2}
    record = {"collective": "bcast", "p": 4, "algorithm": "chain", "nbytes": 8, "seconds": 5.0}
    assert predicted_curves([record, {**record, "seconds": 4.0}], "bcast", 4) == {"chain": {8: 4.0}}


def test_relative_times_compare_with_the_default_in_the_same_launches() -> None:
    def launched(algorithm: str, launch: int, *samples: float) -> Measurement:
        return replace(series(algorithm, 64, 1.0), launch=launch, samples=samples)

    probed = [
        launched("default", 0, 2e-6, 2e-6, 2e-6),
        launched("default", 1, 8e-6, 8e-6, 8e-6),
        launched("chain", 0, 1e-6, 1e-6),
        launched("chain", 1, 4e-6, 4e-6, 4e-6),
        launched("linear", 2, 1e-6),
    ]
    (curves,) = measured_curves(probed).values()
    assert curves["chain"][0].relative == pytest.approx((0.5, 0.5, 0.5), rel=0.1)
    assert curves["default"][0].relative == (1.0, 1.0, 1.0)
    assert curves["linear"][0].relative is None


def test_our_schedules_have_curves_of_their_own() -> None:
    ours = replace(series("ring", 64, 1.0), kind="schedule")
    (curves,) = measured_curves([series("ring", 64, 2.0), ours]).values()
    assert list(curves) == ["ring", "ring via schedule"]


@pytest.mark.slow
def test_a_page_says_how_far_predictions_are_off(result: LibraryResult) -> None:
    (times,) = measured_curves(
        [series("chain", 8, 1e-6), series("chain", 64, 2e-6), series("ring", 8, 4e-6)]
    ).values()
    told = {"chain": {8: 2e-6, 64: 1e-6}, "ring": {8: 2e-6, 16: 1.0}, "tree": {8: 1.0}}
    assert prediction_error(times, told) == pytest.approx(2.0)
    assert prediction_error(times, {"tree": {8: 1.0}}) is None
    assert "off by a factor of 64.00 or less" in render_page([result])
    assert "off by a factor" not in render_page([replace(result, predictions=[])])


def test_page_is_one_file_with_its_plots_inside(result: LibraryResult, tmp_path: Path) -> None:
    tried = {**validation(True), "sizes": [4, 4096, 2**22]}
    result = replace(result, validations=[tried, validation(False)])
    page = render_page([result])
    assert ">3 sizes, 4B .. 4MiB<" in page
    drawings = re.findall(r'<svg class="plot".*?</svg>', page, re.DOTALL)
    assert len(drawings) == 2  # of one collective
    body = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    for drawing in re.findall(r"<figure>.*?</figure>", body, re.DOTALL):
        ElementTree.fromstring(drawing)
    assert "A CPU &amp; more" in page
    assert "no: it fell back" in page
    assert not re.search(r"(src|href)=['\"]http", page)
    assert page == render_page([result])  # the same data gives the same file


def test_a_call_that_is_slower_under_one_condition_is_slower() -> None:
    part = {"default_s": 1e-5, "tuned_s": 1e-5}
    conditions = {
        "barrier reused": {**part, "ratio": 1.5, "ci95": [1.4, 1.6], "slower": False},
        "row reused": {**part, "ratio": 0.8, "ci95": [0.7, 0.9], "slower": True},
        "row fresh": {**part, "ratio": 0.7, "ci95": [0.5, 0.99], "slower": False},
    }
    record = {**held(1.1), "conditions": conditions}
    assert cautions.is_slower(record)
    assert cautions.comparison_cautions([record], [])[0].startswith(
        "1 call became slower, at most 1.25 times"
    )
    assert not cautions.is_slower(
        {**record, "conditions": {"barrier reused": conditions["barrier reused"]}}
    )


def test_what_a_file_costs_where_it_changes_nothing_is_said(result: LibraryResult) -> None:
    def control(collective: str, nbytes: int, ratio: float, slower: bool = True) -> dict[str, Any]:
        part = {"default_s": 1e-5, "tuned_s": 1e-5 / ratio, "ratio": ratio, "ci95": [0.1, 0.9]}
        named = {"collective": collective, "nbytes": nbytes, "algorithm": "default"}
        return {**held(ratio), **named, "conditions": {"row reused": {**part, "slower": slower}}}

    heldout = [
        control("bcast", 12_288, 0.25),
        control("allreduce", 16, 0.5),
        control("bcast", 50_000, 0.2, slower=False),
    ]
    said = summarise([replace(result, heldout=heldout)])["libraries"]["openmpi"]["cautions"]
    assert (
        "The file itself costs time: calls that the table leaves to the library become slower, at"
        " most 4.00 times (bcast of 12KiB). It pays for programs whose calls are larger than"
        " 12KiB." in said
    )


@pytest.mark.slow
def test_the_page_says_how_both_sides_were_started(result: LibraryResult) -> None:
    how = {"program": "C program", "thread_level": "single", "conditions": ["barrier reused"]}
    table = TuningTable(
        result.table.cluster, result.table.library, result.table.rules, {"acceptance": how}
    )
    use = {"command": ["mpiexec"], "environment": {"FILE": "a<b"}}
    page = render_page([replace(result, table=table, launch_settings=use)])
    assert "launches of a C program at thread level single" in page
    assert "<code>FILE=a&lt;b mpiexec</code>" in page
    assert "at thread level" not in render_page([result])


def test_a_wrong_result_is_a_caution() -> None:
    found = cautions.comparison_cautions([], [{**held(1.0), "wrong": True}, held(1.0)])
    assert found[0].startswith("1 call gave a wrong result, such as allreduce of ")
    assert found[0].endswith("Do not use the table.")
    assert not cautions.comparison_cautions([], [held(1.0)])


def test_what_has_no_ratio_is_left_out_of_the_page(result: LibraryResult) -> None:
    rules = [
        replace(one, evidence=replace(one.evidence, gain=0.0, gain_ci95=(0.0, math.inf)))
        for one in result.table.rules
    ]
    table = TuningTable(CLUSTER, LIBRARY, tuple(rules))
    timed = replace(result.measurements, series=(series("default", 8, 0.0), series("ring", 8, 0.0)))
    page = render_page([replace(result, table=table, measurements=timed)])
    assert ">Rules<" in page
    assert '<svg class="plot"' not in page


def test_measurements_of_no_collective_are_refused() -> None:
    with pytest.raises(InputError, match="expected a collective, got 'nonsense'; known: bcast"):
        measured_curves([replace(series("ring", 8, 1e-5), subject="nonsense")])
