"""From measurements to a table: known winners are found, noise changes nothing."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tuner.base.errors import InputError
from tuner.cli.commands.tune import launch_count_cautions
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster, Measurement, Measurements
from tuner.core.speedup import LAUNCH_RELATIVE_SD
from tuner.core.table import AlgorithmChoice, Rule, RuleKey, TuningTable
from tuner.select import significance
from tuner.select.baselines import SelectFunction
from tuner.select.build_rules import table_from_comparisons
from tuner.select.cases import LEAVE_SIZE_OUT, EvaluationCase, cases_from_measurements, folds
from tuner.select.constraints import UNCONSTRAINED, Constraints
from tuner.select.dataset import (
    MIN_GAIN,
    CallPoint,
    Observation,
    build_observations,
    group_by_point,
)
from tuner.select.evaluate import (
    TUNER,
    score_selections,
    selections,
    selector_trainers,
    summarise_regret,
)
from tuner.select.lookup import lookup_rule
from tuner.select.selector import train
from tuner.select.significance import compare_all_with_default, compare_with_default

CLUSTER = Cluster("ares", nodes=1, cores=4, cpu="any cpu", memory=2**30)
LADDER = tuple(4**k for k in range(2, 11))  # 16 B to 1 MiB
DEFAULT = AlgorithmChoice()
TREE = AlgorithmChoice("binomial")
RING = AlgorithmChoice("ring", {"segment": 4096})
LINEAR = AlgorithmChoice("linear")
Times = Mapping[AlgorithmChoice, Callable[[int], float]]
# The tree starts fast, the ring moves bytes fast: they cross where 9 us = 0.9 ns * nbytes: 10 kB.
CROSSING: Times = {
    DEFAULT: lambda n: 2e-5 + 2e-9 * n,
    TREE: lambda n: 1e-6 + 1e-9 * n,
    RING: lambda n: 1e-5 + 1e-10 * n,
}


def simulate(point: CallPoint, choice: AlgorithmChoice) -> float:
    """Right in shape, wrong by a constant factor; the tree's is hopelessly optimistic."""
    factor = {"binomial": 0.1, "ring": 0.8}.get(choice.algorithm)
    return math.nan if factor is None else factor * CROSSING[choice](point.nbytes)


def series(
    algorithm: AlgorithmChoice,
    nbytes: int,
    samples: Iterable[float],
    collective: str = "bcast",
    p: int = 4,
) -> Measurement:
    taken = tuple(map(float, samples))
    return Measurement(
        "collective", collective, 1, p, p, nbytes, taken, algorithm.algorithm, algorithm.params
    )


def probe(
    times: Times,
    noise: float = 0.01,
    collective: str = "bcast",
    sizes: Sequence[int] = LADDER,
    repetitions: int = 20,
    seed: int = 1,
) -> Measurements:
    """Log-normal timings around `times`, of which the first is measured first."""
    draw = np.random.default_rng(seed)
    taken = [
        series(
            choice, n, seconds(n) * np.exp(noise * draw.standard_normal(repetitions)), collective
        )
        for n in sizes
        for choice, seconds in times.items()
    ]
    return measured(taken)


def measured(taken: Sequence[Measurement]) -> Measurements:
    return Measurements(CLUSTER, "openmpi 5.0.11", {"seed": 1}, tuple(taken))


def order_safe(collective: Collective, choice: AlgorithmChoice) -> bool:
    return not collective.is_reduction or choice.algorithm != "ring"


def library_with(**behaviour: Callable[..., object]) -> ModuleType:
    """Return a library that runs what is requested, and keeps the order of operands in no ring."""
    library = ModuleType("library")
    library.__dict__.update(
        preserves_operand_order=order_safe,
        effective_algorithm=lambda _collective, choice, _p, _nbytes: choice,
        min_call_bytes=lambda _choice: 0,
    )
    library.__dict__.update(behaviour)
    return library


def table_of(measurements: Measurements, constraints: Constraints = UNCONSTRAINED) -> TuningTable:
    rows = build_observations(measurements, simulate)
    return table_from_comparisons(
        measurements,
        compare_all_with_default(rows),
        train(rows, simulate),
        library_with(),
        constraints,
    )


def ladder_of(table: TuningTable, operators: str = "any") -> tuple[Rule, ...]:
    return table.rules_for(RuleKey(table.keys[0].collective, 1, 4, "host", operators))


def point(nbytes: int, collective: str = "bcast", ppn: int = 4) -> CallPoint:
    return CallPoint(Collective(collective), 1, ppn, "host", nbytes)


# rows


