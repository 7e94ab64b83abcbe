"""What the library's default runs: found by bisection, simulated, probed and kept."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.ranks import CALL, HOSTS, REQUEST, Ranks
from tests.support.simulated import CALIBRATION, POINT, TOPOLOGY, on_four_hosts
from tests.support.trees import BINOMIAL, DENSE, GENERIC, RING, Node
from tuner.base.errors import InputError
from tuner.core.calibration import PathCost
from tuner.core.collective import Collective
from tuner.core.measurement import read_measurements
from tuner.core.path_classes import BLOCK, CYCLIC
from tuner.core.table import AlgorithmChoice
from tuner.formats.mpich import GenericTrees
from tuner.formats.mpich import default_algorithms as mpich_decisions
from tuner.launch import Launcher
from tuner.machines.topology_files import load_topology
from tuner.mpi_libraries.default_algorithms import (
    DEFAULT_ALGORITHMS_KEY,
    DefaultAlgorithms,
    default_algorithms_from_provenance,
    default_algorithms_record,
    default_lookup,
)
from tuner.probe.multi_host import probe_cluster, probe_experiments
from tuner.probe.probe_spec import ProbeShape, ProbeSpec
from tuner.rank_programs.bisection import find_change_points
from tuner.select.build_table import make_table
from tuner.select.dataset import CallPoint
from tuner.select.simulated_times import Simulator
from tuner.workflows.candidates import (
    CandidateGenerator,
    candidate_points,
    discover_defaults,
    with_default_thresholds,
)

BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE
CHAIN, LINEAR = AlgorithmChoice("chain", {"chains": 1}), AlgorithmChoice("linear")
KNOWN = DefaultAlgorithms(BCAST, 1, 4, 65536, (4, 4096, 16384), (LINEAR, CHAIN, None))


def test_every_switch_is_found_to_the_element() -> None:
    steps = {4: "a", 8: "b", 1000: "a", 1024: "c", 40000: "b"}

    def decide(nbytes: int) -> str:
        assert nbytes % 4 == 0
        return [what for start, what in steps.items() if start <= nbytes][-1]

    assert dict(find_change_points(decide, 1 << 20)) == steps
    assert dict(find_change_points(decide, 1023)) == {4: "a", 8: "b", 1000: "a"}
    assert dict(find_change_points(decide, 4)) == {4: "a"}


def test_the_default_takes_as_long_as_what_it_runs_there() -> None:
    seconds = Simulator(CALIBRATION, TOPOLOGY, [KNOWN])
    for nbytes, choice in ((64, LINEAR), (4092, LINEAR), (4096, CHAIN), (16380, CHAIN)):
        assert seconds(POINT.with_size(nbytes), AlgorithmChoice()) == seconds(
            POINT.with_size(nbytes), choice
        )
    assert seconds(POINT, AlgorithmChoice()) != seconds(POINT, LINEAR)


@pytest.mark.parametrize(
    "point",
    [
        POINT.with_size(16384),
        POINT.with_size(65540),
        replace(POINT, ppn=2),
        replace(POINT, memory="cuda"),
        replace(POINT, collective=ALLREDUCE),
        POINT.with_size(0),
    ],
)
def test_elsewhere_nothing_is_known_of_it(point: CallPoint) -> None:
    assert math.isnan(Simulator(CALIBRATION, TOPOLOGY, [KNOWN])(point, AlgorithmChoice()))


def test_what_is_asked_for_may_be_handed_on() -> None:
    ring = AlgorithmChoice("ring")

    def run(asked: AlgorithmChoice, collective: Collective, nbytes: int) -> AlgorithmChoice | None:
        decided = DefaultAlgorithms(collective, 1, 4, 1 << 20, (4,), (asked,))
        return default_lookup([decided], "openmpi 5.0.11")(decided.placed_collective, nbytes)

    assert run(ring, ALLREDUCE, 12) == AlgorithmChoice("recursive_doubling")
    assert run(ring, ALLREDUCE, 16) == ring
    assert run(AlgorithmChoice("segmented_ring"), ALLREDUCE, 1 << 20) == ring
    assert run(AlgorithmChoice("split_binary", {"segment": 1024}), BCAST, 1024) == CHAIN
    assert run(ring, ALLREDUCE, 2) is None


def test_switches_far_from_other_sizes_become_sizes() -> None:
    starts = (4, 1024, 4400, 9000, 9900, 40000, 80000)
    known = [DefaultAlgorithms(BCAST, 2, 1, 1 << 20, starts, (LINEAR,) * 7), KNOWN]
    assert with_default_thresholds(known, (BCAST, 2, 1, BLOCK), (65536, 4096)) == (
        4096,
        9000,
        40000,
        65536,
    )
    assert with_default_thresholds(known, (BCAST, 4, 1, BLOCK), (65536, 4096)) == (4096, 65536)


def test_a_design_has_points_where_the_default_switches() -> None:
    known = [DefaultAlgorithms(BCAST, 4, 1, 65536, (4, 20000), (LINEAR, CHAIN))]
    request = replace(REQUEST, sizes=(4096, 65536), shapes=(ProbeShape(2, 1), ProbeShape(4, 1)))
    grid = candidate_points(request, known)
    sizes = {(q.collective, q.nodes): set[int]() for q in grid}
    for q in grid:
        sizes[q.collective, q.nodes].add(q.nbytes)
    assert sizes.pop((BCAST, 4)) == {4096, 20000, 65536}
    assert set(map(tuple, map(sorted, sizes.values()))) == {(4096, 65536)}
    there = CandidateGenerator(request, default_algorithms=known)(
        CallPoint(BCAST, 4, 1, "host", 20000)
    )
    assert AlgorithmChoice("chain", {"chains": 2}) in there
    assert LINEAR in there


def test_what_the_default_runs_itself_is_not_measured_beside_it() -> None:
    known = [DefaultAlgorithms(BCAST, 4, 1, 65536, (4,), (LINEAR,))]
    offered = CandidateGenerator(
        replace(REQUEST, shapes=(ProbeShape(4, 1),)), default_algorithms=known
    )
    assert LINEAR not in offered(CallPoint(BCAST, 4, 1, "host", 4096))
    assert LINEAR in offered(CallPoint(BCAST, 4, 1, "host", 131072))


def test_it_is_kept_with_the_measurements_through_rounds(tmp_path: Path) -> None:
    out, ranks = tmp_path / "m.ndjson", Ranks()
    probe_cluster(out, REQUEST, ranks, default_algorithms=[KNOWN])
    assert default_algorithms_from_provenance(
        read_measurements(out).provenance, "openmpi", "m"
    ) == (KNOWN,)
    probe_experiments(out, REQUEST, ranks, [CALL])
    probe_cluster(out, REQUEST, ranks)
    assert default_algorithms_from_provenance(
        read_measurements(out).provenance, "openmpi", "m"
    ) == (KNOWN,)


def test_a_table_of_kept_measurements_knows_it(tmp_path: Path) -> None:
    path = tmp_path / "flat.yaml"
    path.write_text("{name: flat, nodes: 4, latency: 10us, bandwidth: 1GB/s}")
    paths = {("network", "host"): PathCost.from_alpha_beta(1e-6, 1e-9)}
    calibration = replace(CALIBRATION, library="openmpi 5.0.11", paths=paths)
    known = DefaultAlgorithms(BCAST, 4, 1, 8192, (4,), (LINEAR,))
    kept = {DEFAULT_ALGORITHMS_KEY: default_algorithms_record([known])}
    found = replace(on_four_hosts(), provenance=kept)
    rows, _ = make_table(found, calibration, topology=load_topology(path))
    simulated = {(row.point.nbytes, row.choice): row.simulated_seconds for row in rows}
    assert simulated[4096, AlgorithmChoice()] == simulated[4096, LINEAR]
    assert math.isnan(simulated[16384, AlgorithmChoice()])


RECORD = default_algorithms_record([KNOWN])[0]


def test_what_was_kept_is_read_again() -> None:
    assert default_algorithms_from_provenance(
        {DEFAULT_ALGORITHMS_KEY: [RECORD]}, "openmpi", "m.ndjson"
    ) == (KNOWN,)
    assert default_algorithms_from_provenance({}, "openmpi", "m.ndjson") == ()


@pytest.mark.parametrize(
    "damage",
    [
        7,
        [7],
        [{}],
        [{**RECORD, "nodes": 0}],
        [{**RECORD, "thresholds": [4, 4, 8]}],
        [{**RECORD, "thresholds": [4]}],
        [{**RECORD, "thresholds": [-4, 4, 8]}],
        [{**RECORD, "collective": "dance"}],
        [{**RECORD, "more": 1}],
        [{**RECORD, "choices": [{"algorithm": "dance"}, None, None]}],
        [{**RECORD, "choices": [{"algorithm": "linear", "params": {"fanout": 1}}, None, None]}],
    ],
)
def test_what_is_damaged_is_refused(damage: object) -> None:
    with pytest.raises(InputError, match=r"^m\.ndjson: what the default runs is damaged: "):
        default_algorithms_from_provenance({DEFAULT_ALGORITHMS_KEY: damage}, "openmpi", "m.ndjson")


def test_a_file_that_knows_is_not_asked_again(tmp_path: Path) -> None:
    out = tmp_path / "m.ndjson"
    request = ProbeSpec(
        "openmpi", HOSTS, 1, sizes=(4096,), collectives=(BCAST,), shapes=(ProbeShape(1, 4),)
    )
    probe_cluster(out, REQUEST, Ranks(), default_algorithms=[KNOWN])
    nobody = Launcher("openmpi", Path("no such interpreter"))
    assert discover_defaults(out, request, nobody, pytest.fail) == (KNOWN,)


def test_without_a_compiler_a_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    notes = list[str]()
    assert discover_defaults(tmp_path / "m", REQUEST, Ranks(), notes.append) == ()
    (note,) = notes
    assert note.startswith("nothing is known of what the library's default runs")
    assert "C compiler" in note


def test_mpichs_default_is_what_the_rules_in_its_library_say() -> None:
    calls = [
        (BCAST, 4, 1, BLOCK),
        (BCAST, 8, 1, BLOCK),
        (BCAST, 9, 1, BLOCK),
        (BCAST, 2, 2, CYCLIC),
        (ALLREDUCE, 5, 1, BLOCK),
    ]
    binomial, ring = AlgorithmChoice("binomial"), AlgorithmChoice("scatter_allgather_ring")
    doubling, rabenseifner = AlgorithmChoice("recursive_doubling"), AlgorithmChoice("rabenseifner")
    expected = [
        ((4,), (binomial,)),
        ((4, 12292), (binomial, ring)),
        ((4,), (ring,)),
        ((4,), (binomial,)),
        ((4, 16), (doubling, rabenseifner)),
    ]
    found = mpich_decisions.find_default_algorithms(GenericTrees(GENERIC), calls, 1 << 20)
    assert [each.placed_collective for each in found] == calls
    assert [(each.thresholds, each.choices) for each in found] == expected
    seconds = Simulator(
        replace(CALIBRATION, library="mpich 5.0.2"),
        TOPOLOGY,
        [DefaultAlgorithms(BCAST, 1, 4, 1 << 20, (4,), (binomial,))],
    )
    assert seconds(POINT, AlgorithmChoice()) == seconds(POINT, binomial)


def test_of_what_its_rules_ask_beyond_the_call_nothing_is_known() -> None:
    """Here whether ranks follow one another on their nodes; there an algorithm of a vendor's."""
    bcast = {"is_node_consecutive=yes": BINOMIAL, "is_node_consecutive=no": RING}
    (found,) = mpich_decisions.find_default_algorithms(
        GenericTrees({"collective=bcast": bcast}), [(BCAST, 4, 1, BLOCK)], 4096
    )
    assert found.thresholds == ()
    (found,) = mpich_decisions.find_default_algorithms(
        GenericTrees(DENSE), [(BCAST, 2, 2, BLOCK)], 4096
    )
    assert found.choices == (None,)


