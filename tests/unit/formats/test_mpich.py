"""MPICH's selection tree: what is written, how it decides, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.ladders import Rungs, table_of
from tests.support.numbers import MISREAD
from tests.support.trees import (
    BELOW,
    BINOMIAL,
    DENSE,
    DOUBLING,
    GENERIC,
    IN_PLACE,
    RABENSEIFNER,
    RING,
    SHARED,
    SMP,
    Node,
    composition,
)
from tuner import mpi_libraries
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable
from tuner.formats import mpich
from tuner.formats.mpich import CselCall

BCAST, ALLREDUCE, ALLTOALL = Collective.BCAST, Collective.ALLREDUCE, Collective.ALLTOALL
LATE: Node = {
    "comm_type=intra": {
        "is_commutative=yes": {"comm_size<3": DOUBLING, "comm_size=any": RABENSEIFNER},
        "is_commutative=no": DOUBLING,
    },
    "comm_type=inter": {"algorithm=MPIR_Allreduce_inter_reduce_exchange_bcast": {}},
}
NO_PARAMETERS: list[Any] = [5, None, [], [[1]], "k=2", {"k=2": 1}, {"k=2": {"k=3": {}}}]
PIPELINE = AlgorithmChoice("pipeline", {"segment": 8192})
TABLE = table_of(
    {
        (BCAST, 4): [(0, AlgorithmChoice()), (1024, PIPELINE)],
        (BCAST, 8): [(0, AlgorithmChoice("binomial")), (1024, AlgorithmChoice())],
        (ALLREDUCE, 4): [(0, AlgorithmChoice()), (1024, AlgorithmChoice("recursive_doubling"))],
        (ALLREDUCE, 4, "commutative"): [
            (0, AlgorithmChoice("rabenseifner")),
            (1024, AlgorithmChoice("ring")),
        ],
    }
)


def leaf(collective: Collective, call: CselCall) -> str:
    tree = mpich.parse(mpich.emit(TABLE, GENERIC))
    return mpich.decide(tree, collective, call).name.partition("intra_")[2]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (CselCall(4, 0), "smp"),
        (CselCall(4, 1023), "binomial"),
        (CselCall(4, 1024), "pipelined_tree"),
        (CselCall(4, 1 << 40), "pipelined_tree"),
        (CselCall(3, 1024), "binomial"),
        (CselCall(5, 1024), "binomial"),
        (CselCall(8, 1023), "binomial"),
        (CselCall(8, 1024), "binomial"),
        (CselCall(8, 12289), "scatter_ring_allgather"),
        (CselCall(9, 1), "scatter_ring_allgather"),
        (CselCall(4, 0, hierarchy="node"), "binomial"),
    ],
)
def test_bcast_decisions(call: CselCall, name: str) -> None:
    assert leaf(BCAST, call) == name


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (CselCall(4, 1023), "reduce_scatter_allgather"),
        (CselCall(4, 8), "recursive_doubling"),  # two elements are too few for Rabenseifner
        (CselCall(4, 1023, built_in=False), "recursive_doubling"),
        (CselCall(4, 1024), "ring"),
        (CselCall(4, 1024, commutative=False), "recursive_doubling"),
        (CselCall(2, 1024), "reduce_scatter_allgather"),
    ],
)
def test_allreduce_guards(call: CselCall, name: str) -> None:
    assert leaf(ALLREDUCE, call) == name


def test_everything_else_stays() -> None:
    tree = json.loads(mpich.emit(TABLE, GENERIC))
    assert tree["collective=barrier"] == GENERIC["collective=barrier"]
    for name in ("collective=bcast", "collective=allreduce"):
        assert tree[name]["comm_type=inter"] == GENERIC[name]["comm_type=inter"]
        assert tree[name]["comm_type=intra"]["comm_size=any"] == GENERIC[name]["comm_type=intra"]


def paths(node: Any, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not node:
        return [above]
    return [path for key, below in node.items() for path in paths(below, (*above, key))]


@pytest.mark.parametrize(
    ("nbytes", "in_place", "name"),
    [
        (396, False, "brucks"),  # blocks of 99 bytes
        (400, False, "scattered"),
        (8 * 4096, False, "scattered"),  # blocks of 8 KiB
        (400, True, "pairwise_sendrecv_replace"),
    ],
)
def test_sizes_of_blocks_decide_and_calls_in_place_stay(
    nbytes: int, in_place: bool, name: str
) -> None:
    bruck, default = AlgorithmChoice("bruck"), AlgorithmChoice()
    table = table_of(
        {(ALLTOALL, 4): [(0, bruck), (399, AlgorithmChoice("spread_out")), (8192, default)]}
    )
    text = mpich.emit(table, GENERIC)
    call = CselCall(4, nbytes, blocks=4, in_place=in_place)
    found = mpich.decide(mpich.parse(text), ALLTOALL, call)
    assert found.name.partition("intra_")[2] == name
    layout = json.loads(text)["collective=alltoall"]["comm_type=intra"]["comm_size<=4"]
    branch = layout["comm_hierarchy=parent"]
    assert branch["is_sendbuf_inplace=yes"] == IN_PLACE
    assert [*branch["is_sendbuf_inplace=no"]] == [
        "avg_msg_size<=99",
        "avg_msg_size<=2047",
        "avg_msg_size=any",
    ]
    below = branch["is_sendbuf_inplace=no"]["avg_msg_size=any"]
    assert [*below] == ["comm_size<8", "comm_size=any"]  # the library's own
    moved = text.replace("avg_msg_size<=99", "avg_msg_size<=100")
    assert "alltoall of 400 bytes on 4 ranks" in mpich.check(table, moved, GENERIC)[0]
    swapped = text.replace('"is_sendbuf_inplace=yes": {\n', '"is_sendbuf_inplace=any": {\n', 1)
    with pytest.raises(InputError, match="is_sendbuf_inplace=any"):
        mpich.check(table, swapped, GENERIC)


def test_form_that_the_library_needs() -> None:
    tree = json.loads(mpich.emit(TABLE, GENERIC))
    for path in paths(tree["collective=bcast"]["comm_type=intra"]["comm_size<=4"]):
        leaf_at = next(i for i, key in enumerate(path) if key.startswith("algorithm="))
        about = ["msg_size" in key for key in path[:leaf_at]]
        assert about == sorted(about), "communicator conditions come first"
    leaves = [p for p in paths(tree) if any("pipelined_tree" in key for key in p)]
    assert {p[-1] for p in leaves} == {
        "tree_type=kary",
        "k=1",
        "is_non_blocking=1",
        "chunk_size=8192",
        "recv_pre_posted=0",
    }


def test_check_sees_a_moved_bound() -> None:
    text = mpich.emit(TABLE, GENERIC)
    assert mpich.check(TABLE, text, GENERIC) == []
    moved = text.replace("avg_msg_size<=1023", "avg_msg_size<=1024", 1)
    assert moved != text
    assert "1024 bytes on 4 ranks" in mpich.check(TABLE, moved, GENERIC)[0]


def test_check_sees_calls_beyond_a_bound_of_elements() -> None:
    """How many bytes `count<pow2` ends at no condition says: it hangs on ranks and elements."""
    table = table_of({(ALLREDUCE, 8, "commutative"): [(0, AlgorithmChoice("rabenseifner"))]})
    text = mpich.emit(table, GENERIC)
    assert mpich.check(table, text, GENERIC) == []
    (large,), (small,) = RABENSEIFNER, DOUBLING
    found = mpich.check(table, text.replace(large, small), GENERIC)
    assert any("bytes on 8 ranks" in difference for difference in found)


def test_a_number_of_ranks_below_other_conditions_is_misread_as_the_library_does() -> None:
    """It reads comm_size<8 as <=8 there; MVAPICH's own rules for allreduce have such a place."""
    small = {"comm_size<8": BINOMIAL, "comm_size=any": RING}
    for above, at_eight in (("comm_hierarchy=any", RING), ("avg_msg_size=any", BINOMIAL)):
        tree = mpich.parse(json.dumps({"collective=bcast": {above: small}}))
        assert f"algorithm={mpich.decide(tree, BCAST, CselCall(8, 1)).name}" in at_eight
        assert f"algorithm={mpich.decide(tree, BCAST, CselCall(7, 1)).name}" in BINOMIAL
    tree = mpich.parse(mpich.emit(TABLE, {**GENERIC, "collective=allreduce": LATE}))
    found = [mpich.decide(tree, ALLREDUCE, CselCall(p, 1)).name for p in (2, 3, 5)]
    assert [f"algorithm={name}" in DOUBLING for name in found] == [True, True, False]