def test_a_row_is_a_call_and_a_choice_with_measured_and_simulated_time() -> None:
    taken = [series(DEFAULT, 64, [3e-6, 1e-6, 2e-6]), series(TREE, 64, [4e-6] * 7)]
    pingpong = Measurement("pingpong", "node", 1, 2, 2, 64, (1e-6,))
    default, tree = build_observations(measured([pingpong, *taken]), simulate)
    assert (default.point, default.choice) == (point(64), DEFAULT)
    assert default.seconds == 2e-6
    within = 4.303 * np.std(np.log([1, 2, 3]), ddof=1) / math.sqrt(3)  # Student's, of a launch
    between = 1.96 * LAUNCH_RELATIVE_SD
    assert math.log(default.high / 2e-6) == pytest.approx(math.hypot(within, between), rel=1e-3)
    assert default.low * default.high == pytest.approx(2e-6**2)
    assert math.isnan(default.simulated_seconds)
    assert tree.simulated_seconds == simulate(point(64), TREE)
    assert default.point.p == 4


@pytest.mark.parametrize(
    ("taken", "message"),
    [
        ([series(TREE, 8, [1.0]), series(TREE, 8, [1.0])], "binomial was measured twice"),
        ([series(TREE, 8, [])], "needs samples above 0 s"),
        ([series(TREE, 8, [0.0])], "needs samples above 0 s"),
        ([series(TREE, 8, [1.0], "gossip")], "expected a collective, got 'gossip'"),
        (
            [replace(series(DEFAULT, 8, [1.0]), kind="schedule")],
            "bcast of 8 bytes on 1x4 ranks: 'default' cannot run via 'schedule'",
        ),
        ([Measurement("collective", "bcast", 2, 2, 3, 8, (1.0,), "ring")], "3 ranks is not 2"),
    ],
)
def test_rows_refuse_what_cannot_be_compared(taken: list[Measurement], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_observations(measured(taken), simulate)


# selector


def test_the_selector_is_exact_where_measured_and_sensible_between() -> None:
    rows = build_observations(probe(CROSSING, noise=0.002), simulate)
    selector = train(rows, simulate)
    for row in rows:
        assert selector.predict_seconds(row.point, row.choice)[0] == pytest.approx(
            row.seconds, rel=0.01
        )
    for nbytes in (100, 3000, 200_000):
        for choice in (TREE, RING):
            truth = CROSSING[choice](nbytes)
            expected, low, high = selector.predict_seconds(point(nbytes), choice)
            assert expected == pytest.approx(truth, rel=0.02)
            assert low < truth < high
        assert selector.predict_seconds(point(nbytes), DEFAULT)[0] == pytest.approx(
            CROSSING[DEFAULT](nbytes), rel=0.2
        )


def test_the_selector_is_less_certain_further_from_the_measurements() -> None:
    selector = train(build_observations(probe(CROSSING), simulate), simulate)

    def width(nbytes: int) -> float:
        _, low, high = selector.predict_seconds(point(nbytes), TREE)
        return high / low

    assert width(1024) < width(1536) < width(2048) < width(LADDER[-1] * 16)


def test_without_any_schedule_the_measurements_alone_are_interpolated() -> None:
    def blind(_point: CallPoint, _choice: AlgorithmChoice) -> float:
        return math.nan

    rows = build_observations(probe({DEFAULT: lambda n: 1e-8 * n}, 0.001), blind)
    selector = train(rows, blind)
    assert selector.predict_seconds(point(2**11), DEFAULT)[0] == pytest.approx(
        1e-8 * 2**11, rel=0.1
    )


def test_the_selector_chooses_the_fastest_at_unmeasured_sizes() -> None:
    selector = train(build_observations(probe(CROSSING), simulate), simulate)
    assert selector.choose(point(100)) == TREE
    assert selector.choose(point(100_000)) == RING
    assert selector.choose(point(100_000), allowed=[TREE]) == TREE
    assert selector.choose(point(100_000), allowed=[]) == DEFAULT


def test_the_selector_chooses_nothing_that_was_not_measured_nearby() -> None:
    small = {DEFAULT: CROSSING[DEFAULT], TREE: CROSSING[TREE]}
    taken = [*probe(small).series, *probe({RING: CROSSING[RING]}, sizes=LADDER[:2]).series]
    selector = train(build_observations(measured(taken), simulate), simulate)
    assert selector.covers(point(64), RING)
    assert selector.covers(point(200), RING)
    assert not selector.covers(point(256), RING)
    assert selector.choose(point(2**20)) == TREE
    assert selector.choose(point(2**20 * 8)) == TREE
    assert selector.choose(point(2**20 * 8 + 1)) == DEFAULT
    assert selector.choose_guarded(point(2**20 * 4 + 1)) == DEFAULT
    assert selector.choose(point(2**10, ppn=32)) == TREE
    assert selector.choose(point(2**10, ppn=33)) == DEFAULT
    assert selector.choose(point(2**10, "allreduce")) == DEFAULT
    with pytest.raises(InputError, match="chain was never measured for bcast"):
        selector.predict_seconds(point(64), AlgorithmChoice("chain"))


def test_nothing_can_be_learned_from_nothing() -> None:
    with pytest.raises(InputError, match="run the probe"):
        train([], simulate)


# table


def test_known_winners_are_found_and_switch_where_they_cross() -> None:
    rules = ladder_of(table_of(probe(CROSSING)))
    assert [rule.choice for rule in rules] == [DEFAULT, TREE, RING, DEFAULT]
    assert rules[0].stop_bytes == 4  # one ladder gap below 16
    assert rules[1].stop_bytes == pytest.approx(10_000, rel=0.1)
    assert rules[2].stop_bytes == 4 * 2**20
    assert rules[3].stop_bytes == math.inf
    assert [rule.evidence.basis for rule in rules] == ["none", "measured", "measured", "none"]


def test_evidence_says_what_was_measured_and_simulated() -> None:
    measurements = probe(CROSSING)
    _, tree, ring, _ = ladder_of(table_of(measurements))
    assert tree.evidence.nbytes + ring.evidence.nbytes == LADDER
    assert ring.evidence.nbytes[0] == 4**7
    assert ring.evidence.runner_up == "binomial"
    first = ring.evidence
    truth = [CROSSING[DEFAULT](n) / CROSSING[RING](n) for n in first.nbytes]
    assert first.gain == pytest.approx(math.prod(truth) ** (1 / len(truth)), rel=0.02)
    assert 1 + MIN_GAIN < first.gain_ci95[0] < first.gain < first.gain_ci95[1]
    assert first.predicted_s == tuple(simulate(point(n), RING) for n in first.nbytes)
    for n, default, chosen in zip(first.nbytes, first.default_s, first.chosen_s, strict=True):
        assert default == pytest.approx(CROSSING[DEFAULT](n), rel=0.02)
        assert chosen == pytest.approx(CROSSING[RING](n), rel=0.02)


def test_operators_that_do_not_commute_never_meet_an_unsafe_choice() -> None:
    table = table_of(probe(CROSSING, collective="allreduce"))
    safe = ladder_of(table, "any")
    assert {rule.choice for rule in safe} == {DEFAULT, TREE}
    assert {rule.evidence.runner_up for rule in safe} == {"default", ""}
    assert {rule.choice for rule in ladder_of(table, "commutative")} == {DEFAULT, TREE, RING}
    assert {key.operators for key in table_of(probe(CROSSING)).keys} == {"any"}


def test_what_is_forbidden_is_neither_chosen_nor_the_runner_up() -> None:
    table = table_of(probe(CROSSING), Constraints(excluded_algorithms=frozenset({"ring"})))
    assert {rule.choice for rule in table.rules} == {DEFAULT, TREE}
    assert not any("ring" in rule.evidence.runner_up for rule in table.rules)
    assert table.provenance["constraints"] == {"forbidden": ["ring"]}


def test_reproducible_tables_reduce_in_one_order() -> None:
    some = probe(CROSSING, collective="allreduce")
    for rule in table_of(some, Constraints(reproducible=True)).rules:
        assert rule.choice.algorithm != "ring"
    assert RING in {rule.choice for rule in table_of(some).rules}


def test_tables_for_commutative_operators_leave_the_others_alone() -> None:
    some = probe(CROSSING, collective="allreduce")
    table = table_of(some, Constraints(commutative_only=True))
    assert {key.operators for key in table.keys} == {"commutative"}
    with pytest.raises(InputError, match="no rules"):
        lookup_rule(table, RuleKey(Collective.ALLREDUCE, 1, 4), 64)


@pytest.mark.parametrize("most", range(1, 6))
def test_a_table_has_no_more_rules_than_wished(most: int) -> None:
    table = table_of(probe(CROSSING), Constraints(max_rules=most))
    assert len(table.rules) <= most
    assert ({rule.choice for rule in table.rules} == {DEFAULT}) == (most < 3)


def test_a_table_says_how_few_its_rules_are() -> None:
    table = table_of(probe(CROSSING))
    said = table.provenance["compaction"]
    assert (said["naive"], said["rules"]) == (2 + len(LADDER), len(table.rules))
    assert 0 <= said["added_regret"] <= 0.005


def test_calls_share_what_fewer_rules_may_lose() -> None:
    """Two sizes of nine where another algorithm is 4 % faster are worth rules in a table of that
    call alone; not in one of two calls that has more than a quarter of all possible rules.
    """

    def taken(collective: str, *ahead: int) -> tuple[Measurement, ...]:
        times = {
            DEFAULT: lambda _: 3e-5,
            TREE: lambda _: 1e-5,
            RING: lambda n: 1e-5 / (1.04 if n in ahead else 0.5),
        }
        return probe(times, 1e-3, collective).series

    alone = table_of(measured(taken("bcast", 4**4, 4**7)))
    assert RING in {rule.choice for rule in alone.rules}
    both = table_of(measured([*taken("bcast", 4**4, 4**7), *taken("gather")]))
    assert {rule.choice for rule in both.rules} == {DEFAULT, TREE}
    assert both.provenance["compaction"]["added_regret"] == pytest.approx(0.08 / 18, rel=0.1)


@pytest.mark.parametrize(
    ("faster", "kept"),
    [
        ({4**4: 1.04, 4**7: 1.04}, False),
        ({4**3: 1.04, 4**5: 1.04, 4**7: 1.04}, True),
        ({4**5: 1.06}, True),
    ],
    ids=["two sizes", "three sizes", "one size"],
)
def test_no_call_loses_one_percent_and_no_size_five_however_little_that_is_of_the_table(
    faster: dict[int, float], kept: bool
) -> None:
    """The ring is so much faster than the tree at some of the nine sizes of one of four calls."""

    def taken(collective: str, ahead: Mapping[int, float]) -> tuple[Measurement, ...]:
        times = {
            DEFAULT: lambda _: 3e-5,
            TREE: lambda _: 1e-5,
            RING: lambda n: 1e-5 / ahead.get(n, 0.5),
        }
        return probe(times, 1e-3, collective).series

    others = [taken(collective, {}) for collective in ("gather", "scatter", "allgather")]
    table = table_of(measured([*taken("bcast", faster), *chain(*others)]))
    assert table.provenance["compaction"]["added_regret"] <= 0.005
    assert (RING in {rule.choice for rule in table.rules}) == kept


def test_one_ladder_for_all_operators_counts_once() -> None:
    """A limit that the table meets anyway takes nothing away."""
    safe = {choice: CROSSING[choice] for choice in (DEFAULT, TREE)}
    some = probe(safe, collective="allreduce")
    rules = table_of(some).rules
    assert {rule.key.operators for rule in rules} == {"any"}
    assert table_of(some, Constraints(max_rules=len(rules))).rules == rules


def test_rules_for_commutative_operators_that_gain_next_to_nothing_are_left_out() -> None:
    """The ring is what may not be used for other operators."""

    def table(gain: float) -> TuningTable:
        ahead = {4**9: gain, 4**10: gain}
        times = {
            DEFAULT: lambda _: 2e-5,
            TREE: lambda _: 1e-5,
            RING: lambda n: 1e-5 / ahead.get(n, 0.5),
        }
        return table_of(probe(times, 1e-3, collective="allreduce"))

    assert {key.operators for key in table(1.02).keys} == {"any"}
    assert {key.operators for key in table(1.2).keys} == {"any", "commutative"}
    assert table(1.02).provenance["compaction"]["naive"] == 2 + len(LADDER)
    assert table(1.2).provenance["compaction"]["naive"] == 2 * (2 + len(LADDER))


@pytest.mark.parametrize("gain", [1.06, 1.08, 1.1])
@pytest.mark.parametrize("at", [0, 4, 8])
def test_a_gain_that_reaches_no_further_than_its_size_gets_no_rule(gain: float, at: int) -> None:
    """It was [8 KiB, 8193 bytes): what is known of one size alone is no rule."""
    special = {LADDER[at]: 1 / gain}
    times = {DEFAULT: lambda _: 1e-5, TREE: lambda n: 1e-5 * special.get(n, 1.2)}
    rules = table_of(probe(times, 1e-4)).rules
    assert all(rule.stop_bytes > 1.02 * rule.start_bytes for rule in rules)


def test_one_size_between_two_rules_has_what_is_next_to_it() -> None:
    """Where the tree was wrong the ring had [1 KiB, 1025 bytes) between two rules for the tree."""
    taken = [s for s in probe(CROSSING).series if (s.nbytes, s.algorithm) != (1024, "binomial")]
    _, tree, ring, again, *_ = ladder_of(table_of(measured(taken)))
    assert (tree.choice, ring.choice, again.choice) == (TREE, RING, TREE)
    assert ring.start_bytes <= 1024 / 1.02 < 1024 * 1.02 <= ring.stop_bytes


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.5])
def test_where_nothing_is_faster_the_library_decides_everywhere(noise: float) -> None:
    same = {DEFAULT: lambda n: 1e-5 + 1e-9 * n} | {
        AlgorithmChoice(f"copy{i}"): lambda n: 1e-5 + 1e-9 * n for i in range(8)
    }
    rules = ladder_of(table_of(probe(same, noise)))
    assert {rule.choice for rule in rules} == {DEFAULT}
    assert [(rule.start_bytes, rule.stop_bytes, rule.evidence.basis) for rule in rules] == [
        (0, math.inf, "measured")
    ]
    assert rules[0].evidence.nbytes == LADDER
    assert rules[0].evidence.gain == 1


