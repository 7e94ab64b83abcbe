"""Evaluation: cases from files, what is left out, the baselines' numbers, and the verb."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.stored import measurements_file
from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster, Measurement, Measurements
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable, write_table
from tuner.importers import parse_results, read_results
from tuner.select.baselines import train_nearest_winner
from tuner.select.cases import (
    LARGEST_NODE_COUNT_OUT,
    LEAVE_NODE_COUNT_OUT,
    LEAVE_SIZE_OUT,
    NEW_MACHINE,
    EvaluationCase,
    cases_from_readings,
    drop_algorithms,
    folds,
    group_cases,
)
from tuner.select.dataset import CallPoint, Observation, no_simulation
from tuner.select.evaluate import (
    BEST_SINGLE,
    DEFAULT_LABEL,
    TUNER,
    TUNER_GUARDED,
    evaluate,
    is_slower,
    selector_trainers,
    summarise_regret,
)

pytestmark = pytest.mark.slow

HEAD = "cluster,library,run,collective,nodes,ppn,algorithm,size_bytes,median_us"
COUNTS = (2, 4, 8, 16)
SIZES = tuple(4**k for k in range(2, 10))


def microseconds(nodes: int, nbytes: int, algorithm: str) -> float:
    """Tree and ring cross; the default is the tree, made worse above 1 KiB."""
    tree = math.log2(nodes) * (10 + nbytes / 1000)
    ring = nodes * 10 + nbytes / 4000
    default = tree * (1.5 if nbytes > 1024 else 1.0)
    return {"tree": tree, "ring": ring, "default": default}[algorithm]


def text(cluster: str = "ares", names: Sequence[str] = ("default", "tree", "ring")) -> str:
    rows = [
        f"{cluster},openmpi 5.0.11,r1,bcast,{nodes},1,{name},{n},{microseconds(nodes, n, name)}"
        for nodes in COUNTS
        for n in SIZES
        for name in names
    ]
    return "\n".join([HEAD, *rows, ""])


def cases(
    content: str, *, together: bool = False, left_out: Sequence[str] = ()
) -> list[EvaluationCase]:
    return drop_algorithms(cases_from_readings(parse_results(content), together), left_out)


TREE, RING, CHAIN = map(AlgorithmChoice, ("tree", "ring", "chain"))


def runs_of_a_call(**runs: Mapping[str, float]) -> list[EvaluationCase]:
    """Return the cases of one broadcast, whose times in microseconds are given for each run."""
    rows = [
        f"ares,ompi 5,{run},bcast,2,1,{name},64,{us}"
        for run, times in runs.items()
        for name, us in times.items()
    ]
    return cases("\n".join([HEAD, *rows, ""]))


def test_a_case_is_one_call() -> None:
    rows = [
        "ares,ompi 5,r1,bcast,2,1,tree,64,5",
        "ares,ompi 5,r1,bcast,2,1,tree,64,7",
        "ares,ompi 5,r1,bcast,2,1,default,64,9",
        "ares,ompi 5,r2,scan,2,1,tree,64,8",
        "ares,ompi 5,r2,bcast,2,1,tree,128,8",
    ]
    first, second = cases("\n".join([HEAD, *rows, ""]))
    assert (first.group, first.point) == ("ares openmpi 5", CallPoint("bcast", 2, 1, "host", 64))
    assert first.observations[TREE].seconds == pytest.approx(6e-6)
    assert first.observations[first.fastest].seconds == pytest.approx(6e-6)
    assert first.regret(AlgorithmChoice()) == pytest.approx(0.5)
    assert list(second.observations) == [TREE]


def test_a_call_of_several_runs_counts_once_with_their_geometric_mean() -> None:
    (case,) = runs_of_a_call(r1={"tree": 4, "ring": 9}, r2={"ring": 16, "tree": 9})
    assert case.observations[TREE].seconds == pytest.approx(6e-6)
    assert case.observations[RING].seconds == pytest.approx(12e-6)


def test_a_choice_of_one_run_is_compared_within_it() -> None:
    """The second run is twice as slow, so that its ring is as fast as the tree."""
    (case,) = runs_of_a_call(r1={"tree": 4, "chain": 6}, r2={"ring": 8, "tree": 8, "chain": 12})
    times = {choice: row.seconds for choice, row in case.observations.items()}
    assert times[CHAIN] / times[TREE] == pytest.approx(1.5)
    assert times[RING] / times[TREE] == pytest.approx(1.0)


def test_one_choice_in_common_links_runs() -> None:
    """All take as long, and each run twice as long as the one before."""
    one = runs_of_a_call(r1={"tree": 4, "default": 4}, r2={"tree": 8, "ring": 8, "chain": 8})
    more = runs_of_a_call(
        r1={"default": 5, "tree": 5}, r2={"tree": 10, "ring": 10}, r3={"ring": 20, "chain": 20}
    )
    for (case,) in (one, more):
        assert [case.regret(choice) for choice in (TREE, RING, CHAIN)] == pytest.approx([0.0] * 3)


def test_a_second_run_of_the_default_alone_changes_nothing() -> None:
    one = {"default": 8, "tree": 4, "ring": 6}
    (case,) = runs_of_a_call(r1=one, r2={"default": 24})
    assert case.regret(AlgorithmChoice()) == pytest.approx(1.0)
    assert case.regret(RING) == pytest.approx(0.5)


def test_what_runs_leave_open_widens_the_interval() -> None:
    """The ring is a tenth slower than the tree in one run, and as fast in the other."""
    (case,) = runs_of_a_call(r1={"tree": 4, "ring": 4.4}, r2={"tree": 4, "ring": 4})
    (sure,) = runs_of_a_call(r1={"tree": 4, "ring": 4.2}, r2={"tree": 4, "ring": 4.2})
    wide, narrow = (one.observations[RING] for one in (case, sure))
    assert wide.high / wide.low > narrow.high / narrow.low > 1.0


def test_runs_are_one_case_where_others_link_them() -> None:
    apart = {"r1": {"tree": 4, "default": 5}, "r2": {"ring": 8, "chain": 9}}
    assert [{*case.observations} for case in runs_of_a_call(**apart)] == [
        {TREE, AlgorithmChoice()},
        {RING, CHAIN},
    ]
    (linked,) = runs_of_a_call(**apart, r3={"tree": 3, "ring": 6})
    assert {*linked.observations} == {TREE, AlgorithmChoice(), RING, CHAIN}


def test_calls_whose_runs_are_not_compared_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.csv"
    more = [
        "ares,openmpi 5.0.11,r2,bcast,2,1,one,16,5",
        "ares,openmpi 5.0.11,r2,bcast,2,1,two,16,6",
    ]
    path.write_text(text() + "\n".join([*more, ""]))
    assert main(["evaluate", str(path)]) == 0
    assert f"{path}: 1 call measured in runs that have no algorithm in common" in " ".join(
        capsys.readouterr().err.split()
    )


def test_cases_without_the_default_are_left_out_where_others_have_it() -> None:
    extra = "ares,openmpi 5.0.11,r2,bcast,3,1,tree,64,1\n"
    found = group_cases(cases(text() + extra))
    assert list(found) == ["ares openmpi 5.0.11 bcast host"]
    (own,) = found.values()
    assert len(own) == len(COUNTS) * len(SIZES)
    assert (
        len(group_cases(cases(text(names=["tree", "ring"]) + extra)).popitem()[1]) == len(own) + 1
    )


def test_libraries_are_candidates_when_they_are_taken_together() -> None:
    more = text(names=["default"]).replace(HEAD + "\n", "").replace("openmpi 5.0.11", "mpich 5")
    both = text() + more
    (own,) = group_cases(cases(both, together=True)).values()
    assert {choice.algorithm for choice in own[0].observations} == {
        "openmpi 5.0.11 default",
        "mpich 5 default",
        "tree",
        "ring",
    }
    assert len(group_cases(cases(both))) == 2
    assert all(
        AlgorithmChoice("ring") not in case.observations for case in cases(both, left_out=["ring"])
    )


def test_protocols_leave_out_node_counts_sizes_and_machines() -> None:
    two = cases(text() + text("hermes").replace(HEAD + "\n", ""))
    own = group_cases(two)["ares openmpi 5.0.11 bcast host"]
    assert len(folds(own, LEAVE_NODE_COUNT_OUT)) == len(COUNTS)
    assert len(folds(own, LEAVE_SIZE_OUT)) == len(SIZES)
    for known, asked in folds(own, LEAVE_NODE_COUNT_OUT):
        assert not {case.point.nodes for case in known} & {case.point.nodes for case in asked}
        assert len(known) + len(asked) == len(own)
    ((known, asked),) = folds(own, LARGEST_NODE_COUNT_OUT)
    assert {case.point.nodes for case in known} == set(COUNTS[:-1])
    assert {case.point.nodes for case in asked} == {COUNTS[-1]}
    assert folds(own, NEW_MACHINE) == []
    (pooled,) = group_cases(two, pooled=True).values()
    assert len(folds(pooled, NEW_MACHINE)) == 2


def test_the_selector_beats_copying_the_nearest_winner() -> None:
    (own,) = group_cases(cases(text())).values()
    scores = evaluate(own, LEAVE_SIZE_OUT, selector_trainers(baselines=["nearest"]))
    assert list(scores) == [TUNER, TUNER_GUARDED, "nearest", DEFAULT_LABEL, BEST_SINGLE]
    assert scores[TUNER].regret.mean < 0.02
    assert scores[TUNER].regret.mean < scores["nearest"].regret.mean
    assert scores[TUNER].slower_fraction == 0
    assert scores[TUNER].regret_reduction > 0.9
    assert scores[TUNER_GUARDED].slower_fraction == 0
    default = scores[DEFAULT_LABEL]
    assert (default.regret_reduction, default.slower_fraction, default.regret.points) == (
        0,
        0,
        len(own),
    )
    assert default.regret.mean > 0.3


def test_what_is_held_out_alone_is_scored() -> None:
    """Also of selectors that learn nothing, which would be scored on other calls otherwise."""
    (own,) = group_cases(cases(text())).values()
    scores = evaluate(own, LARGEST_NODE_COUNT_OUT, selector_trainers(baselines=["nearest"]))
    assert {score.regret.points for score in scores.values()} == {len(SIZES)}


def test_the_interval_of_a_mean_narrows_with_the_number_of_calls() -> None:
    """Four times as many independent calls halve the width of the interval of their mean."""
    few, many = (summarise_regret([0.0, 0.1, 0.4, 0.0] * n) for n in (10, 40))
    assert few.interval[0] < few.mean < few.interval[1]
    low, high = many.interval
    assert high - low == pytest.approx((few.interval[1] - few.interval[0]) / 2, rel=0.15)
    assert summarise_regret([0.2] * 5).interval == pytest.approx((0.2, 0.2))


def test_losses_to_the_default_are_counted() -> None:
    (own,) = group_cases(cases(text())).values()
    ring = evaluate(
        own,
        LEAVE_NODE_COUNT_OUT,
        {"ring": lambda _: lambda _point, _choices: AlgorithmChoice("ring")},
    )["ring"]
    slower = [
        case.observations[AlgorithmChoice("ring")].seconds
        > 1.02 * case.observations[AlgorithmChoice()].seconds
        for case in own
    ]
    assert ring.slower_fraction == pytest.approx(sum(slower) / len(own))
    default = evaluate(own, LEAVE_NODE_COUNT_OUT, {})[DEFAULT_LABEL]
    assert ring.regret_reduction == pytest.approx(1 - ring.regret.mean / default.regret.mean)


@pytest.mark.parametrize(
    ("times", "known", "slower"),
    [
        (1.1, (0.01, 0.01), True),
        (1.1, (0.2, 0.01), False),
        (1.1, (0.01, 0.2), False),
        (1.3, (0.2, 0.2), True),
        (1.01, (0.0, 0.0), False),
    ],
)
def test_a_loss_counts_when_it_is_more_than_either_time_is_uncertain_by(
    times: float, known: tuple[float, float], slower: bool
) -> None:
    at, tree = CallPoint("bcast", 2, 1, "host", 64), AlgorithmChoice("tree")
    rows = {
        choice: Observation(at, choice, {}, seconds, seconds * (1 - by), seconds * (1 + by))
        for choice, seconds, by in zip((tree, AlgorithmChoice()), (times, 1.0), known, strict=True)
    }
    assert is_slower(EvaluationCase("ares", at, rows), tree) is slower
    assert not is_slower(EvaluationCase("ares", at, rows), AlgorithmChoice())


def test_the_noise_floor_stands_beside_the_regrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every set, every machine in it and all calls together have a noise floor."""
    path = tmp_path / "m.csv"
    path.write_text(text() + text("hermes").replace(HEAD + "\n", ""))
    record, _ = evaluated(capsys, path)
    calls = len(COUNTS) * len(SIZES)
    assert len(record["sets"]) == 2
    total = record["total"]
    for own in (*record["sets"].values(), total):
        assert own[-1]["selector"] == "noise floor"
        low, high = own[-1]["interval"]
        assert 0 <= low <= own[-1]["mean"] <= high < 0.02
        assert own[-1]["points"] == (2 * calls if own is total else calls)
    mean = statistics.fmean(own[0]["mean"] for own in record["sets"].values())
    assert total[0]["mean"] == pytest.approx(mean)
    record, _ = evaluated(capsys, path, "--cv", NEW_MACHINE)
    for own in record["machines"]["bcast host"].values():
        assert own[-1]["selector"] == "noise floor"
    assert main(["evaluate", str(path), "--baselines", "nearest"]) == 0
    printed = capsys.readouterr().out
    assert "total of 2 of 2 sets: regret, %, leave-one-node-count-out" in printed
    assert printed.count("\nnoise floor ") == 3


