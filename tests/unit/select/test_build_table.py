"""Rules for calls that were not measured, and measurements that a design chose."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.stored import measurements_file
from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.core.calibration import Calibration, PathCost, write_calibration
from tuner.core.measurement import REQUESTED_CALLS_KEY, Cluster, Measurement, Measurements
from tuner.core.path_classes import omit_default_placement
from tuner.core.table import (
    LEARNED,
    MEASURED,
    SIMULATED,
    AlgorithmChoice,
    Rule,
    TuningTable,
    read_table,
)
from tuner.machines.topology_files import load_topology
from tuner.select.build_table import make_table
from tuner.select.constraints import Constraints
from tuner.select.coverage import Coverage
from tuner.select.dataset import BATCHES_KEY, CallPoint, Observation, build_observations
from tuner.select.posterior import Posterior
from tuner.select.selector import train
from tuner.select.significance import predict_comparison
from tuner.select.simulated_times import Simulator
from tuner.select.value_of_information import RegretEstimate, guarded_winners
from tuner.topology import Topology

CLUSTER = Cluster("ares", nodes=8, cores=4, cpu="any cpu", memory=2**30)
LIBRARY = "openmpi 5.0.11"
CALIBRATION = Calibration(
    "ares", LIBRARY, {("network", "host"): PathCost.from_alpha_beta(1e-5, 1e-8)}
)
DEFAULT = AlgorithmChoice()
BINOMIAL = AlgorithmChoice("binomial")
LINEAR = AlgorithmChoice("linear")
CHOICES = (DEFAULT, BINOMIAL, LINEAR)
SIZES = tuple(4**k for k in range(4, 9))
FLAT = "{name: flat, nodes: 8, latency: 10us, bandwidth: 100MB/s}"


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Topology:
    path = tmp_path_factory.mktemp("topology") / "flat.yaml"
    path.write_text(FLAT)
    return load_topology(path)


def seconds(topology: Topology, point: CallPoint, choice: AlgorithmChoice) -> float:
    """The default is linear, and all take 10 % longer than simulated."""
    known = choice if choice in CHOICES[1:] else LINEAR
    return 1.1 * Simulator(CALIBRATION, topology)(point, known)


def measured(
    topology: Topology,
    counts: Iterable[int],
    choices: Sequence[AlgorithmChoice] = CHOICES,
    launch: int = 0,
    **provenance: object,
) -> Measurements:
    draw = np.random.default_rng(1)
    taken = []
    for nodes in counts:
        for nbytes in SIZES:
            point = CallPoint("bcast", nodes, 1, "host", nbytes)
            for choice in choices:
                samples = seconds(topology, point, choice) * np.exp(0.01 * draw.standard_normal(12))
                taken.append(
                    Measurement(
                        "collective",
                        "bcast",
                        nodes,
                        1,
                        nodes,
                        nbytes,
                        tuple(map(float, samples)),
                        choice.algorithm,
                        choice.params,
                        launch=launch,
                    )
                )
    return Measurements(CLUSTER, LIBRARY, provenance, tuple(taken))


def rules_of(table: TuningTable, nodes: int) -> list[Rule]:
    return [rule for rule in table.rules if rule.key.nodes == nodes]


def test_node_counts_that_were_not_probed_get_rules_that_say_so(topology: Topology) -> None:
    _, table = make_table(
        measured(topology, (2, 4, 8)),
        CALIBRATION,
        topology=topology,
        shapes=[(5, 1), (6, 1), (8, 1)],
    )
    assert {key.nodes for key in table.keys} == {2, 4, 5, 6, 8}
    for nodes in (5, 6):
        rules = rules_of(table, nodes)
        assert BINOMIAL in {rule.choice for rule in rules}
        for rule in rules:
            assert rule.evidence.basis in (LEARNED, "none")
            assert rule.choice.is_default or rule.evidence.gain_ci95[0] > 1
            for nbytes, default in zip(rule.evidence.nbytes, rule.evidence.default_s, strict=True):
                truth = seconds(topology, CallPoint("bcast", nodes, 1, "host", nbytes), DEFAULT)
                assert default == pytest.approx(truth, rel=0.1)
        assert rules[-1].choice.is_default
        assert rules[-1].start_bytes > max(SIZES)
    assert {rule.evidence.basis for rule in rules_of(table, 8)} == {MEASURED, "none"}


def test_calls_without_a_size_get_one_rule(topology: Topology) -> None:
    draw = np.random.default_rng(1)
    series = tuple(
        Measurement(
            "collective",
            "barrier",
            4,
            1,
            4,
            4,
            tuple(map(float, 1e-5 * slower * np.exp(0.01 * draw.standard_normal(12)))),
            choice.algorithm,
            choice.params,
        )
        for choice, slower in ((DEFAULT, 10.0), (BINOMIAL, 1.0))
    )
    _, table = make_table(
        Measurements(CLUSTER, LIBRARY, {}, series), CALIBRATION, topology=topology
    )
    (rule,) = table.rules
    assert (rule.choice, rule.start_bytes, rule.stop_bytes) == (BINOMIAL, 0, math.inf)


def test_two_octaves_beyond_all_node_counts_the_library_decides(topology: Topology) -> None:
    """One measured count alone tells nothing of how times change with it."""
    for counts, wanted, known in (((2, 3), 8, True), ((2, 3), 13, False), ((2,), 4, False)):
        _, table = make_table(
            measured(topology, counts), CALIBRATION, topology=topology, shapes=[(wanted, 1)]
        )
        assert ({key.nodes for key in table.keys} == {*counts, wanted}) is known


def test_algorithms_that_the_library_lacks_are_named(
    topology: Topology, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = measured(topology, (2, 4), (DEFAULT, BINOMIAL, AlgorithmChoice("turbo")))
    m = measurements_file(tmp_path / "m.ndjson", made)
    c, flat = tmp_path / "c.json", tmp_path / "flat.yaml"
    write_calibration(CALIBRATION, c)
    flat.write_text(FLAT)
    words = ["tune", "--measurements", str(m), "--calibration", str(c), "--topology", str(flat)]
    assert main([*words, "--out", str(tmp_path / "table.json")]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "cannot express these algorithms; they get no rules: bcast 'turbo'" in said
    assert "binomial" not in said


def test_more_ranks_than_cores_on_a_node_are_said(
    topology: Topology, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = measured(topology, (2, 4))
    c, flat = tmp_path / "c.json", tmp_path / "flat.yaml"
    write_calibration(CALIBRATION, c)
    flat.write_text(FLAT)
    for cores in (1, 0):
        crowded = replace(made, cluster=replace(made.cluster, cores=cores))
        m = measurements_file(tmp_path / f"{cores}.ndjson", crowded)
        words = ["tune", "--measurements", str(m), "--calibration", str(c)]
        assert main([*words, "--topology", str(flat), "--out", str(tmp_path / "table.json")]) == 0
        sentence = "come from more ranks than a node has cores (0)"
        assert (sentence in " ".join(capsys.readouterr().err.split())) == (cores == 0)


def test_shapes_without_rules_are_named_and_so_is_what_comes_next(
    topology: Topology, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    m = measurements_file(tmp_path / "m.ndjson", measured(topology, (2, 4)))
    c, flat, out = (tmp_path / name for name in ("c.json", "flat.yaml", "table.json"))
    write_calibration(CALIBRATION, c)
    flat.write_text(FLAT)
    words = ["tune", "--measurements", str(m), "--calibration", str(c), "--topology", str(flat)]
    assert main([*words, "--shapes", "3x1,17x1", "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "17x1 gets no rules: no measurements cover this shape" in said.err
    assert "3x1" not in said.err
    assert f"{out}: written. Next, on the hosts that it is for: `tuner table accept`" in said.out
    assert "to the mean regret" not in said.out
    assert main([*words, "--max-rules", "4", "--out", str(out)]) == 0
    limited = read_table(out)
    added = limited.provenance["compaction"]["added_regret"]
    sentence = f"{len(limited.rules)} rules instead of one per size add {added:.2%} to the mean"
    assert sentence in capsys.readouterr().out


def test_a_table_that_no_native_file_holds_is_for_tuner_run(
    topology: Topology, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"linear": "pairwise", "binomial": "linear"}
    ragged = tuple(
        replace(one, subject="alltoallv", algorithm=names.get(one.algorithm, one.algorithm))
        for one in measured(topology, (2, 4)).series
    )
    m = measurements_file(tmp_path / "m.ndjson", Measurements(CLUSTER, LIBRARY, {}, ragged))
    c, flat, out = (tmp_path / name for name in ("c.json", "flat.yaml", "table.json"))
    write_calibration(CALIBRATION, c)
    flat.write_text(FLAT)
    words = ["tune", "--measurements", str(m), "--calibration", str(c), "--topology", str(flat)]
    assert main([*words, "--out", str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Next: `tuner run --table {out} -- COMMAND`, as none of its rules" in said
    assert "accept" not in said


def test_what_cannot_be_forbidden_is_known_before_anything_is_simulated(topology: Topology) -> None:
    def progress(_done: int, _total: int) -> None:
        raise AssertionError

    wishes = Constraints(excluded_algorithms=frozenset({"rign"}))
    with pytest.raises(InputError, match="'rign' is not an algorithm of what is measured"):
        make_table(measured(topology, (2, 4)), CALIBRATION, progress, topology, constraints=wishes)


def test_single_calls_complete_the_ladder_of_a_measured_shape(topology: Topology) -> None:
    every = measured(topology, (2, 4, 8))
    some = replace(
        every,
        series=tuple(s for s in every.series if s.nodes != 4 or s.nbytes in (SIZES[0], SIZES[-1])),
    )
    wanted = [
        omit_default_placement(asdict(CallPoint("bcast", 4, 1, "host", nbytes))) for nbytes in SIZES
    ]
    told = replace(some, provenance={REQUESTED_CALLS_KEY: wanted})
    _, table = make_table(told, CALIBRATION, topology=topology)
    rules = rules_of(table, 4)
    assert sorted(n for rule in rules for n in rule.evidence.nbytes) == list(SIZES)
    assert {LEARNED} <= {rule.evidence.basis for rule in rules}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"collective": "gossip"}, "'gossip' is not a valid Collective"),
        ({"nodes": -3}, "expected 1 .*, not bcast of 8 bytes on -3x1 ranks"),
        ({"nodes": 0}, "expected 1 .*, not bcast of 8 bytes on 0x1 ranks"),
        ({"ppn": 0}, "expected 1 .*, not bcast of 8 bytes on 2x0 ranks"),
        ({"nodes": 2**31}, "expected 1 .*, not bcast of 8 bytes"),
        ({"nbytes": -1}, "expected 1 .*, not bcast of -1 bytes on 2x1 ranks"),
        ({"nbytes": 2**63}, "expected 1 .*, not bcast of"),
    ],
)
def test_calls_that_nobody_can_make_are_no_wish(
    topology: Topology, wrong: dict[str, object], said: str
) -> None:
    call = {"collective": "bcast", "nodes": 2, "ppn": 1, "memory": "host", "nbytes": 8}
    told = replace(
        measured(topology, (2,)), provenance={REQUESTED_CALLS_KEY: [call, {**call, **wrong}]}
    )
    with pytest.raises(InputError, match=f"a table is for are damaged: {said}.*; delete 'wanted'"):
        make_table(told, CALIBRATION, topology=topology)


@pytest.mark.parametrize("changes", [{"nodes": 1, "p": 1}, {"nbytes": 0}])
def test_calls_that_are_simulated_to_take_no_time_are_compared(
    topology: Topology, changes: dict[str, Any]
) -> None:
    """Nothing is sent there. Nobody knows what the default runs, so it follows the others."""
    made, simulate = measured(topology, (2, 4)), Simulator(CALIBRATION, topology)
    series = tuple(
        replace(s, **changes) if (s.nodes, s.nbytes) == (2, SIZES[0]) else s for s in made.series
    )
    assert 0.0 in {
        row.simulated_seconds for row in build_observations(replace(made, series=series), simulate)
    }
    _, table = make_table(replace(made, series=series), CALIBRATION, topology=topology)
    assert BINOMIAL in {rule.choice for rule in rules_of(table, 4)}


def test_a_choice_carried_by_its_simulation_alone_is_called_simulated(topology: Topology) -> None:
    """The binomial tree was measured on eight nodes, not on those around three."""
    every = measured(topology, (2, 4, 8))
    kept = [s for s in every.series if s.algorithm != "binomial" or s.nodes == 8]
    rows = build_observations(replace(every, series=tuple(kept)), Simulator(CALIBRATION, topology))
    selector = train(rows, Simulator(CALIBRATION, topology))
    contest = predict_comparison(CallPoint("bcast", 3, 1, "host", 1024), selector, CHOICES)
    assert contest is not None
    assert contest.basis(LINEAR) == LEARNED
    assert contest.basis(BINOMIAL) == SIMULATED
    low, high = contest.interval(BINOMIAL)
    narrow = contest.interval(LINEAR)
    assert high / low > narrow[1] / narrow[0]


def test_what_could_not_run_under_its_name_is_not_offered(topology: Topology) -> None:
    """With fewer elements than ranks Open MPI runs another algorithm than scatter and allgather."""
    choices = (*CHOICES, AlgorithmChoice("scatter_allgather"))
    small = replace(
        measured(topology, (2, 8), choices),
        series=tuple(
            replace(
                s,
                nbytes=s.nbytes // 16,
                samples=tuple(t / (100 if "scatter" in s.algorithm else 1) for t in s.samples),
            )
            for s in measured(topology, (2, 8), choices).series
        ),
    )
    _, table = make_table(small, CALIBRATION, topology=topology, shapes=[(6, 1)])
    chosen = {rule.choice.algorithm: rule.start_bytes for rule in rules_of(table, 6)}
    assert chosen["scatter_allgather"] > 16


# designs


ROUNDS = [["what was chosen for a round"]]


def designed(topology: Topology, **provenance: object) -> Measurements:
    """Two rounds: linear is measured in the first, the tree in the second."""
    first = measured(topology, (2, 4), (DEFAULT, LINEAR), launch=0)
    second = measured(topology, (2, 4), (DEFAULT, BINOMIAL), launch=1)
    return replace(first, series=first.series + second.series, provenance=provenance)


def test_a_choice_that_a_design_left_out_of_a_round_was_not_wrong(topology: Topology) -> None:
    plain = make_table(designed(topology), CALIBRATION, topology=topology)[1]
    assert {rule.choice for rule in plain.rules} == {DEFAULT}
    table = make_table(designed(topology, rounds=ROUNDS), CALIBRATION, topology=topology)[1]
    assert BATCHES_KEY == "rounds"
    assert {rule.choice for rule in rules_of(table, 4)} == {DEFAULT, BINOMIAL}


def test_a_choice_that_was_wrong_in_a_round_is_never_used(topology: Topology) -> None:
    wrong = [f"collective bcast 4x1 {n} B: binomial: wrong result" for n in SIZES]
    found = designed(topology, rounds=ROUNDS, excluded=wrong)
    rows, table = make_table(found, CALIBRATION, topology=topology)
    assert {rule.choice for rule in rules_of(table, 4)} == {DEFAULT}
    assert BINOMIAL not in {row.choice for row in rows}


def chosen_at(table: TuningTable, nbytes: int) -> set[AlgorithmChoice]:
    """Return the choice of the rules on four nodes for a size."""
    return {
        rule.choice for rule in rules_of(table, 4) if rule.start_bytes <= nbytes < rule.stop_bytes
    }


def without(
    measurements: Measurements, algorithm: str, nbytes: int, **told: object
) -> Measurements:
    """Measurements without those of one algorithm at one size on four nodes."""
    kept = [
        one
        for one in measurements.series
        if (one.nodes, one.nbytes, one.algorithm) != (4, nbytes, algorithm)
    ]
    return replace(measurements, series=tuple(kept), provenance={"rounds": ROUNDS, **told})


def test_a_choice_that_a_call_refused_is_not_used_for_that_call(topology: Topology) -> None:
    """Nor for calls that are hardly smaller: what refuses one mostly refuses those."""
    refused = ["collective bcast 4x1 16384 B: binomial: refused: too many bytes"]
    lacking = partial(without, designed(topology), "binomial", 16384)
    for measured_calls, used in ((lacking(), BINOMIAL), (lacking(excluded=refused), DEFAULT)):
        table = make_table(measured_calls, CALIBRATION, topology=topology)[1]
        assert chosen_at(table, 4096) == {BINOMIAL}
        assert chosen_at(table, 12000) == chosen_at(table, 16384) == {used}


@pytest.mark.parametrize("algorithm", ["default", "binomial"])
def test_a_rule_that_was_measured_at_some_of_its_sizes_is_learned(
    topology: Topology, algorithm: str
) -> None:
    """Nothing there is only simulated, though one of the two was not measured at one of them."""
    found = without(designed(topology), algorithm, 65536)
    table = make_table(found, CALIBRATION, topology=topology)[1]
    bases = {rule.evidence.basis for rule in rules_of(table, 4) if 65536 in rule.evidence.nbytes}
    assert bases == {LEARNED}


def test_a_design_of_few_repetitions_leaves_all_to_the_default(topology: Topology) -> None:
    few = [replace(one, samples=one.samples[:2]) for one in designed(topology).series]
    found = replace(designed(topology), series=tuple(few), provenance={"rounds": ROUNDS})
    table = make_table(found, CALIBRATION, topology=topology)[1]
    assert {rule.choice for rule in table.rules} == {DEFAULT}
    assert {key.nodes for key in table.keys} == {2, 4}


def test_calls_of_few_repetitions_beside_others_keep_the_default(topology: Topology) -> None:
    """Too little is known of allreduces for a comparison, and their calls are in the table."""
    known = designed(topology, rounds=ROUNDS)
    few = [
        replace(one, subject="allreduce", samples=one.samples[:2])
        for one in known.series
        if one.algorithm == "default"
    ]
    found = replace(known, series=(*known.series, *few))
    table = make_table(found, CALIBRATION, topology=topology)[1]
    chosen = {
        name: {rule.choice for rule in table.rules if rule.key.collective == name}
        for name in ("bcast", "allreduce")
    }
    assert chosen == {"bcast": {DEFAULT, BINOMIAL}, "allreduce": {DEFAULT}}


@pytest.mark.parametrize("designs", [{}, {"rounds": ROUNDS}])
def test_what_was_wrong_once_comes_back_at_no_other_size_or_shape(
    topology: Topology, designs: dict[str, object]
) -> None:
    between = [round(math.sqrt(a * b)) for a, b in pairwise(SIZES)]
    wanted = [
        omit_default_placement(asdict(CallPoint("bcast", nodes, 1, "host", n)))
        for nodes in (3, 4, 5)
        for n in between
    ]
    for wrong, used in (
        ([], {DEFAULT, BINOMIAL}),
        (["collective bcast 4x1 1024 B: binomial(radix=2): wrong result"], {DEFAULT}),
    ):
        told = {"excluded": wrong, REQUESTED_CALLS_KEY: wanted, **designs}
        found = replace(measured(topology, (2, 4, 8), (DEFAULT, BINOMIAL)), provenance=told)
        table = make_table(found, CALIBRATION, topology=topology)[1]
        assert {rule.choice for rule in table.rules} == used


@pytest.mark.parametrize("excluded", [7, None, [{}], "text"])
def test_damaged_exclusions_are_refused(topology: Topology, excluded: object) -> None:
    found = measured(topology, (2, 4), excluded=excluded)
    with pytest.raises(InputError, match="does not say what gave wrong results"):
        make_table(found, CALIBRATION, topology=topology)


def test_no_rule_rests_on_single_averages(topology: Topology) -> None:
    """Of imported results; nor between shapes, where a belief is all there is."""
    whole = measured(topology, (2, 4, 8))
    single = tuple(replace(one, samples=one.samples[:1]) for one in whole.series)
    for series, used in ((whole.series, {LEARNED, MEASURED, "none"}), (single, {MEASURED})):
        found = replace(whole, series=series)
        table = make_table(found, CALIBRATION, topology=topology, shapes=[(3, 1), (6, 1)])[1]
        assert {rule.evidence.basis for rule in table.rules} == used
        assert ({rule.choice for rule in table.rules} == {DEFAULT}) == (series == single)


@pytest.mark.parametrize("name", ["zzz", "", "sparbit"])
def test_algorithms_that_the_library_lacks_have_no_rules(topology: Topology, name: str) -> None:
    whole = measured(topology, (2, 4, 8), (DEFAULT, BINOMIAL))
    other = tuple(
        replace(one, algorithm=name if one.algorithm == "binomial" else one.algorithm)
        for one in whole.series
    )
    table = make_table(replace(whole, series=other), CALIBRATION, topology=topology)[1]
    assert {rule.choice for rule in table.rules} == {DEFAULT}


@pytest.mark.parametrize(("memory", "named"), [("host", ""), ("cuda", " cuda")])
def test_a_choice_that_was_wrong_in_one_round_is_never_used(memory: str, named: str) -> None:
    """It was right in another one, and by far the fastest there."""
    series = tuple(
        Measurement(
            "collective",
            "bcast",
            4,
            1,
            4,
            n,
            (t, t * 1.001, t * 1.002) * 4,
            name,
            memory=memory,
            launch=launch,
        )
        for launch in (0, 1)
        for n in SIZES
        for name, t in (("default", 1e-2), ("binomial", 1e-3))
        if not (launch == 1 and name == "binomial")
    )
    wrong = [f"collective bcast 4x1 {n} B{named}: binomial: wrong result" for n in SIZES]
    for excluded, used in (([], {BINOMIAL}), (wrong, set())):
        found = Measurements(CLUSTER, LIBRARY, {"excluded": excluded, "rounds": ROUNDS}, series)
        _, table = make_table(found, CALIBRATION)
        assert {rule.choice for rule in table.rules} - {DEFAULT} == used


# support


def rows_at(shapes: Iterable[tuple[int, int]], sizes: Iterable[int]) -> list[Observation]:
    taken = tuple(sizes)
    return [
        Observation(CallPoint("bcast", nodes, ppn, "host", n), LINEAR, {}, 1.0, 1.0, 1.0)
        for nodes, ppn in shapes
        for n in taken
    ]


@pytest.mark.parametrize(
    ("nodes", "ppn", "nbytes", "reach", "speaks"),
    [
        (2, 4, 64, 1.0, True),  # measured
        (3, 4, 64, 1.0, True),  # between two node counts
        (3, 4, 200, 1.0, True),  # and between two sizes
        (3, 4, 1024, 1.0, True),  # one gap beyond the largest size
        (3, 4, 1025, 1.0, False),
        (3, 4, 2048, 8.0, True),  # as far as a guess goes
        (3, 4, 2049, 8.0, False),
        (16, 4, 64, 1.0, False),  # beyond all node counts
        (16, 4, 64, 2.0, True),
        (17, 4, 64, 2.0, False),
        (1, 4, 64, 2.0, True),
        (3, 8, 64, 1.0, False),  # beyond all ppn
        (3, 32, 64, 8.0, True),
        (3, 33, 64, 8.0, False),
        (3, 3, 64, 8.0, True),  # between two ppn
    ],
)
def test_who_speaks_for_a_call(
    nodes: int, ppn: int, nbytes: int, reach: float, speaks: bool
) -> None:
    support = Coverage(rows_at([(2, 2), (8, 2), (2, 4), (8, 4)], [64, 256]))
    point = CallPoint("bcast", nodes, ppn, "host", nbytes)
    assert support.covers(point, LINEAR, reach) is speaks
    assert support.is_in_domain(point, reach) is speaks
    assert not support.covers(point, BINOMIAL, reach)
    assert not support.covers(replace(point, memory="cuda"), LINEAR, reach)


@pytest.mark.parametrize(
    ("counts", "faster", "chosen"),
    [
        ((2, 8), 1.02, BINOMIAL),  # within noise what won nearby stays
        ((2, 8), 1.1, LINEAR),
        ((8,), 1.03, BINOMIAL),  # it lacks on one side, and nothing tells why
        ((8,), 1.4, LINEAR),
    ],
)
def test_who_wins_nearby_is_left_for_a_clear_gain(
    counts: Sequence[int], faster: float, chosen: AlgorithmChoice
) -> None:
    """On two nodes, next door, the binomial tree wins by little."""
    rows = [
        Observation(point, choice, {}, time, time, time)
        for nodes in (2, 8)
        for point in [CallPoint("bcast", nodes, 1, "host", nbytes) for nbytes in SIZES]
        for choice, time in {DEFAULT: 3e-5, BINOMIAL: 1e-5, LINEAR: time_at(nodes, faster)}.items()
        if choice != LINEAR or nodes in counts
    ]
    selector = train(rows, lambda _point, _choice: math.nan)
    point = CallPoint("bcast", 4, 1, "host", SIZES[2])
    assert selector.coverage.covers_on_all_sides(point, BINOMIAL)
    assert selector.coverage.covers_on_all_sides(point, LINEAR) is (len(counts) == 2)
    assert selector.choose(point) == chosen


@pytest.mark.parametrize(("lone", "chosen"), [(0.97e-5, BINOMIAL), (0.9e-5, LINEAR)])
def test_of_winners_that_tie_one_known_on_all_sides_is_taken(
    lone: float, chosen: AlgorithmChoice
) -> None:
    """The linear one won next door, and lacks on the other side."""
    rows = [
        Observation(point, choice, {}, time, time, time)
        for nodes in (2, 8)
        for point in [CallPoint("bcast", nodes, 1, "host", nbytes) for nbytes in SIZES]
        for choice, time in {DEFAULT: 3e-5, BINOMIAL: 1e-5, LINEAR: lone}.items()
        if choice != LINEAR or nodes == 2
    ]
    selector = train(rows, lambda _point, _choice: math.nan)
    assert selector.choose(CallPoint("bcast", 3, 1, "host", SIZES[2])) == chosen


def time_at(nodes: int, faster: float) -> float:
    """Return seconds that are `faster` times below 10 us at 4 nodes."""
    return 1.01e-5 if nodes == 2 else 1e-5 / faster**2


def test_where_nobody_knows_what_the_default_runs_nothing_else_is_simulated() -> None:
    """A shape may be larger than the topology that simulations need."""

    def simulate(_point: CallPoint, choice: AlgorithmChoice) -> float:
        assert choice.is_default
        return math.nan

    rows = [replace(row, samples={0: (1.0,) * 8}) for row in rows_at([(2, 1)], SIZES)]
    far = CallPoint("bcast", 64, 1, "host", SIZES[0])
    assert not train(rows, simulate).covers(far, LINEAR)


def test_wide_gaps_do_not_speak_for_sizes_far_beyond() -> None:
    support = Coverage(rows_at([(2, 1)], [64, 4096]))
    point = CallPoint("bcast", 2, 1, "host", 64)
    sizes = (7, 8, 600, 8 * 4096, 8 * 4096 + 1)
    assert [support.covers(point.with_size(n), LINEAR) for n in sizes] == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_the_ladder_has_the_sizes_of_every_shape() -> None:
    support = Coverage([*rows_at([(2, 1)], [8, 64]), *rows_at([(4, 1)], [16])])
    assert support.measured_sizes(CallPoint("bcast", 3, 1, "host", 1)) == [8, 16, 64]
    assert support.measured_sizes(CallPoint("allreduce", 3, 1, "host", 1)) == []


# beliefs


def test_a_gain_counts_when_it_is_above_noise_and_surely_one() -> None:
    choices = (DEFAULT, BINOMIAL, LINEAR, AlgorithmChoice("chain"))
    mean = np.array([0.0, -0.5, -0.5, -0.03])
    covariance = np.diag([1e-4, 1e-4, 0.25, 1e-6])
    assert guarded_winners(Posterior(choices, mean, covariance)) == {BINOMIAL}
    together = covariance + 4.0  # what all share cancels
    assert guarded_winners(Posterior(choices, mean, together)) == {BINOMIAL}


def test_measuring_what_may_be_faster_saves_the_regret_of_not_knowing() -> None:
    """Both unsure by 30 %: the default stays until they are measured, and well enough."""
    belief = Posterior((DEFAULT, BINOMIAL), np.array([0.0, -0.2]), np.diag([0.09, 0.09]))
    normal = np.random.default_rng(1).standard_normal((2000, 2))
    outlook = RegretEstimate(belief, normal, frozenset([BINOMIAL]))
    assert outlook.selection.choice == DEFAULT
    precise, rough, hopeless = (outlook.expected_saving([0, 1], [v, v]) for v in (1e-6, 0.1, 100.0))
    assert precise == pytest.approx(outlook.selection.regret, rel=0.05)
    assert 0.2 * precise < rough < 0.9 * precise
    assert hopeless == 0.0


def test_what_is_measured_without_the_default_tells_less_where_launches_differ() -> None:
    """Measured in one launch with it, both are slowed alike."""
    belief = Posterior((DEFAULT, BINOMIAL), np.array([0.0, -0.2]), np.diag([1e-4, 0.09]))
    normal = np.random.default_rng(1).standard_normal((2000, 2))
    unsure, sure = np.diag([0.09, 0.09]), np.diag([1e-4, 0.09])

    def saved(covariance: np.ndarray, indices: list[int], launch_variance: float) -> float:
        outlook = RegretEstimate(
            replace(belief, covariance=covariance),
            normal,
            frozenset([BINOMIAL]),
            launch_variance=launch_variance,
        )
        return outlook.expected_saving(indices, [1e-4] * len(indices))

    assert saved(sure, [1], 0.25) < 0.6 * saved(sure, [1], 0.0)
    assert saved(unsure, [0, 1], 0.25) > 0.9 * saved(unsure, [0, 1], 0.0)


def test_unlikely_disasters_do_not_decide_what_is_measured() -> None:
    """The default may be 20 times as slow, and each call counts as three times as slow at most."""
    belief = Posterior((DEFAULT, BINOMIAL), np.array([0.0, 0.0]), np.diag([4.0, 1e-4]))
    normal = np.random.default_rng(1).standard_normal((2000, 2))
    outlook = RegretEstimate(belief, normal, frozenset())
    assert outlook.selection.choice == DEFAULT
    assert 0.5 < outlook.selection.regret < 1.0
    saved = outlook.expected_saving([0, 1], [1e-4, 1e-4])
    assert saved == pytest.approx(outlook.selection.regret, rel=0.05)


@pytest.mark.parametrize(("gain", "replaced"), [(0.4, False), (1.0, True), (1.6, True)])
def test_between_node_counts_the_default_is_left_for_what_is_hardly_slower(
    gain: float, replaced: bool
) -> None:
    """It is twice as fast on four nodes, `gain` times on six, and something in between on five."""
    rows = [
        Observation(point, choice, {}, time, time * 0.999, time * 1.001)
        for nodes, ratio in ((3, 2.0), (4, 2.0), (6, gain), (7, gain))
        for point in [CallPoint("bcast", nodes, 1, "host", nbytes) for nbytes in SIZES]
        for choice, time in {DEFAULT: ratio * 1e-5, BINOMIAL: 1e-5, LINEAR: 3e-5}.items()
    ]
    selector = train(rows, lambda _point, _choice: math.nan)
    point = CallPoint("bcast", 5, 1, "host", SIZES[2])
    assert selector.guarded_winners(point, CHOICES) == ({BINOMIAL} if replaced else set())
    assert selector.choose_guarded(point) == (BINOMIAL if replaced else DEFAULT)


def test_what_was_never_measured_is_believed_from_its_simulation_less_surely(
    topology: Topology,
) -> None:
    simulate = Simulator(CALIBRATION, topology)
    rows = build_observations(measured(topology, (2, 4, 8), (DEFAULT, LINEAR)), simulate)
    selector = train(rows, simulate)
    point = CallPoint("bcast", 4, 1, "host", 1024)
    beliefs = selector._models[point.kind]
    found = beliefs.posterior(point, [LINEAR, BINOMIAL])
    expected = math.log(seconds(topology, point, BINOMIAL))
    assert found.mean[1] == pytest.approx(expected, abs=0.2)
    assert found.covariance[1, 1] > 10 * found.covariance[0, 0]


def test_many_shapes_are_learned_from_the_nearest(topology: Topology) -> None:
    """More rows than one regressor takes: each shape is believed from its own surroundings."""
    counts = [2**k for k in range(1, 12)]
    sizes = [2**k for k in range(2, 24)]
    names = [DEFAULT, *(AlgorithmChoice(f"arm{n}") for n in range(5))]
    rows = []
    for nodes in counts:
        for nbytes in sizes:
            for number, choice in enumerate(names):
                time = (1 + number) * 1e-5 * math.log2(nodes) + 1e-9 * nbytes / (1 + number)
                point = CallPoint("bcast", nodes, 1, "host", nbytes)
                rows.append(Observation(point, choice, {}, time, time, time))
    selector = train(rows, lambda _point, _choice: math.nan)
    for row in rows[:: len(rows) // 40]:
        assert selector.predict_seconds(row.point, row.choice)[0] == pytest.approx(
            row.seconds, rel=0.05
        )