def test_noise_seldom_wins() -> None:
    """Over many points without a difference at most the promised 5 % leave the default."""
    same = {AlgorithmChoice(f"copy{i}" if i else "default"): lambda _: 1e-5 for i in range(9)}
    rows = build_observations(probe(same, 0.2, sizes=range(1, 201), seed=3), simulate)
    contests = [compare_with_default(at, own) for at, own in group_by_point(rows).items()]
    wrong = [contest for contest in contests if contest.winners]
    assert len(wrong) <= 10


@pytest.mark.parametrize(("launches", "repetitions"), [(1, 12), (4, 6)])
def test_many_candidates_do_not_win_by_their_number(
    launches: int, repetitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The luckiest of twenty that are as fast as the default is no faster."""
    monkeypatch.setattr(significance, "MIN_GAIN", 0.0)
    draw = np.random.default_rng(6)
    wrong = 0
    for _ in range(100):
        rows = [
            Observation(point(64), choice, dict(enumerate(map(tuple, taken))), 1e-5, 1e-5, 1e-5)
            for choice in (DEFAULT, *(AlgorithmChoice(f"copy{n}") for n in range(20)))
            for taken in [1e-5 * draw.lognormal(sigma=0.2, size=(launches, repetitions))]
        ]
        wrong += bool(compare_with_default(point(64), rows).winners)
    assert wrong <= 5


def launched(gains: Sequence[float], repetitions: int = 12) -> list[Observation]:
    """Of one call, with a tree that is so many times faster than the default in each launch."""
    times = {
        DEFAULT: [1e-3 for _ in gains],
        TREE: [1e-3 / gain for gain in gains],
        RING: [2e-3 for _ in gains],
    }
    return [
        Observation(
            point(64), choice, {n: (one,) * repetitions for n, one in enumerate(each)}, 1, 1, 1
        )
        for choice, each in times.items()
    ]


@pytest.mark.parametrize(
    ("gains", "repetitions", "wanting"),
    [
        ((120.0, 180.0), 12, True),  # launches 1.5 times apart
        ((150.0, 150.1), 12, False),  # which is a rule
        ((150.0,), 12, False),
        ((120.0, 180.0), 3, True),
        ((120.0, 180.0), 2, False),
        ((0.9, 180.0), 12, False),
        ((1.06, 1.09, 1.07, 1.08, 1.06, 1.09), 12, False),
        ((1.0, 1.0), 12, False),
    ],
)
def test_a_gain_that_only_more_launches_can_show_is_told(
    gains: Sequence[float], repetitions: int, wanting: bool
) -> None:
    said = (
        "with 2 launches only gains that hardly vary between them are beyond doubt: at 1 of 1 call"
    )
    found = launch_count_cautions(launched(gains, repetitions))
    assert [sentence.startswith(f"{said} an algorithm") for sentence in found] == [True] * wanting


def test_a_gain_below_the_noise_threshold_is_left_alone() -> None:
    slight = {DEFAULT: lambda _: 1.04e-5, TREE: lambda _: 1e-5}
    assert {rule.choice for rule in ladder_of(table_of(probe(slight, 1e-4)))} == {DEFAULT}
    clear = {DEFAULT: lambda _: 1.12e-5, TREE: lambda _: 1e-5}
    assert TREE in {rule.choice for rule in ladder_of(table_of(probe(clear, 1e-4)))}


def test_single_samples_prove_nothing() -> None:
    rules = ladder_of(table_of(probe(CROSSING, repetitions=1)))
    assert {rule.choice for rule in rules} == {DEFAULT}
    rules = ladder_of(table_of(probe(CROSSING, repetitions=6)))
    assert {rule.choice for rule in rules} == {DEFAULT, TREE, RING}


def test_a_drift_that_hits_all_alike_hides_no_winner() -> None:
    draw = np.random.default_rng(5)
    taken = []
    for n in LADDER:
        drift = np.exp(0.5 * draw.standard_normal(20))
        taken += [series(DEFAULT, n, 1.3e-5 * drift), series(TREE, n, 1e-5 * drift)]
    assert TREE in {rule.choice for rule in ladder_of(table_of(measured(taken)))}


def test_choices_as_good_as_one_another_do_not_alternate() -> None:
    close = {
        DEFAULT: lambda _: 2e-5,
        TREE: lambda n: 1e-5 * (1.01 if LADDER.index(n) % 2 else 1),
        RING: lambda n: 1e-5 * (1 if LADDER.index(n) % 2 else 1.01),
    }
    rules = ladder_of(table_of(probe(close, 0.002)))
    assert len({rule.choice for rule in rules[1:-1]}) == len(rules[1:-1]) == 1
    assert rules[1].choice in (TREE, RING)


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_probes_of_one_machine_give_one_table(noise: float) -> None:
    """Whatever the noise is this time: the same choices in the same order, and switches nearby."""
    found = [ladder_of(table_of(probe(CROSSING, noise, seed=seed))) for seed in range(5)]
    assert len({tuple(rule.choice for rule in rules) for rules in found}) == 1
    for bound in zip(*([rule.start_bytes for rule in rules[1:]] for rules in found), strict=True):
        assert max(bound) <= 2 * min(bound)


def test_a_choice_that_is_clearly_worse_does_not_stand_in() -> None:
    apart = {
        DEFAULT: lambda _: 4e-5,
        TREE: lambda n: 2e-5 if n == 1024 else 1e-5,
        RING: lambda n: 1e-5 if n == 1024 else 2e-5,
    }
    chosen = [rule.choice for rule in ladder_of(table_of(probe(apart)))]
    assert chosen == [DEFAULT, TREE, RING, TREE, DEFAULT]


def test_noise_does_not_excuse_a_choice_that_looks_much_worse() -> None:
    """The tree's times at 256 bytes vary too much to tell; the better median still counts."""
    unsteady = [3e-5, 0.9e-5] * 10 + [3e-5]
    taken = []
    for n, tree, ring in ((64, [1e-5] * 21, 4e-5), (256, unsteady, 1e-5)):
        taken += [series(DEFAULT, n, [1e-4] * 21), series(RING, n, [ring] * 21)]
        taken.append(series(TREE, n, tree))
    rules = ladder_of(table_of(measured(taken)))
    assert [rule.choice for rule in rules[1:-1]] == [TREE, RING]


def test_a_candidate_missing_at_one_size_is_not_used_there() -> None:
    taken = [
        entry
        for entry in probe(CROSSING).series
        if entry.algorithm == "default" or entry.nbytes not in (256, 1024)
    ]
    table = table_of(measured(taken))
    key = RuleKey(Collective.BCAST, 1, 4)
    chosen = [lookup_rule(table, key, n).choice for n in (64, 256, 1024, 4096)]
    assert chosen == [TREE, DEFAULT, DEFAULT, TREE]


def test_a_candidate_that_was_wrong_in_one_launch_is_never_used() -> None:
    """A launch that lacks it is one in which its result was wrong."""
    launches = [replace(entry, launch=n) for n in range(4) for entry in probe(CROSSING).series]
    taken = [s for s in launches if (s.launch, s.nbytes, s.algorithm) != (2, 1024, "binomial")]
    key = RuleKey(Collective.BCAST, 1, 4)
    assert lookup_rule(table_of(measured(launches)), key, 1024).choice == TREE
    assert lookup_rule(table_of(measured(taken)), key, 1024).choice == RING


def test_series_cut_short_are_compared_over_what_they_share() -> None:
    taken = [
        series(DEFAULT, 64, [2e-6] * 20),
        series(DEFAULT, 128, [2e-6] * 20),
        series(TREE, 64, [1e-6] * 8),
        series(TREE, 128, [1e-6] * 8),
    ]
    assert TREE in {rule.choice for rule in ladder_of(table_of(measured(taken)))}


def test_one_probed_size_speaks_for_its_surroundings_alone() -> None:
    rules = ladder_of(table_of(probe(CROSSING, sizes=[4096])))
    assert [(rule.start_bytes, rule.stop_bytes) for rule in rules] == [
        (0, 2048),
        (2048, 8192),
        (8192, math.inf),
    ]
    assert [rule.choice for rule in rules] == [DEFAULT, TREE, DEFAULT]


def test_a_missing_default_is_named() -> None:
    taken = [
        entry
        for entry in probe(CROSSING).series
        if entry.algorithm != "default" or entry.nbytes != 1024
    ]
    with pytest.raises(InputError, match=r"bcast of 1024 bytes on 1x4 ranks: .* default was not"):
        table_of(measured(taken))


def test_no_collective_makes_no_table() -> None:
    rows = build_observations(probe(CROSSING), simulate)
    with pytest.raises(InputError, match="run the probe"):
        table_from_comparisons(measured([]), [], train(rows, simulate), library_with())


choices = st.sampled_from(
    [TREE, RING, AlgorithmChoice("chain", {"chains": 2}), AlgorithmChoice("smp")]
)
sizes = st.lists(st.integers(0, 2**31), min_size=1, max_size=5, unique=True)


@st.composite
def probes(draw: st.DrawFn) -> Measurements:
    """Any sizes, any candidates measured at some of them, any number of samples."""
    seconds = st.floats(1e-7, 1e-3)
    taken = []
    for nbytes in draw(sizes):
        for choice in [DEFAULT, *draw(st.sets(choices, max_size=4))]:
            scale = draw(seconds)
            jitter = draw(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=12))
            samples = [scale * factor for factor in jitter]
            taken.append(series(choice, nbytes, samples, "allreduce"))
    return measured(taken)