@pytest.mark.parametrize(
    "leaf_of_bcast",
    [
        {"algorithm=MPIR_Bcast_intra_tree": {}},  # without parameters it killed MPI_Init
        {"algorithm=MPIR_Bcast_intra_osu_pipelined": {}},  # of MVAPICH
        {"algorithm=MPIR_Bcast_intra_pipelined_tree": {"tree_type=kary": {}, "k=1": {}}},
    ],
)
def test_check_sees_algorithms_where_no_call_was_tried(leaf_of_bcast: Node) -> None:
    tree = json.loads(mpich.emit(TABLE, GENERIC))
    tree["collective=bcast"]["comm_type=inter"] = leaf_of_bcast
    (found,) = mpich.check(TABLE, json.dumps(tree), GENERIC)
    assert "which neither table nor library has" in found


def test_check_sees_what_the_table_does_not_have() -> None:
    tree = json.loads(mpich.emit(TABLE, GENERIC))
    ranks = tree["collective=bcast"]["comm_type=intra"]
    small = {"avg_msg_size<=99": ranks["comm_size=any"], "avg_msg_size<=199": BINOMIAL}
    stray = {
        **tree,
        "collective=bcast": {
            **tree["collective=bcast"],
            "comm_type=intra": {
                **ranks,
                "comm_size=any": {**small, "avg_msg_size=any": ranks["comm_size=any"]},
            },
        },
    }
    assert "100 bytes on" in mpich.check(TABLE, json.dumps(stray), GENERIC)[0]
    large = {
        **{k: v for k, v in ranks.items() if k != "comm_size=any"},
        "comm_size<=63": ranks["comm_size=any"],
        "comm_size<=64": BINOMIAL,
        "comm_size=any": ranks["comm_size=any"],
    }
    grown = {**tree, "collective=bcast": {**tree["collective=bcast"], "comm_type=intra": large}}
    assert any("64 ranks" in found for found in mpich.check(TABLE, json.dumps(grown), GENERIC))
    for four in (
        {"comm_hierarchy=parent": ranks["comm_size<=4"], "comm_hierarchy=any": RING},
        {"comm_hierarchy=node": RING, "comm_hierarchy=any": ranks["comm_size<=4"]},
        {
            "avg_msg_size<=1023": ranks["comm_size<=4"],
            "avg_msg_size=any": {"count<=100000": ranks["comm_size<=4"], "count=any": RING},
        },
        {
            "avg_msg_size<=1023": ranks["comm_size<=4"],
            "avg_msg_size=any": {"count<=64": RING, "count=any": ranks["comm_size<=4"]},
        },
    ):
        apart = {**tree["collective=bcast"], "comm_type=intra": {**ranks, "comm_size<=4": four}}
        assert mpich.check(TABLE, json.dumps({**tree, "collective=bcast": apart}), GENERIC)
    other = {**tree, "collective=barrier": {"algorithm=MPIR_Barrier_intra_dissemination": {}}}
    assert "collective=barrier" in mpich.check(TABLE, json.dumps(other), GENERIC)[0]


