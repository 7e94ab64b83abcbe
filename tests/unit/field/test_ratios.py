"""The statistics of the field check: ratios, intervals, Holm's correction, verdicts."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
from scipy import stats

from tests.field.calls import Call
from tests.field.launches import PATTERNS, Launch
from tests.field.ratios import by_chance, estimate, holm, level_out
from tests.field.record import Pair
from tests.field.result_json import to_json
from tests.field.results import ALL, Result, Row, analyse
from tests.field.summary import format_result
from tests.field.tables import Comparison, Library, Rule, Use

LOGS = [0.31, 0.22, 0.4, 0.27, 0.29]


def test_interval_and_p_value_are_those_of_the_t_test() -> None:
    found, reference = estimate(LOGS), stats.ttest_1samp(LOGS, 0)
    low, high = reference.confidence_interval(0.95)
    assert found.p == pytest.approx(reference.pvalue)
    assert (found.low, found.high) == pytest.approx((exp(low), exp(high)))
    assert found.ratio == pytest.approx(exp(np.mean(LOGS)))
    assert found.verdict == "faster"
    assert estimate([-x for x in LOGS]).verdict == "slower"
    assert estimate([0.1, -0.1, 0.05, -0.04]).verdict == "same"


def test_near_and_far_pairs_widen_no_interval() -> None:
    random = np.random.default_rng(5)
    far = np.array([False] * 6 + [True] * 4)
    held, runs = 0, 2000
    widths = []
    for _ in range(runs):
        logs = np.where(far, -0.5, 0.5) + random.normal(0, 0.05, 10)
        found = estimate(level_out(logs, far), 2)
        assert found.ratio == pytest.approx(exp(logs.mean()))
        held += found.low <= exp(0.6 * 0.5 - 0.4 * 0.5) <= found.high
        widths.append(log(found.high / found.low) / 2)
    assert 0.935 < held / runs < 0.965
    assert np.mean(widths) == pytest.approx(stats.t.ppf(0.975, 8) * 0.05 / 10**0.5, rel=0.1)


def test_one_pair_is_not_enough() -> None:
    with pytest.raises(ValueError, match="at least 2 pairs of launches, got 1"):
        estimate([0.1])


def test_holm_by_hand() -> None:
    # 0.01 <= 0.05 / 4 and 0.013 <= 0.05 / 3, but 0.03 > 0.05 / 2: the last two stay.
    assert holm([0.03, 0.01, 0.04, 0.013]) == [False, True, False, True]
    assert holm([0.04]) == [True]
    assert holm([]) == []


def test_holm_keeps_false_alarms_of_a_whole_run_below_its_level() -> None:
    random = np.random.default_rng(1)
    runs, tests = 400, 50
    alarms = plain = 0
    for _ in range(runs):
        p = stats.ttest_1samp(random.normal(0, 0.05, (tests, 10)), 0, axis=1).pvalue
        alarms += any(holm(list(p)))
        plain += int(np.sum(p < 0.05))
    assert alarms <= stats.binom.ppf(0.999, runs, 0.05)
    assert plain / 2 == pytest.approx(runs * by_chance(tests), rel=0.15)


def pairs(gains: dict[str, float], noise: float, launches: int = 10) -> list[Pair]:
    """Return pairs of launches of these calls, each so many times as fast with the tuning."""
    random = np.random.default_rng(7)
    done = []
    for number in range(launches):
        machine = random.normal(0, 0.2)  # both arms of a pair share it

        def arm(gain: float, machine: float = machine) -> float:
            return 1e-5 * exp(machine + random.normal(0, noise)) / gain

        keys = [(call, pattern) for call in gains for pattern in PATTERNS]
        default = {key: arm(1.0) for key in keys}
        tuned = {(call, pattern): arm(gains[call]) for call, pattern in keys}
        none = dict.fromkeys(gains, 0)
        done.append(
            Pair("openmpi", 2, number, Launch(150, default, none), Launch(150, tuned, none))
        )
    return done


def check(gains: dict[str, float], noise: float = 0.02, launches: int = 10) -> Result:
    rule = Rule("allreduce", 2, 0, 1000, "linear", (4, 64))
    reported = (Comparison("allreduce", 2, 400, 1.3, (1.2, 1.4)),)
    library = Library("openmpi", "openmpi 5", (rule,), reported, Use((), {}), "digest")
    calls = []
    for word in gains:
        collective, size = word.split(":")
        algorithm = library.algorithm(collective, 2, int(size))
        origin = "report" if word == "allreduce:400" else "rule"
        calls.append(Call(collective, 2, int(size), algorithm, origin))
    result = analyse([library], {"openmpi": calls}, pairs(gains, noise, launches))
    print(format_result([library], result))
    return result


def row(result: Result, word: str) -> Row:
    return next(row for row in result.rows if row.call.word == word)


def test_a_slow_call_fails_the_check() -> None:
    kept = {f"bcast:{4 * n}": 1.0 for n in range(1, 30)}
    result = check({"allreduce:36": 1.5, "allreduce:100": 0.8, **kept})
    assert result.failed
    slow = row(result, "allreduce:100")
    assert slow.certainly("slower")
    assert slow.estimates[ALL].ratio == pytest.approx(0.8, rel=0.05)
    assert row(result, "allreduce:36").certainly("faster")
    assert not any(row(result, word).certainly("slower") for word in kept)


def test_equal_arms_pass_the_check() -> None:
    result = check({f"bcast:{4 * n}": 1.0 for n in range(1, 40)})
    assert not result.failed
    assert not result.changed
    found = result.kept["openmpi"][ALL]
    assert found.low < 1 < found.high
    assert result.self_check.tests == 39 * 4
    assert result.self_check.expected == pytest.approx(39 * 4 * 0.05)


def test_wrong_results_fail_the_check() -> None:
    result = check({"bcast:36": 1.0})
    assert not result.failed
    wrong = [
        Pair(
            p.library,
            p.ranks,
            p.number,
            p.default,
            Launch(p.tuned.message_ns, p.tuned.seconds, {"bcast:36": 3}),
        )
        for p in result.pairs
    ]
    library = Library("openmpi", "openmpi 5", (), (), Use((), {}), "digest")
    call = Call("bcast", 2, 36, "default", "rule")
    assert analyse([library], {"openmpi": [call]}, wrong).failed


def test_the_mean_of_changed_calls_and_the_report() -> None:
    result = check({"allreduce:36": 1.2, "allreduce:400": 1.3, "bcast:36": 1.0}, launches=12)
    mean = result.changed["openmpi"][ALL]
    assert mean.low < exp((log(1.2) + log(1.3)) / 2) < mean.high
    assert row(result, "allreduce:400").within()
    assert not row(result, "allreduce:36").within()
    assert to_json(result)["rows"][1]["report_ratio"] == 1.3


def test_output_fits_on_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    check({"allreduce:36": 1.5, "allreduce:400": 0.8, "bcast:36": 1.0}, launches=3)
    text = capsys.readouterr().out
    assert text.startswith("Caution: 3 launches of each arm")
    assert max(map(len, text.splitlines())) <= 80
    assert "slower: 1 of 3 calls" in text
    assert "report.json within the checker's interval: 0 of 1" in text


def test_near_and_far_cores_are_told_apart() -> None:
    near, far = pairs({"allreduce:36": 1.3}, 0.02, 6), pairs({"allreduce:36": 0.9}, 0.02, 4)
    measured = [replace(pair, distances=(80, 85, 90)) for pair in near]
    measured += [replace(p, number=6 + p.number, distances=(380, 400, 390)) for p in far]
    measured[0] = replace(measured[0], distances=(80, 85, 390))
    rule = Rule("allreduce", 2, 0, 1000, "linear", ())
    library = Library("openmpi", "openmpi 5", (rule,), (), Use((), {}), "digest")
    result = analyse([library], {"openmpi": [Call("allreduce", 2, 36, "linear", "rule")]}, measured)
    found = [(one.distances, one.pairs, round(one.estimate.ratio, 1)) for one in result.by_distance]
    assert found == [((85, 85), 6, 1.3), ((390, 390), 4, 0.9)]
    text = format_result([library], result)
    assert "in 1 of 10 pairs of launches this distance changed" in " ".join(text.split())
    assert "2 ranks, 4 pairs with cores at 390 to 390 ns: 0." in text