def test_the_first_choice_of_a_table_begins_so_too() -> None:
    times = {DEFAULT: lambda n: 1e-4, TREE: lambda n: 2e-5}
    measurements = probe(times, sizes=(64, 256, 1024))
    rows = build_observations(measurements, simulate)

    def table_from(bound: int) -> TuningTable:
        return table_from_comparisons(
            measurements,
            compare_all_with_default(rows),
            train(rows, simulate),
            library_with(
                effective_algorithm=lambda _collective, choice, _p, nbytes: (
                    LINEAR if nbytes < bound else choice
                )
            ),
        )

    for bound, begins in ((0, 16), (33, 33), (64, 64)):
        fence, tree = table_from(bound).rules[:2]
        assert (fence.choice, tree.choice) == (DEFAULT, TREE)
        assert (fence.start_bytes, fence.stop_bytes, tree.start_bytes) == (0, begins, begins)


@pytest.mark.parametrize("least", [0, 1])
def test_calls_too_small_for_a_config_are_left_to_the_default(least: int) -> None:
    taken: Times = {DEFAULT: lambda n: 1e-5 + 1e-9 * n, TREE: lambda n: 1e-6 + 1e-9 * n}
    measurements = probe(taken, sizes=(4, 8, 16))
    rows = build_observations(measurements, simulate)
    table = table_from_comparisons(
        measurements,
        compare_all_with_default(rows),
        train(rows, simulate),
        library_with(min_call_bytes=lambda choice: least if choice == TREE else 0),
    )
    tree = next(rule for rule in table.rules if rule.choice == TREE)
    assert tree.start_bytes == least
    assert [rule.choice for rule in table.rules if rule.start_bytes < least] == [DEFAULT] * least


