"""The placement of ranks in files, simulations, selections and formats: no kind is taken for
another, and what has only the usual one stays as it was, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.ladders import CLUSTER, table_of
from tests.support.probed import racks, truth
from tests.support.properties import examples
from tests.support.stored import measurements_file
from tuner.base.errors import InputError
from tuner.calibrate.measured_collectives import predict_all, simulatable_collectives
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.measurement import (
    REQUESTED_CALLS_KEY,
    Cluster,
    Measurement,
    Measurements,
    read_measurements,
)
from tuner.core.path_classes import BLOCK, CYCLIC, PLACEMENTS, omit_default_placement
from tuner.core.table import (
    AlgorithmChoice,
    Evidence,
    Rule,
    RuleKey,
    TuningTable,
    parse_table,
    read_table,
    table_record,
    write_table,
)
from tuner.formats.registry import FORMATS, ExportOptions
from tuner.launch import Hosts
from tuner.mpi_libraries.default_algorithms import (
    DEFAULT_ALGORITHMS_KEY,
    DefaultAlgorithms,
    default_algorithms_from_provenance,
    default_algorithms_record,
)
from tuner.mpi_libraries.schedules import schedule_of
from tuner.probe.batches import ExperimentRequest
from tuner.probe.merge import merge_files
from tuner.probe.multi_host import plan_cluster, plan_experiments
from tuner.probe.probe_plan import ProbeCandidate, ProbePlan
from tuner.probe.probe_plan import ProbePoint as Probed
from tuner.probe.probe_spec import ProbeShape, ProbeSpec, shapes_to_measure
from tuner.select.build_table import make_table
from tuner.select.coverage import Coverage
from tuner.select.dataset import CallPoint, build_observations
from tuner.select.lookup import lookup_rule
from tuner.select.selector import train
from tuner.select.simulated_times import Simulator
from tuner.select.table_diff import diff_tables
from tuner.sim import simulate
from tuner.topology import Placement
from tuner.whatif.table_regret import look_up_exported

BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE
RACKS = racks(2)
BINOMIAL = AlgorithmChoice("binomial")
CHAIN = AlgorithmChoice("chain")
PIPELINE = AlgorithmChoice("pipeline")
SIZES = (1024, 8192, 65536)
LAB = Cluster("racks", 4, 2, "any cpu", 2**30)
KEY = RuleKey(BCAST, 2, 2)
DEALT = replace(KEY, placement=CYCLIC)
REQUEST = ProbeSpec(
    "openmpi",
    Hosts(tuple("abcd")),
    2,
    shapes=(ProbeShape(4, 1), ProbeShape(2, 2)),
    parts=("collectives",),
    sizes=(4096,),
    placements=PLACEMENTS,
)


def series(placement: str, algorithm: str = "binomial", seconds: float = 1e-3) -> Measurement:
    return Measurement(
        "collective", "bcast", 2, 2, 4, 1024, (seconds,) * 9, algorithm, placement=placement
    )


def made(*found: Measurement, **provenance: object) -> Measurements:
    return Measurements(LAB, truth().library, provenance, found)


def placed(table: TuningTable, *placements: str) -> TuningTable:
    """The rules of a one-node table on two nodes, for each of these placements."""
    rules = tuple(
        replace(r, key=replace(r.key, nodes=2, ppn=r.key.ppn // 2, placement=kind))
        for r in table.rules
        for kind in placements
    )
    return TuningTable(table.cluster, table.library, rules, table.provenance)


def mixed() -> TuningTable:
    """Other choices for cyclic ranks than for consecutive ones."""
    one, other = (
        {(BCAST, 4): [(0, AlgorithmChoice()), (64, choice)]} for choice in (BINOMIAL, CHAIN)
    )
    rules = (*placed(table_of(one), BLOCK).rules, *placed(table_of(other), CYCLIC).rules)
    return TuningTable(CLUSTER, "openmpi 5.0.11", rules)


@pytest.mark.parametrize(("nodes", "ppn"), [(1, 4), (4, 1), (1, 1)])
def test_where_both_are_the_same_there_is_one_name(nodes: int, ppn: int) -> None:
    call = (Collective.BCAST, nodes, ppn)
    assert RuleKey(*call, placement=CYCLIC) == RuleKey(*call)
    assert CallPoint(*call, "host", 8, CYCLIC) == CallPoint(*call, "host", 8)
    assert ProbeShape(nodes, ppn, CYCLIC) == ProbeShape(nodes, ppn)
    assert DefaultAlgorithms(*call, 8, (), (), CYCLIC).placed_collective == (*call, BLOCK)


def test_names_tell_what_is_not_usual() -> None:
    assert (KEY.shape, DEALT.shape, str(ProbeShape(4, 2, CYCLIC))) == (
        "2x2",
        "2x2 cyclic",
        "4x2 cyclic",
    )
    assert (
        str(CallPoint("bcast", 2, 2, "host", 8, CYCLIC)) == "bcast of 8 bytes on 2x2 cyclic ranks"
    )


def test_series_of_both_kinds_survive_being_written(tmp_path: Path) -> None:
    written = made(*map(series, PLACEMENTS))
    path = measurements_file(tmp_path / "m.ndjson", written)
    assert read_measurements(path).series == written.series
    assert written.series[0].point != written.series[1].point
    _, usual, cyclic, _ = map(json.loads, path.read_text().splitlines())
    assert "placement" not in usual  # so files and their digests are those of older programs
    assert cyclic["placement"] == CYCLIC


def test_files_of_both_kinds_are_put_together(tmp_path: Path) -> None:
    """As of one launch: what was measured in one of them was not in the other."""
    paths = [measurements_file(tmp_path / kind, made(series(kind))) for kind in PLACEMENTS]
    both = merge_files(paths, tmp_path / "both").series
    assert [(one.placement, one.launch) for one in both] == [(BLOCK, 0), (CYCLIC, 0)]


@pytest.mark.parametrize("wrong", ['"block"', '""', "1", "null"])
def test_another_placement_in_a_file_is_refused(tmp_path: Path, wrong: str) -> None:
    path = measurements_file(tmp_path / "m.ndjson", made(series(CYCLIC)))
    path.write_text(path.read_text().replace('"cyclic"', wrong))
    with pytest.raises(InputError, match="line 2: not a measurement: placement "):
        read_measurements(path)
    text = json.dumps(table_record(mixed())).replace('"cyclic"', wrong)
    with pytest.raises(InputError, match=r"not a tuning table .*placement "):
        parse_table(text)


def test_tables_hold_both_kinds_and_old_ones_hold_the_usual(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    write_table(mixed(), path)
    read = read_table(path)
    assert read.rules == mixed().rules
    assert read.keys == (KEY, DEALT)
    assert lookup_rule(read, KEY, 4096).choice == BINOMIAL
    assert lookup_rule(read, DEALT, 4096).choice == CHAIN
    write_table(mixed().held_by_files(), path)
    assert "placement" not in path.read_text()
    with pytest.raises(InputError, match=r"no rules for bcast on 2x2 cyclic ranks.*bcast on 2x2 "):
        lookup_rule(read_table(path), DEALT, 4096)


def test_a_cyclic_call_is_priced_where_its_ranks_are() -> None:
    seconds = Simulator(truth(), RACKS)
    for kind, placement in zip(
        PLACEMENTS, (Placement.block(RACKS, 2, 4), Placement.cyclic(RACKS, 2, 4)), strict=True
    ):
        schedule = schedule_of(truth().library, BCAST, PIPELINE, 4, 65536)
        assert schedule is not None
        expected = simulate(schedule, placement, truth(), 65536)
        assert seconds(CallPoint("bcast", 2, 2, "host", 65536, kind), PIPELINE) == expected
    usual, dealt = (CallPoint("bcast", 2, 2, "host", 65536, kind) for kind in PLACEMENTS)
    assert seconds(dealt, PIPELINE) > 2 * seconds(usual, PIPELINE)


def test_what_the_default_runs_is_known_of_each_kind_by_itself() -> None:
    dealt = DefaultAlgorithms(BCAST, 2, 2, 1 << 20, (4,), (PIPELINE,), CYCLIC)
    kept = default_algorithms_from_provenance(
        {DEFAULT_ALGORITHMS_KEY: default_algorithms_record([dealt])}, "openmpi", "a file"
    )
    seconds = Simulator(truth(), RACKS, kept)
    one, other = (CallPoint("bcast", 2, 2, "host", 65536, kind) for kind in PLACEMENTS)
    assert math.isnan(seconds(one, AlgorithmChoice()))
    assert seconds(other, AlgorithmChoice()) == seconds(other, PIPELINE)


def test_a_calibration_knows_how_the_ranks_of_a_series_lay() -> None:
    """A pipeline of the same four ranks crosses the network once, or three times."""
    found = predict_all(
        simulatable_collectives(made(*(series(kind, "pipeline") for kind in PLACEMENTS)), RACKS),
        truth(),
    )
    assert [case.point[3] for case in found] == [BLOCK, CYCLIC]
    assert found[1].predicted_s > 2 * found[0].predicted_s


def collectives(kinds: dict[str, AlgorithmChoice], nodes: tuple[int, ...] = (2, 4)) -> Measurements:
    """On each placement another choice is twice as fast as the default."""
    noise = np.random.default_rng(1)
    found = [
        Measurement(
            "collective",
            "bcast",
            n,
            2,
            2 * n,
            nbytes,
            tuple(taken),
            choice.algorithm,
            placement=kind,
        )
        for kind, fastest in kinds.items()
        for n in nodes
        for nbytes in SIZES
        for choice in (AlgorithmChoice(), BINOMIAL, CHAIN)
        for base in [1e-3 * (1 + nbytes / 1e5) * (0.5 if choice == fastest else 1.0)]
        for taken in [(base * np.exp(0.01 * noise.standard_normal(12))).tolist()]
    ]
    return made(*found)


def test_each_placement_gets_the_rules_that_it_was_measured_for() -> None:
    measured = collectives({BLOCK: BINOMIAL, CYCLIC: CHAIN})
    _, table = make_table(measured, truth(), topology=RACKS, shapes=[(3, 2)])
    assert {key.shape for key in table.keys} == {
        f"{n}x2{kind}" for n in (2, 3, 4) for kind in ("", " cyclic")
    }
    for key in table.keys:
        expected = BINOMIAL if key.placement == BLOCK else CHAIN
        chosen = {rule.choice for rule in table.rules_for(key)}
        assert chosen <= {AlgorithmChoice(), expected}
        assert expected in chosen or key.nodes == 3  # not measured


@pytest.mark.parametrize(("measured", "other"), [PLACEMENTS, PLACEMENTS[::-1]])
def test_measurements_of_one_placement_say_nothing_of_another(measured: str, other: str) -> None:
    found = collectives({measured: BINOMIAL})
    rows = build_observations(found, Simulator(truth(), RACKS))
    selector = train(rows, Simulator(truth(), RACKS))
    own = CallPoint("bcast", 2, 2, "host", 8192, measured)
    assert selector.choose_guarded(own) == BINOMIAL
    elsewhere = replace(own, placement=other)
    assert selector.candidates(elsewhere) == ()
    assert selector.choose(elsewhere) == AlgorithmChoice()
    wanted = [omit_default_placement(asdict(one)) for one in (own, elsewhere)]
    told = replace(found, provenance={**found.provenance, REQUESTED_CALLS_KEY: wanted})
    _, table = make_table(told, truth(), topology=RACKS)
    assert {key.placement for key in table.keys} == {measured}


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.tuples(
            st.integers(2, 8),
            st.integers(2, 4),
            st.sampled_from(SIZES),
            st.sampled_from(PLACEMENTS),
            st.sampled_from((BINOMIAL, CHAIN)),
        ),
        max_size=12,
    ),
    st.integers(2, 8),
    st.integers(2, 4),
    st.sampled_from(SIZES),
    st.sampled_from(PLACEMENTS),
)
def test_support_never_crosses_from_one_placement_to_another(
    found: list[tuple[int, int, int, str, AlgorithmChoice]],
    nodes: int,
    ppn: int,
    nbytes: int,
    kind: str,
) -> None:
    """What speaks for a call is what would speak if nothing else had been measured."""
    rows = [
        row
        for n, k, size, placement, choice in dict.fromkeys(found)
        for row in build_observations(
            made(
                Measurement(
                    "collective",
                    "bcast",
                    n,
                    k,
                    n * k,
                    size,
                    (1e-3,) * 5,
                    choice.algorithm,
                    placement=placement,
                )
            ),
            lambda _point, _choice: math.nan,
        )
    ]
    point = CallPoint("bcast", nodes, ppn, "host", nbytes, kind)
    everything = Coverage(rows)
    own = Coverage([row for row in rows if row.point.placement == kind])
    assert everything.measured_sizes(point) == own.measured_sizes(point)
    assert everything.is_in_domain(point) == own.is_in_domain(point)
    for choice in (BINOMIAL, CHAIN):
        assert everything.covers(point, choice) == own.covers(point, choice)


def test_a_plan_measures_every_shape_in_every_placement_it_has() -> None:
    assert shapes_to_measure(REQUEST) == (
        ProbeShape(4, 1),
        ProbeShape(2, 2),
        ProbeShape(2, 2, CYCLIC),
    )
    points = plan_cluster(REQUEST).points
    names = [str(point) for point in points if point.kind == "collective"]
    assert "collective bcast 2x2 cyclic 4096 B" in names
    assert "collective bcast 4x1 cyclic 4096 B" not in names
    assert len(names) == len(set(names)) == 2 * 3
    groups = {point.placement: point.concurrency_group for point in points if point.ppn == 2}
    assert groups[BLOCK] != groups[CYCLIC]  # copies side by side are of one kind


def test_a_plan_without_cyclic_ranks_is_the_plan_it_was() -> None:
    """Files of older programs are resumed: their plan has the same fingerprint."""
    plan = plan_cluster(replace(REQUEST, placements=(BLOCK,)))
    record = asdict(plan)
    for point in record["points"]:
        assert point.pop("placement") == BLOCK
    old = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]
    assert plan.fingerprint == old != plan_cluster(REQUEST).fingerprint


def test_rounds_of_chosen_calls_are_of_either_kind() -> None:
    chosen = [ExperimentRequest(BCAST, 2, 2, 4096, (CHAIN,), kind) for kind in PLACEMENTS]
    points = plan_experiments(REQUEST, chosen, 1).points
    assert [point.placement for point in points] == list(PLACEMENTS)


@pytest.mark.parametrize("wrong", [("block",), ()])
def test_a_placement_that_there_is_not_cannot_be_asked_for(wrong: tuple[str, ...]) -> None:
    with pytest.raises(
        InputError, match=r"unknown placement .*: choose one of consecutive, cyclic"
    ):
        plan_cluster(replace(REQUEST, placements=wrong))


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints; it must succeed."""
    assert main([*words]) == 0
    return " ".join("".join(capsys.readouterr()).split())