def test_sets_without_all_selectors_do_not_count_in_the_total(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text() + text("hermes", ["tree", "ring"]).replace(HEAD + "\n", ""))
    record, _ = evaluated(capsys, path)
    own = record["sets"]["ares openmpi 5.0.11 bcast host"]
    assert record["total"] == own
    assert len(record["sets"]["hermes openmpi 5.0.11 bcast host"]) == len(own) - 1
    assert main(["evaluate", str(path), "--baselines", "nearest"]) == 0
    total = "total of 1 of 2 sets (without hermes openmpi 5.0.11 bcast host): regret"
    assert total in " ".join(capsys.readouterr().out.split())


def test_without_a_default_only_regret_is_told() -> None:
    (own,) = group_cases(cases(text(names=["tree", "ring"]))).values()
    scores = evaluate(own, LEAVE_NODE_COUNT_OUT, selector_trainers(baselines=["nearest"]))
    assert DEFAULT_LABEL not in scores
    assert math.isnan(scores[TUNER].slower_fraction)
    assert scores[TUNER].regret.mean <= scores["nearest"].regret.mean


def test_nothing_is_learned_where_one_value_alone_was_measured() -> None:
    (own,) = group_cases(cases(text())).values()
    one = [case for case in own if case.point.nodes == 8]
    assert list(evaluate(one, LEAVE_NODE_COUNT_OUT, selector_trainers(baselines=["nearest"]))) == [
        DEFAULT_LABEL,
        BEST_SINGLE,
    ]