def test_a_choice_begins_where_the_library_runs_it_under_its_own_name() -> None:
    """Both are as fast as one another half way, where the one would still be made another."""
    taken = {DEFAULT: lambda n: 4e-9 * n, TREE: lambda n: 1e-4 + 1e-9 * n, RING: lambda n: 2.5e-4}
    measurements = probe(taken, sizes=(1 << 17, 1 << 20))
    rows = build_observations(measurements, simulate)

    def least(bound: int) -> int:
        table = table_from_comparisons(
            measurements,
            compare_all_with_default(rows),
            train(rows, simulate),
            library_with(
                effective_algorithm=lambda _collective, choice, _p, nbytes: (
                    LINEAR if choice == RING and nbytes < bound else choice
                )
            ),
        )
        return next(int(rule.start_bytes) for rule in table.rules if rule.choice == RING)

    early = least(0)
    assert 1 << 17 < early < 600_000
    assert least(early) == early
    assert least(700_001) == 700_001


@pytest.mark.parametrize("slowdown", [1.0, 8.0])
def test_what_the_library_runs_instead_has_its_own_rule_where_it_is_faster(slowdown: float) -> None:
    """Up to 700,000 bytes the ring runs as linear, which overtakes the tree at 173 kB."""
    taken: Times = {
        DEFAULT: lambda n: 1e-8 * n,
        TREE: lambda n: 1e-4 + 1e-9 * n,
        RING: lambda n: 2.5e-4,
        LINEAR: lambda n: slowdown * (2.3e-4 + 0.25e-9 * n),
    }

    def exact(point: CallPoint, choice: AlgorithmChoice) -> float:
        return taken[choice](point.nbytes)

    measurements = probe(taken, sizes=(1 << 17, 1 << 20))
    rows = build_observations(measurements, exact)
    table = table_from_comparisons(
        measurements,
        compare_all_with_default(rows),
        train(rows, exact),
        library_with(
            effective_algorithm=lambda _collective, choice, _p, nbytes: (
                LINEAR if choice == RING and nbytes <= 700_000 else choice
            )
        ),
    )
    tree, *rest = [rule for rule in table.rules if not rule.choice.is_default]
    assert tree.choice == TREE
    assert rest[-1].choice == RING
    assert rest[-1].start_bytes == 700_001
    if slowdown > 1:
        assert len(rest) == 1
    else:
        linear, _ = rest
        assert linear.choice == LINEAR
        assert linear.start_bytes == pytest.approx(173_333, rel=0.05)
        assert linear.evidence.nbytes == (1 << 17,)
        assert linear.evidence.gain_ci95[0] > 1 + MIN_GAIN