def test_the_command_line_plans_both(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("probe", "plan", "--hosts", "a,b", "--ppn", "2", "--measure", "collectives", "--json")
    usual = json.loads(told(capsys, *words))
    both = json.loads(told(capsys, *words, "--placements", "consecutive,cyclic"))
    names = [row["point"] for row in both["points"]]
    assert any("2x2 cyclic" in name for name in names)
    assert not any("cyclic" in row["point"] for row in usual["points"])
    assert all(row["seconds"] > 0 for row in both["points"])
    assert main([*words, "--placements", "block"]) == 2
    assert "choose one of consecutive, cyclic" in capsys.readouterr().err


OF = {"openmpi": "openmpi 5.0.11", "openmpi-han": "openmpi 5.0.11", "openmpi-json": "openmpi 6.0.0"}


@pytest.mark.parametrize("form", sorted(OF))
def test_files_hold_what_they_would_hold_without_cyclic_rules(form: str) -> None:
    found = replace_library(mixed(), OF[form])
    text, lost = FORMATS[form].emit(found, ExportOptions())
    rules = tuple(rule for rule in found.rules if rule.key.placement == BLOCK)
    assert 0 < len(rules) < len(found.rules)
    plain = TuningTable(found.cluster, found.library, rules)
    assert (text, lost) == FORMATS[form].write(plain, ExportOptions())
    assert FORMATS[form].check(found, text, ExportOptions()) == []


def replace_library(table: TuningTable, library: str) -> TuningTable:
    return TuningTable(table.cluster, library, table.rules)


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_no_file_is_made_of_cyclic_rules_alone(form: str) -> None:
    rules = tuple(rule for rule in mixed().rules if rule.key.placement == CYCLIC)
    library = FORMATS[form].libraries[0]
    with pytest.raises(InputError, match="all rules of the table are for cyclic ranks"):
        FORMATS[form].emit(TuningTable(CLUSTER, f"{library} 1.0", rules), ExportOptions())


def test_what_a_file_leaves_out_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "t.json", str(tmp_path / "o.rules")
    write_table(mixed(), path)
    words = ("table", "export", str(path), "--format", "openmpi", "--out", out)
    assert "2 rules left out: none for cyclic ranks," in told(capsys, *words)
    write_table(mixed().held_by_files(), path)
    assert "left out" not in told(capsys, *words)


@pytest.mark.parametrize(("table", "left"), [(mixed(), 2), (mixed().held_by_files(), 0)])
def test_programs_learn_how_many_rules_a_file_leaves_out(
    table: TuningTable, left: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json"
    write_table(table, path)
    found = json.loads(told(capsys, "table", "export", str(path), "--format", "openmpi", "--json"))
    assert (found["rules"], found["cyclic_left_out"]) == (2, left)


def asked_in_vain(table: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The advice of a table without rules for a broadcast on 8 ranks that is asked for so."""
    ask = ("select", str(table), "--collective", "bcast", "--ranks", "8", "--size", "4KiB", *words)
    assert main(ask) == 1
    return capsys.readouterr().err.rpartition(": ")[2].strip()


def test_advice_about_other_nodes_is_for_the_placement_that_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One rank on each node lies as one likes."""
    keys = [
        RuleKey(BCAST, 8, 1),
        RuleKey(BCAST, 2, 4),
        RuleKey(BCAST, 4, 2, placement=CYCLIC),
        RuleKey(BCAST, 1, 8, operators="commutative"),
    ]
    rules = tuple(Rule(key, 0, math.inf, BINOMIAL, Evidence("none")) for key in keys)
    path = tmp_path / "t.json"
    write_table(TuningTable(CLUSTER, "openmpi 5.0.11", rules), path)
    assert asked_in_vain(path, capsys) == "add --nodes 2 or --nodes 8"
    dealt = ("--placement", CYCLIC)
    assert asked_in_vain(path, capsys, *dealt) == "add --nodes 4 or --nodes 8"
    words = ("--nodes", "2", *dealt, "--operators", "commutative")
    assert asked_in_vain(path, capsys, *words) == "add --nodes 1 or --nodes 4 or --nodes 8"


def test_terminals_tell_the_kinds_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    write_table(mixed().held_by_files(), old)
    write_table(mixed(), new)
    assert "2x2 cyclic" in told(capsys, "table", "show", str(new))
    assert "left out" not in told(capsys, "table", "show", str(old))
    assert "2x2 cyclic" in told(capsys, "table", "diff", str(old), str(new))
    changed = diff_tables(read_table(old), read_table(new)).changes
    assert [change.key for change in changed] == [DEALT]
    ask = (
        "select",
        str(new),
        "--collective",
        "bcast",
        "--ranks",
        "4",
        "--nodes",
        "2",
        "--size",
        "4KiB",
    )
    assert told(capsys, *ask).startswith("binomial")
    assert told(capsys, *ask, "--placement", "cyclic").startswith("chain")


def test_a_study_keeps_the_choices_that_a_table_has_for_its_ranks() -> None:
    usual, dealt = (look_up_exported(mixed(), key, 4096).choice for key in (KEY, DEALT))
    assert (usual, dealt) == (BINOMIAL, CHAIN)
    assert (
        look_up_exported(mixed().held_by_files(), DEALT, 4096).choice == BINOMIAL
    )  # as a library does
    cyclic = TuningTable(CLUSTER, "x", mixed().rules[2:])
    found: Any = look_up_exported(cyclic, KEY, 4096).key
    assert found is None


def test_a_study_follows_rules_for_cyclic_ranks_on_just_these() -> None:
    """As a library does: those of fewer ranks, however they are dealt, say nothing."""
    found: Any = look_up_exported(mixed(), replace(DEALT, nodes=8), 4096).key
    assert found is None


def test_files_from_before_there_were_placements_name_the_same_points() -> None:
    """What a probe left out stands in its file by the keys of its points."""
    usual = Probed("collective", "bcast", 4, 1024, (ProbeCandidate(),), 1.0, nodes=2, ppn=2)
    cyclic = replace(usual, placement=CYCLIC)
    left = ProbePlan("openmpi", 4, 4, 0.03, "any", (usual, cyclic)).drop_points(
        [[0, "collective", "bcast", 2, 2, 4, 1024, 0, "host"]]
    )
    assert left.points == (cyclic,)