def test_reduce_scatters_are_decided_by_their_whole_buffer() -> None:
    """MPICH 5.0's device layer hands these calls to the MPIR layer."""
    halving: Node = {"algorithm=MPIR_Reduce_scatter_intra_recursive_halving": {}}
    pairwise: Node = {"algorithm=MPIR_Reduce_scatter_intra_pairwise": {}}
    sizes = {"total_msg_size<524288": halving, "total_msg_size=any": pairwise}
    own = {"collective=reduce_scatter": {"is_commutative=yes": sizes, "is_commutative=no": {}}}
    above: Node = {"composition=MPIDI_Reduce_scatter_intra_composition_alpha": {}}
    for device in (None, {"collective=reduce_scatter": {"comm_type=intra": above}}):
        (found,) = mpich_decisions.find_default_algorithms(
            GenericTrees(own, device), [(Collective.REDUCE_SCATTER, 4, 1, BLOCK)], 1 << 20
        )
        assert found.thresholds == (4, 524288)
        assert [str(one) for one in found.choices] == ["recursive_halving", "pairwise"]


def test_where_a_host_has_several_ranks_its_rules_for_a_hierarchy_count() -> None:
    tree = {"collective=bcast": {"comm_hierarchy=parent": BINOMIAL, "comm_hierarchy=any": RING}}
    shapes = {(2, 2): "binomial", (4, 1): "scatter_allgather_ring", (1, 4): "binomial"}
    for (nodes, ppn), name in shapes.items():
        (found,) = mpich_decisions.find_default_algorithms(
            GenericTrees(tree), [(BCAST, nodes, ppn, BLOCK)], 4096
        )
        assert found.choices == (AlgorithmChoice(name),)
    (found,) = mpich_decisions.find_default_algorithms(
        GenericTrees(GENERIC), [(BCAST, 8, 1, BLOCK)], 12288
    )
    assert found.thresholds == (4,)  # it switches above