@settings(max_examples=examples(60))
@given(probes())
def test_every_table_is_complete_and_leaves_the_default_only_with_evidence(
    measurements: Measurements,
) -> None:
    def steady(at: CallPoint, choice: AlgorithmChoice) -> float:
        return math.nan if choice.algorithm == "smp" else 1e-6 + 1e-9 * at.nbytes

    rows = build_observations(measurements, steady)
    table = table_from_comparisons(
        measurements, compare_all_with_default(rows), train(rows, steady), library_with()
    )
    probed = {row.point.nbytes for row in rows}
    for key in table.keys:
        ladder = table.rules_for(key)
        assert ladder[0].start_bytes == 0
        assert ladder[-1].stop_bytes == math.inf
        assert all(low.stop_bytes == high.start_bytes for low, high in pairwise(ladder))
        assert ladder[-1].choice.is_default
        assert len(ladder) == 1 or ladder[-2].choice != DEFAULT
        assert {n for rule in ladder for n in rule.evidence.nbytes} == probed
        for rule in ladder:
            assert all(rule.start_bytes <= n < rule.stop_bytes for n in rule.evidence.nbytes)
            assert rule.choice.is_default or rule.evidence.gain_ci95[0] > 1 + MIN_GAIN
            fills = {rule.start_bytes - 1, rule.stop_bytes} <= {-1, math.inf, *probed}
            assert fills or rule.stop_bytes > 1.02 * rule.start_bytes
            assert key.operators == "commutative" or order_safe(key.collective, rule.choice)