@pytest.mark.parametrize("algorithm", ["ring", "rabenseifner"])
def test_unsafe_rules_need_the_commutative_ladder(algorithm: str) -> None:
    with pytest.raises(InputError, match=f"on 2 ranks.*{algorithm}.*non-commutative"):
        mpich.emit(table_of({(ALLREDUCE, 2): [(0, AlgorithmChoice(algorithm))]}), GENERIC)


@pytest.mark.parametrize(
    "choice",
    [AlgorithmChoice("split_binary"), AlgorithmChoice("pipeline"), AlgorithmChoice("nonsense")],
)
def test_foreign_rules_are_refused_by_name_or_replaced(choice: AlgorithmChoice) -> None:
    table = table_of({(BCAST, 2): [(0, AlgorithmChoice()), (64, choice)]})
    with pytest.raises(InputError, match=rf"bcast on 2 ranks, \[64, inf\) bytes: '{choice}'"):
        mpich.emit(table, GENERIC)
    replaced, lost = mpich.drop_inexpressible(table)
    assert lost == (f"bcast on 2 ranks, [64, inf) bytes: '{choice}'",)
    assert all(rule.choice.is_default for rule in replaced.rules)
    assert mpich.emit(replaced, GENERIC)


def test_rules_safe_elsewhere_but_not_in_mpich_keep_their_place_for_commutative_operators() -> None:
    choice = AlgorithmChoice("rabenseifner")
    rungs = [(0, choice)]
    table = table_of({(ALLREDUCE, 4): rungs, (ALLREDUCE, 4, "commutative"): rungs})
    replaced, lost = mpich.drop_inexpressible(table)
    assert len(lost) == 1
    assert {rule.key.operators: rule.choice for rule in replaced.rules} == {
        "any": AlgorithmChoice(),
        "commutative": choice,
    }
    assert mpich.emit(replaced, GENERIC)