def test_calls_with_one_choice_alone_are_not_scored() -> None:
    (own,) = group_cases(cases(text())).values()
    tree = {AlgorithmChoice("tree"): own[0].observations[AlgorithmChoice("tree")]}
    alone = [replace(case, observations=tree) if case.point.nbytes == 64 else case for case in own]
    (every, some) = (
        evaluate(each, LEAVE_NODE_COUNT_OUT, selector_trainers(baselines=["nearest"]))
        for each in (own, alone)
    )
    for name in (TUNER, "nearest"):
        assert every[name].regret.points == len(own)
        assert some[name].regret.points == len(own) - len(COUNTS)


def test_a_winner_that_cannot_be_had_is_passed_over() -> None:
    (own,) = group_cases(cases(text())).values()
    pick = train_nearest_winner(own)
    at = CallPoint("bcast", 2, 1, "host", 16)
    assert pick(at, [AlgorithmChoice("ring"), AlgorithmChoice("tree")]) == AlgorithmChoice("tree")
    assert pick(at, [AlgorithmChoice("ring"), AlgorithmChoice()]) == AlgorithmChoice()
    assert pick(at, [AlgorithmChoice("other")]) == AlgorithmChoice("other")


def test_results_without_collectives_cannot_be_evaluated() -> None:
    with pytest.raises(InputError, match="expected readings of collectives"):
        cases(f"{HEAD}\nares,openmpi 5,r1,scan,2,1,tree,64,5\n")