# regret and lookup


def test_regret_compares_with_the_best_measured() -> None:
    rows = [
        Observation(point(nbytes), choice, {}, seconds, seconds, seconds)
        for nbytes, times in ((8, (2.0, 1.0)), (16, (1.0, 1.5)))
        for choice, seconds in zip((DEFAULT, TREE), times, strict=True)
    ]
    cases = [
        EvaluationCase("ares", at, {row.choice: row for row in own})
        for at, own in group_by_point(rows).items()
    ]
    assert [case.regret(DEFAULT) for case in cases] == [1.0, 0.0]
    tables = {str(choice): always(choice) for choice in (TREE, RING)}
    scores = score_selections(selections(cases, [], {}, tables))
    result = scores["default"].regret
    assert (result.mean, result.worst, result.points) == (0.5, 1.0, 2)
    assert result.p95 == pytest.approx(0.95)
    assert scores["binomial"].regret.mean == 0.25
    assert str(RING) not in scores  # it was not measured, so its regret is unknown
    with pytest.raises(InputError, match="no points"):
        summarise_regret([])


def always(choice: AlgorithmChoice) -> SelectFunction:
    return lambda _point, _choices: choice


def test_a_good_table_and_selector_have_little_regret() -> None:
    table = table_of(probe(CROSSING))

    def decided(at: CallPoint, _choices: Collection[AlgorithmChoice]) -> AlgorithmChoice:
        return lookup_rule(table, at.key(), at.nbytes).choice

    cases = cases_from_measurements(probe(CROSSING), simulate)
    parts = folds(cases, LEAVE_SIZE_OUT)
    trainers = selector_trainers(simulate, ())
    scores = score_selections(selections(cases, parts, trainers, {"table": decided}))
    assert scores["table"].regret.mean < 0.02
    assert scores["default"].regret.mean > 1
    assert scores[TUNER].regret.points == len(LADDER)
    assert scores[TUNER].regret.mean < 0.05


def test_lookup_falls_back_to_the_rules_for_any_operator() -> None:
    table = table_of(probe(CROSSING))
    key = RuleKey(Collective.BCAST, 1, 4, "host", "commutative")
    assert lookup_rule(table, key, 100).choice == TREE
    with pytest.raises(InputError, match=r"no rules for bcast on 1x8 .* it has bcast on 1x4"):
        lookup_rule(table, RuleKey(Collective.BCAST, 1, 8), 100)