@pytest.mark.parametrize("segment", [-1, 2**31, 2**32 + 1, 2**40])
def test_segments_are_what_an_int_of_the_library_holds(segment: int) -> None:
    """It reads 4294967297 as 1."""
    for allowed in (0, 2**31 - 1):
        choice = AlgorithmChoice("pipeline", {"segment": allowed})
        assert mpich.emit(table_of({(BCAST, 2): [(0, choice)]}), GENERIC)
    table = table_of({(BCAST, 2): [(0, AlgorithmChoice("pipeline", {"segment": segment}))]})
    with pytest.raises(InputError, match=r"MPICH has segments of 0 \(none\) to 2147483647 bytes"):
        mpich.emit(table, GENERIC)


@pytest.mark.parametrize("requests", [-1, 2**31, 2**40])
def test_requests_are_what_an_int_of_the_library_holds(requests: int) -> None:
    few = AlgorithmChoice("spread_out", {"requests": requests})
    with pytest.raises(InputError, match=r"MPICH limits requests to 0 \(none\) to 2147483647"):
        mpi_libraries.mpich.settings(Collective.ALLTOALLV, few)


BCAST_RULE = {"comm_type=intra": {"avg_msg_size<=8": SMP, "avg_msg_size=any": BINOMIAL}}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"bcast": SMP}, "'bcast' is not a collective"),
        ({"collective=bcast": {}}, "expected an object after 'collective=bcast'"),
        ({"collective=bcast": {"$schema": SMP}}, r"'\$schema' is not a condition"),
        ({"collective=bcast": {"avg_msg_size<=8": SMP}}, "not with =any"),
        ({"collective=bcast": {"avg_msg_size<=2147483648": SMP}}, "largest bound is 2147483647"),
        *(
            (
                {"collective=bcast": {f"comm_size<={number}": SMP}},
                "'comm_size<=.* is not a condition",
            )
            for number in MISREAD
        ),
        *(
            ({"collective=bcast": dict.fromkeys(SMP, below)}, "only parameters may follow 'algor")
            for below in NO_PARAMETERS
        ),
        ({"collective=bcast": {"algorithm=MPIR_Bcast_intra_é": {}}}, "is not a condition"),
        ({"collective=((": SMP}, r"is not an algorithm of '\(\(' in this layer"),
        ({"collective=bcast": {**SMP, **RING}}, "must stand alone"),
        ({"collective=bcast": DOUBLING}, "_intra_recursive_doubling' is not an algorithm of 'b"),
        (
            {"collective=bcast": composition("Bcast", "alpha")},
            r"a file for the device layer \(MPIR_CVAR_CH4_COLL_.* expected one for the MPIR layer",
        ),
        ({"collective=bcast": {"total_msg_size=any": SMP}}, "'bcast' depends on total_msg_size"),
        ({"collective=gather": {"avg_msg_size=any": SMP}}, "'gather' depends on avg_msg_size"),
        ({"collective=bcast": {"is_commutative=yes": SMP}}, "'bcast' depends on is_commutative"),
        (
            {"collective=ibcast": {"is_sendbuf_inplace=yes": SMP}},
            "'ibcast' depends on is_sendbuf_inplace",
        ),
    ],
)
def test_trees_that_the_library_would_abort_on(tree: Node, message: str) -> None:
    with pytest.raises(InputError, match=message):
        mpich.parse(json.dumps(tree))