# the verb


def test_the_verb_prints_a_table_and_the_same_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text())
    words = ["evaluate", str(path), "--baselines", "nearest,neighbours"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "ares openmpi 5.0.11 bcast host: regret, %, leave-one-node-count-out" in printed
    assert [line.split()[0] for line in printed.splitlines()[3:9]] == [
        "tuner",
        "tuner,",
        "nearest",
        "neighbours",
        "default",
        "best",
    ]
    assert main([*words, "--cv", LEAVE_SIZE_OUT, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["protocol"] == LEAVE_SIZE_OUT
    (scores,) = record["sets"].values()
    keys = "selector", "mean", "interval", "p95", "worst", "points", "slower", "headroom"
    assert scores[0].keys() == {*keys}


def evaluated(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[dict[str, Any], str]:
    """Return the record that the verb prints, and what it says beside."""
    assert main(["evaluate", *map(str, words), "--baselines", "nearest", "--json"]) == 0
    said = capsys.readouterr()
    return json.loads(said.out), said.err


def test_selectors_learn_from_some_files_and_are_scored_on_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each machine has its own scores, too; calls of a kind that was not learned are left out."""
    known, two = tmp_path / "known.csv", tmp_path / "two.csv"
    known.write_text(text())
    rows = text("hermes").replace(HEAD + "\n", "")
    other = rows.replace(",bcast,", ",gather,")
    two.write_text(text("zeus") + rows + other)
    record, said = evaluated(capsys, known, "--test", two)
    assert record["protocol"] == "other files"
    ((total, own),) = record["sets"].items()
    assert total == "bcast host"
    parts = record["machines"][total]
    assert [*parts] == ["hermes openmpi 5.0.11", "zeus openmpi 5.0.11"]
    calls = len(COUNTS) * len(SIZES)
    assert [scores[0]["points"] for scores in (own, *parts.values())] == [2 * calls, calls, calls]
    means = {one["selector"]: one["mean"] for one in own}
    assert means[TUNER] < 0.5 * means[DEFAULT_LABEL]  # the same times were learned
    assert "gather host: left out, since the files to learn from have no such calls" in said
    two.write_text(f"{HEAD}\n{other}")
    assert main(["evaluate", str(known), "--test", str(two)]) == 1
    assert "have calls of bcast host, those to test of gather host" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cv", NEW_MACHINE], "--test and --cv exclude one another"),
        (["--pooled"], "--test and --pooled exclude one another"),
    ],
)
def test_options_that_contradict_a_test_are_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known, other = tmp_path / "known.csv", tmp_path / "other.csv"
    for path in (known, other):
        path.write_text(text())
    assert main(["evaluate", str(known), "--test", str(other), *words]) == 2
    assert said in capsys.readouterr().err
    assert main(["evaluate", str(known), "--test", str(known)]) == 2
    assert "is named both before and after --test" in capsys.readouterr().err


def test_algorithms_of_either_file_can_be_left_out_of_a_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known, other = tmp_path / "known.csv", tmp_path / "other.csv"
    known.write_text(text(names=["default", "tree"]))
    other.write_text(text())
    record, _ = evaluated(capsys, known, "--test", other, "--exclude-algorithms", "ring", "--json")
    assert {one["worst"] for one in record["sets"]["bcast host"] if one["selector"] == TUNER} == {0}
    assert main(["evaluate", str(known), "--test", str(other), "--exclude-algorithms", "no"]) == 1
    assert "'no' cannot be left out" in capsys.readouterr().err


def test_the_largest_node_count_that_is_held_out_has_a_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The largest allocation is often measured with the default alone."""
    path = tmp_path / "m.csv"
    alone = [f"ares,openmpi 5.0.11,r1,bcast,32,1,default,{n},9" for n in SIZES]
    path.write_text("\n".join([text().rstrip(), *alone, ""]))
    record, _ = evaluated(capsys, path, "--cv", LARGEST_NODE_COUNT_OUT)
    (own,) = record["sets"].values()
    assert {one["points"] for one in own} == {len(SIZES)}


def test_each_machine_that_was_held_out_is_scored_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text() + text("hermes").replace(HEAD + "\n", ""))
    record, _ = evaluated(capsys, path, "--cv", NEW_MACHINE)
    assert [*record["machines"]["bcast host"]] == ["ares openmpi 5.0.11", "hermes openmpi 5.0.11"]


def test_a_selector_is_never_sure_on_a_machine_that_it_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even on one with the same times as the others."""
    path = tmp_path / "m.csv"
    path.write_text(text() + text("hermes").replace(HEAD + "\n", ""))
    for words, times in (["--cv", NEW_MACHINE], 1), (["--cv", LEAVE_SIZE_OUT, "--pooled"], 0):
        assert main(["evaluate", str(path), *words, "--baselines", "nearest"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert said.count("keeps the default in all calls") == times


def test_where_a_selector_is_never_sure_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It never is on far more nodes, which does not matter where the default is the best."""
    known, far = tmp_path / "known.csv", tmp_path / "far.csv"
    lines = text().splitlines()
    known.write_text("\n".join([HEAD, *(line for line in lines if ",bcast,2,1," in line), ""]))
    beyond = [line for line in lines if ",bcast,16,1," in line]
    best = [f"{line.rpartition(',')[0]},{1 + (',default,' not in line)}" for line in beyond]
    for rows, times in ((beyond, 1), (best, 0)):
        far.write_text("\n".join([HEAD, *rows, ""]))
        assert main(["evaluate", str(known), "--test", str(far), "--baselines", "nearest"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert said.count("tuner, if sure keeps the default in all calls") == times


def test_probes_that_stop_early_are_scored_with_and_without_a_prior(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, alone = tmp_path / "m.csv", tmp_path / "alone.csv"
    path.write_text(text() + text("hermes").replace(HEAD + "\n", ""))
    alone.write_text(text("zeus", ("tree", "ring")))
    words = ["evaluate", str(path), str(alone), "--probes", "1%,50%", "--seeds", "2"]
    assert main([*words, "--json"]) == 0
    said = capsys.readouterr()
    record = json.loads(said.out)
    assert record["protocol"] == "probes"
    assert [*record["sets"]] == [
        "ares openmpi 5.0.11 bcast host",
        "hermes openmpi 5.0.11 bcast host",
    ]
    assert "zeus openmpi 5.0.11 bcast host: not probed, since the library's default" in said.err
    for own in record["sets"].values():
        assert [(one["share"], one["prior"]) for one in own] == [
            (share, prior) for prior in (False, True) for share in (0.0, 0.01, 0.5)
        ]
        by_default = [microseconds(n, s, "default") for n in COUNTS for s in SIZES]
        best = [
            min(microseconds(n, s, name) for name in ("default", "tree", "ring"))
            for n in COUNTS
            for s in SIZES
        ]
        losses = [a / b - 1 for a, b in zip(by_default, best, strict=True)]
        assert own[0]["mean"] == pytest.approx(sum(losses) / len(losses))
        assert own[2]["mean"] < 0.2 * own[0]["mean"]
        assert own[2]["slower"] <= 0.05
        assert {(one["points"], one["replays"]) for one in own} == {(len(losses), 2)}
        low, high = own[0]["interval"]
        once = 1.96 * statistics.stdev(losses) / math.sqrt(len(losses))
        assert (high - low) / 2 == pytest.approx(once, rel=0.2)  # replays are no further calls
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert (
        "hermes openmpi 5.0.11 bcast host: regret, %, probes, other machines as a prior" in printed
    )
    assert "Mean regret of 2 sets without a prior, %:" in printed
    assert main(["evaluate", str(alone), "--probes", "5%"]) == 1
    assert "expected times of the library's default" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--probes", "5%,1%"], "shares ascend and are at most 100%: write them like 0.5%"),
        (["--probes", "5%,150%"], "shares ascend and are at most 100%"),
        (["--probes", "5%", "--baselines", "nearest"], "--probes and --baselines exclude"),
        (["--probes", "5%", "--cv", NEW_MACHINE], "--probes and --cv exclude one another"),
        (["--probes", "5%", "--topology", "t.yaml"], "--probes and --topology exclude one another"),
        (["--seeds", "2"], "--seeds is for --probes"),
    ],
)
def test_options_that_contradict_probes_are_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text())
    assert main(["evaluate", str(path), *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_who_cannot_learn_is_not_dropped_silently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text())
    assert main(["evaluate", str(path), "--cv", NEW_MACHINE]) == 0
    printed = capsys.readouterr()
    assert "all of it is of one machine, so new-machine leaves nothing to learn from" in printed.err
    assert f"choose another --cv, such as {LEAVE_NODE_COUNT_OUT} or {LEAVE_SIZE_OUT}" in " ".join(
        printed.err.split()
    )
    assert "nearest" not in printed.out
    assert main(["evaluate", str(path), "--baselines", "nearest"]) == 0
    assert "tuner:" not in capsys.readouterr().err


def test_one_node_count_of_many_sizes_is_evaluated_by_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.csv"
    one = [line for line in text().splitlines() if ",bcast,4,1," in line]
    path.write_text("\n".join([HEAD, *one, ""]))
    assert main(["evaluate", str(path)]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert said.endswith(f"or choose another --cv, such as {LEAVE_SIZE_OUT}")
    path.write_text("\n".join([HEAD, *(line for line in one if ",64," in line), ""]))
    assert main(["evaluate", str(path), "--cv", LEAVE_SIZE_OUT]) == 0
    assert " ".join(capsys.readouterr().err.split()).endswith("or choose another --cv")


def test_empty_columns_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.csv"
    for names, explained in ((("tree", "ring"), True), (("default", "tree"), False)):
        path.write_text(text(names=names))
        assert main(["evaluate", str(path), "--baselines", "nearest"]) == 0
        said = capsys.readouterr().out
        assert ("Where the library's default was not measured" in said) == explained


def test_calls_that_a_table_has_no_rules_for_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, table = tmp_path / "m.csv", tmp_path / "table.json"
    path.write_text(text())
    rules = tuple(
        Rule(
            RuleKey(Collective.BCAST, n, 1), 0, math.inf, AlgorithmChoice("ring"), Evidence("none")
        )
        for n in (2, 8)
    )
    cluster = Cluster("ares", 8, 1, "a CPU", 2**34)
    write_table(TuningTable(cluster, "openmpi 5.0.11", rules), table)
    assert main(["evaluate", str(path), "--baselines", "nearest", "--table", str(table)]) == 0
    silent, calls = 2 * len(SIZES), len(COUNTS) * len(SIZES)
    said = " ".join(capsys.readouterr().err.split())
    assert f"has no rules for {silent} of {calls} calls" in said


@pytest.mark.extended
def test_calls_at_which_a_table_says_what_was_not_measured_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A call of one algorithm alone is scored for nobody."""
    path, table = tmp_path / "m.csv", tmp_path / "table.json"
    path.write_text(text() + "ares,openmpi 5.0.11,r1,bcast,2,1,default,4,1\n")
    says = {2: "ring", 4: "hypercube", 8: "hypercube", 16: "tree"}
    rules = tuple(
        Rule(RuleKey(Collective.BCAST, n, 1), 0, math.inf, AlgorithmChoice(name), Evidence("none"))
        for n, name in says.items()
    )
    cluster = Cluster("ares", 16, 1, "a CPU", 2**34)
    words = ["evaluate", str(path), "--baselines", "nearest", "--table", str(table), "--json"]
    for kept, lost in ((rules, 2), (rules[1:3], 2), (rules[::3], 0)):
        write_table(TuningTable(cluster, "openmpi 5.0.11", kept), table)
        assert main(words) == 0
        said = capsys.readouterr()
        unscored, calls = lost * len(SIZES), len(COUNTS) * len(SIZES)
        warning = f"{table} is not scored at {unscored} of {calls} calls: what it says there was"
        assert (warning in " ".join(said.err.split())) == (lost > 0)
        (scores,) = json.loads(said.out)["sets"].values()
        (own,) = (score for score in scores if score["selector"] == str(table))
        assert own["points"] == calls - unscored


def test_a_table_of_another_library_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, table = tmp_path / "m.csv", tmp_path / "table.json"
    path.write_text(text())
    write_table(TuningTable(Cluster("ares", 8, 1, "a CPU", 2**34), "mpich 5.0.2", ()), table)
    assert main(["evaluate", str(path), "--baselines", "nearest", "--table", str(table)]) == 1
    assert "is for mpich 5.0.2, the results are of openmpi" in capsys.readouterr().err


def test_a_table_is_no_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "table.json"
    write_table(TuningTable(Cluster("ares", 8, 1, "a CPU", 2**34), "openmpi 5.0.11", ()), path)
    assert main(["evaluate", str(path)]) == 1
    assert "a tuning table, no results: `tuner evaluate RESULTS --table" in capsys.readouterr().err


@pytest.mark.parametrize("microseconds", ["0", "1e-300"])
def test_readings_without_a_time_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], microseconds: str
) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text() + f"ares,openmpi 5.0.11,r1,bcast,2,1,tree,512,{microseconds}\n")
    assert main(["evaluate", str(path), "--baselines", "nearest"]) == 0
    lines = len(text().splitlines())
    said = " ".join(capsys.readouterr().err.split())
    assert f"1 of {lines} readings tell no time" in said
    assert f"the first is in line {lines + 1}" in said


def test_means_are_told_from_medians(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, words = tmp_path / "m.csv", " readings are means, which a few slow calls move far"
    for column, warned in (("median_us", False), ("mean_us", True), ("time_us", False)):
        path.write_text(text().replace("median_us", column))
        assert main(["evaluate", str(path), "--baselines", "nearest"]) == 0
        assert (words in " ".join(capsys.readouterr().err.split())) == warned


def test_a_table_is_not_scored_quietly_on_what_it_was_made_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    series = tuple(
        Measurement("collective", "bcast", nodes, 1, nodes, n, (seconds, seconds), name)
        for nodes in COUNTS
        for n in SIZES
        for name in ("default", "tree")
        for seconds in [microseconds(nodes, n, name) * 1e-6]
    )
    cluster = Cluster("ares", 16, 1, "a CPU", 2**34)
    made = Measurements(cluster, "openmpi 5.0.11", {"when": "today"}, series)
    own, table = measurements_file(tmp_path / "m.ndjson", made), tmp_path / "table.json"
    for when, warned in (("today", True), ("yesterday", False)):
        of = {"probe": {"when": when}}
        write_table(TuningTable(cluster, "openmpi 5.0.11", (), of), table)
        words = ["evaluate", str(own), "--table", str(table), "--baselines", "nearest"]
        assert main(words) == 0
        assert (f"was made of {own}" in " ".join(capsys.readouterr().err.split())) == warned
    other = measurements_file(
        tmp_path / "other.ndjson", replace(made, provenance={"when": "tomorrow"})
    )
    for when, warned in (("today", False), ("tomorrow", True)):  # only the latter is scored on
        of = {"probe": {"when": when}}
        write_table(TuningTable(cluster, "openmpi 5.0.11", (), of), table)
        words = ["evaluate", str(own), "--test", str(other), "--table", str(table)]
        assert main([*words, "--baselines", "nearest"]) == 0
        assert ("was made of" in " ".join(capsys.readouterr().err.split())) == warned


@pytest.mark.parametrize(
    ("extra", "status", "said"),
    [
        (["--baselines", "oracle"], 2, "unknown baseline 'oracle': choose one of nearest"),
        (["--topology", "rack.yaml"], 2, "needs both --calibration and --topology"),
        (["--exclude-algorithms", "tree,ring"], 1, "nothing to choose from"),
        (
            ["--exclude-algorithms", "tree,rign"],
            1,
            "'rign' cannot be left out: measured are default, ring, tree",
        ),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], status: int, said: str
) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text())
    assert main(["evaluate", str(path), *extra]) == status
    assert said in capsys.readouterr().err


def test_a_folder_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"tuner: {tmp_path} is a folder without files of NCCL's Inspector:")


# public tables


def regrets(shared: Path, name: str, protocol: str, names: Sequence[str], **how: bool) -> list[str]:
    """Mean/p95 in whole percent of the selectors called `names`, for every set of a file."""
    path = shared / "data" / name
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    found = []
    read = cases_from_readings(read_results(path), **how)
    ignored = {choice.algorithm for case in read for choice in case.observations} & {"ignore"}
    for own in group_cases(drop_algorithms(read, ignored)).values():
        scores = evaluate(
            own, protocol, selector_trainers(baselines=[n for n in names if n != DEFAULT_LABEL])
        )
        kept = [scores[n].regret for n in names if n in scores]
        found.append(" ".join(f"{100 * r.mean:.0f}/{100 * r.p95:.0f}" for r in kept))
    return found


@pytest.mark.weekly
def test_published_numbers_of_the_baselines_come_out(shared: Path) -> None:
    both = (DEFAULT_LABEL, "nearest", "neighbours")
    leonardo = regrets(shared, "pico/leonardo.csv", LEAVE_NODE_COUNT_OUT, both)
    assert {"55/154 13/51 12/39", "102/369 26/102 24/93", "42/141 28/126 33/157"} <= {*leonardo}
    assert "383/1027" in leonardo
    assert regrets(shared, "pico/lumi.csv", LEAVE_NODE_COUNT_OUT, (DEFAULT_LABEL, "nearest")) == [
        "15/54 5/14",
        "12/24",
    ]
    nccl = regrets(shared, "pico/mn5_h100_nccl.csv", LEAVE_NODE_COUNT_OUT, both)
    assert nccl[0] == "2/9 1/11 2/11"
    assert regrets(
        shared, "pico/mn5_h100_nccl.csv", LEAVE_NODE_COUNT_OUT, both[:2], merge_libraries=True
    ) == ["3/16 1/8"]
    fugaku = regrets(shared, "pico/fugaku.csv", LEAVE_NODE_COUNT_OUT, (DEFAULT_LABEL, "nearest"))
    assert {*fugaku} == {
        "54/235 20/84",
        "70/252 126/282",
        "50/187 13/55",
        "71/205 0/0",
        "27/51 37/197",
        "24/92 1/5",
        "89/283 16/57",
    }
    aws = regrets(
        shared, "aws_c5n_mpi/algorithms_8x36.csv", LEAVE_SIZE_OUT, (DEFAULT_LABEL, "nearest")
    )
    assert {"106/230 0/0", "10/26 32/128"} <= {*aws}


@pytest.mark.weekly
def test_on_public_tables_the_selector_is_no_worse_than_nearest_winner_and_default(
    shared: Path,
) -> None:
    """Regrets of 2 to 4 % are worse by little: the nearest winner's on LUMI, both with NCCL."""
    excess = {"pico/leonardo.csv": 0.002, "pico/lumi.csv": 0.025, "pico/mn5_h100_nccl.csv": 0.005}
    for name, allowed in excess.items():
        path = shared / "data" / name
        if not path.is_file():
            pytest.skip(f"{path} is not there")
        for own in group_cases(cases_from_readings(read_results(path))).values():
            scores = evaluate(
                own, LEAVE_NODE_COUNT_OUT, selector_trainers(no_simulation, ["nearest"])
            )
            if TUNER in scores and DEFAULT_LABEL in scores:
                ours = scores[TUNER].regret.mean
                assert ours <= scores["nearest"].regret.mean + allowed
                assert ours <= scores[DEFAULT_LABEL].regret.mean + min(allowed, 0.005)
                assert scores[TUNER_GUARDED].slower_fraction <= 0.04