def test_what_no_library_of_that_name_runs_is_damaged() -> None:
    pipeline = AlgorithmChoice("pipeline", {"segment": 4096})
    kept = default_algorithms_record([DefaultAlgorithms(BCAST, 4, 1, 4096, (4,), (pipeline,))])
    assert default_algorithms_from_provenance({DEFAULT_ALGORITHMS_KEY: kept}, "mpich 5.0.2", "m")[
        0
    ].choices == (pipeline,)
    knomial = default_algorithms_record(
        [DefaultAlgorithms(BCAST, 4, 1, 4096, (4,), (AlgorithmChoice("knomial", {"radix": 4}),))]
    )
    assert default_algorithms_from_provenance(
        {DEFAULT_ALGORITHMS_KEY: knomial}, "openmpi 5.0.11", "m"
    )
    with pytest.raises(InputError, match="m: what the default runs is damaged: "):
        default_algorithms_from_provenance({DEFAULT_ALGORITHMS_KEY: knomial}, "mpich 5.0.2", "m")


def test_without_its_library_nothing_is_known_of_mpichs_default(tmp_path: Path) -> None:
    request, notes = replace(REQUEST, library="mpich"), list[str]()
    nobody = Launcher("mpich", Path("no such interpreter"))
    assert discover_defaults(tmp_path / "m", request, nobody, notes.append) == ()
    assert "no such interpreter" in notes[-1]