LONG = "a\nb" * 2000
ALIEN = f"algorithm=MPIR_Bcast_intra_{'x' * 5000}"


@pytest.mark.parametrize(
    "tree",
    [
        {f"collective={LONG}": {}},
        {f"collective={LONG}": {**SMP, **RING}},
        {f"collective={LONG}": {LONG: SMP}},
        {f"collective={LONG}": {"comm_size<=2147483648": SMP}},
        {f"collective={LONG}": {"comm_size<=8": SMP}},
        {f"collective={LONG}": SMP},
        {f"collective={LONG}": {"is_commutative=yes": SMP}},
        {"collective=allreduce": {ALIEN: {}}},
        {"collective=bcast": {f"{ALIEN}_ccl": {}}},
        {**GENERIC, f"collective={LONG}": {"any": {f"algorithm=MPIR_{LONG}_x": {}}}},
        {**GENERIC, "collective=bcast": {ALIEN: {LONG: {}}}},
    ],
)
def test_names_of_a_file_are_said_on_one_line_and_short(tree: Node) -> None:
    table = TuningTable(TABLE.cluster, "mpich 4.2.0", TABLE.rules)
    try:
        said = mpich.check(table, json.dumps(tree), GENERIC)
    except InputError as reason:
        said = [str(reason)]
    assert said
    assert [one for one in said if "\n" in one or len(one) > 600] == []


def test_truncated_and_repeated() -> None:
    text = json.dumps({"collective=bcast": BCAST_RULE})
    assert mpich.decide(mpich.parse(text), BCAST, CselCall(2, 9)).name.endswith("binomial")
    with pytest.raises(InputError, match="truncated"):
        mpich.parse(text[:-5])
    with pytest.raises(InputError, match="listed twice"):
        mpich.parse('{"collective=a": {}, "collective=a": {}}')
    with pytest.raises(InputError, match="longer than any library reads"):
        mpich.parse('{"collective=bcast": %s}' % ("9" * 5000))
    with pytest.raises(InputError, match="must hold every collective"):
        mpich.decide(mpich.parse(text), ALLREDUCE, CselCall(2, 9))


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"collective=bcast": BCAST_RULE}, "no rules for allreduce; the file must hold every coll"),
        (
            {**GENERIC, "collective=bcast": {"comm_size=pow2": SMP}},
            "bcast of 0 bytes on 3 ranks me",
        ),
    ],
)
def test_a_check_refuses_files_without_rules_for_its_calls(tree: Node, message: str) -> None:
    """It ended in a traceback."""
    with pytest.raises(InputError, match=message):
        mpich.check(TABLE, json.dumps(tree), GENERIC)


def binary_of(*strings: str) -> bytes:
    return b"\x7fELF\0" + b"".join(f"{each}\0".encode() for each in strings) + b"rest"


def test_generic_tuning_is_found_in_a_binary(tmp_path: Path) -> None:
    """A layer of which the library reads no file is none, whatever rules it holds for it."""
    library = tmp_path / "libmpi.so.12"
    shared, below, own = map(json.dumps, (SHARED, BELOW, GENERIC))
    layers = (mpich.SHARED_MEMORY, mpich.DEVICE, mpich.MPIR)
    library.write_bytes(binary_of(shared, below, own, *(layer.variable for layer in layers)))
    assert [mpich.read_generic_tree(library, layer) for layer in layers] == [SHARED, BELOW, GENERIC]
    assert mpich.read_generic_trees(library) == mpich.GenericTrees(GENERIC, BELOW, SHARED)
    library.write_bytes(binary_of(shared, below, own, mpich.MPIR.variable))
    assert mpich.read_generic_tree(library) == GENERIC
    assert mpich.read_generic_trees(library) == mpich.GenericTrees(GENERIC)
    with pytest.raises(InputError, match=r"no device layer with a tuning file \(MPIR_CVAR_CH4_"):
        mpich.read_generic_tree(library, mpich.DEVICE)
    library.write_bytes(binary_of(shared, below))
    with pytest.raises(InputError, match="no collective selection rules"):
        mpich.read_generic_tree(library)
    with pytest.raises(InputError, match="cannot be read"):
        mpich.read_generic_tree(tmp_path / "missing.so")


@pytest.mark.parametrize("collective", [BCAST, ALLREDUCE, ALLTOALL])
@pytest.mark.parametrize("nbytes", [4, 65536, 1 << 20])
def test_candidates_can_be_forced_and_written(collective: Collective, nbytes: int) -> None:
    arms = mpi_libraries.mpich.candidates(collective, 4, nbytes)
    assert arms[0].is_default
    for arm in arms:
        forced = mpi_libraries.mpich.settings(collective, arm)
        if arm.is_default:
            assert not forced
        else:
            assert forced[f"MPIR_CVAR_{collective.upper()}_DEVICE_COLLECTIVE"] == 0
        rungs = (
            [(0, arm)]
            if mpi_libraries.mpich.preserves_operand_order(collective, arm)
            else [(0, AlgorithmChoice())]
        )
        ladders: dict[tuple[Collective | int | str, ...], Rungs] = {(collective, 4): rungs}
        if collective.is_reduction:
            ladders[collective, 4, "commutative"] = [(0, arm)]
        assert mpich.emit(table_of(ladders), GENERIC)


def test_mvapich_has_rules_by_ranks_per_node() -> None:
    table = TuningTable(TABLE.cluster, "mvapich 4.0", TABLE.rules)
    text = mpich.emit(table, DENSE)
    tree = mpich.parse(text, "mvapich 4.0")
    assert mpich.check(table, text, DENSE) == []

    def found(p: int, nbytes: int, ppn: int) -> str:
        return mpich.decide(tree, BCAST, CselCall(p, nbytes, ppn=ppn)).name.partition("intra_")[2]

    assert [found(4, n, ppn) for n in (1023, 1024) for ppn in (1, 2)] == [
        "binomial",
        "osu_pipelined",
        "pipelined_tree",
        "pipelined_tree",
    ]
    assert [found(3, 4096, ppn) for ppn in (1, 2)] == ["binomial", "osu_pipelined"]
    moved = text.replace("comm_avg_ppn<=1", "comm_avg_ppn<=2", 1)
    assert moved != text
    assert mpich.check(table, moved, DENSE)


def test_earlier_releases_know_less() -> None:
    """MPICH 4.1 would abort when it starts."""
    for library in ("mpich 4.1.2", "mpich 5.0.2"):
        table = TuningTable(TABLE.cluster, library, TABLE.rules)
        assert mpich.check(table, mpich.emit(table, GENERIC), GENERIC) == []
    with pytest.raises(InputError, match=r"mpich 4\.1\.2 does not know 'comm_avg_ppn=any'"):
        mpich.parse(json.dumps(DENSE), "mpich 4.1.2")
    with pytest.raises(InputError, match=r"does not know 'any' and would abort"):
        mpich.parse(json.dumps({"collective=bcast": {"any": SMP}}), "mpich 4.1")
    multiplying: Node = {
        "collective=allreduce": {"algorithm=MPIR_Allreduce_intra_recursive_multiplying": {}}
    }
    with pytest.raises(InputError, match=r"recursive_multiplying' and .* of MPICH 4\.3"):
        mpich.parse(json.dumps(multiplying), "mpich 4.2.3")
    assert mpich.parse(json.dumps(multiplying), "mpich 4.3.0")
    assert mpich.parse(json.dumps(DENSE), "mpich 4.2.0")


@pytest.mark.representative("mvp_generic")
@pytest.mark.parametrize("name", ["mvp_generic", "tacc_vista"])
def test_tables_of_mvapich_are_grown_into(shared: Path, name: str) -> None:
    generic = mpich.parse((shared / f"data/mvapich_csel/{name}.json").read_text(), "mvapich 4.0")
    table = TuningTable(TABLE.cluster, "mvapich 4.0", TABLE.rules)
    assert mpich.check(table, mpich.emit(table, generic), generic) == []


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(InputError, match="nested deeper than"):
        mpich.parse('{"collective=bcast":' * 100_000)
    with pytest.raises(InputError):
        mpich.parse('{"collective=bcast":' * 900 + "{}" + "}" * 900)
