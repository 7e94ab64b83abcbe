"""The file of MPICH's device layer: which calls it hands to the MPIR layer, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.ladders import CLUSTER, table_of
from tests.support.trees import BELOW, GENERIC, SHARED, Node, composition
from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable, write_table
from tuner.formats import mpich
from tuner.formats.mpich import CselCall
from tuner.formats.registry import FORMATS

BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE
TABLE = table_of(
    {
        (BCAST, 4): [
            (0, AlgorithmChoice()),
            (1024, AlgorithmChoice("binomial")),
            (9000, AlgorithmChoice()),
        ],
        (ALLREDUCE, 4): [(0, AlgorithmChoice()), (1024, AlgorithmChoice("recursive_doubling"))],
        (ALLREDUCE, 4, "commutative"): [
            (0, AlgorithmChoice("rabenseifner")),
            (1024, AlgorithmChoice()),
        ],
    },
    library="mpich 5.0.2",
)
TEXT = mpich.device.emit(TABLE, BELOW)


def answered(collective: Collective, call: CselCall) -> str:
    """Return the composition that answers a call under the file of TABLE."""
    tree = mpich.parse(TEXT, layer=mpich.DEVICE)
    return mpich.decide(tree, collective, call).name.rpartition("_")[2]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (CselCall(4, 1023, ppn=4), "alpha"),
        (CselCall(4, 1024, ppn=4), "gamma"),
        (CselCall(4, 8999, ppn=2), "gamma"),
        (CselCall(4, 9000, ppn=2), "alpha"),
        (CselCall(3, 1024, ppn=3), "alpha"),
        (CselCall(5, 1024, ppn=5), "alpha"),
        (CselCall(4, 9000, hierarchy="flat"), "gamma"),
    ],
)
def test_a_broadcast_with_a_rule_is_handed_on(call: CselCall, name: str) -> None:
    assert answered(BCAST, call) == name


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (CselCall(4, 1023, ppn=4), "beta"),
        (CselCall(4, 1023, ppn=2), "beta"),
        (CselCall(4, 8, ppn=4), "gamma"),  # two elements are too few for Rabenseifner
        (CselCall(4, 1023, built_in=False, ppn=4), "gamma"),
        (CselCall(4, 1023, commutative=False, ppn=4), "gamma"),
        (CselCall(4, 1024, commutative=False, ppn=4), "beta"),
        (CselCall(4, 1024, ppn=4), "gamma"),
        (CselCall(4, 1024, ppn=2), "alpha"),
        (CselCall(3, 64, ppn=3), "gamma"),
    ],
)
def test_what_the_guards_of_a_rule_exclude_stays_with_the_device(call: CselCall, name: str) -> None:
    """Beta hands an allreduce on, gamma is shared memory."""
    assert answered(ALLREDUCE, call) == name


@pytest.mark.parametrize(("nodes", "kept"), [(1, "binomial"), (4, "ring")])
def test_rules_for_several_ranks_per_node_are_not_for_parts_of_communicators(
    nodes: int, kept: str
) -> None:
    """MPICH makes communicators of the ranks of a node, and of one rank on each: 4 of 4 x 2."""
    made = table_of({(BCAST, 4): [(0, AlgorithmChoice("scatter_allgather_ring"))]})
    rules = tuple(replace(r, key=replace(r.key, nodes=nodes, ppn=4 // nodes)) for r in made.rules)
    table = TuningTable(CLUSTER, "mpich 5.0.2", rules)
    tree = mpich.parse(mpich.emit(table, GENERIC))
    ran = [
        mpich.decide(tree, BCAST, CselCall(4, 64, hierarchy=kind)).name
        for kind in ("parent", "node", "node_roots", "flat")
    ]
    assert ran[0].endswith("scatter_ring_allgather")
    assert [name.endswith(kept) or name.endswith(f"{kept}_allgather") for name in ran[1:]] == [
        True,
        True,
        True,
    ]


def test_each_call_that_is_handed_on_meets_its_rule_in_the_other_file() -> None:
    above = mpich.parse(mpich.emit(TABLE, GENERIC))
    leaf = mpich.decide(above, ALLREDUCE, CselCall(4, 1023, ppn=4))
    assert leaf == mpich.Leaf("MPIR_Allreduce_intra_reduce_scatter_allgather")


def test_collectives_without_rules_stay() -> None:
    only = table_of({(BCAST, 4): [(0, AlgorithmChoice("binomial"))]})
    tree = json.loads(mpich.device.emit(only, BELOW))
    for name in ("collective=allreduce", "collective=barrier"):
        assert tree[name] == BELOW[name]


GUARD = ("is_op_built_in=yes", "is_op_built_in=no")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("avg_msg_size<=1023", "avg_msg_size<=1024", "1024 bytes on 4 ranks"),
        ("Bcast_intra_composition_gamma", "Bcast_intra_composition_beta", "neither table nor lib"),
        (*GUARD, "allreduce of 1023 bytes on 4 ranks"),
    ],
)
def test_a_check_sees_what_was_changed(old: str, new: str, said: str) -> None:
    assert mpich.device.check(TABLE, TEXT, BELOW) == []
    text = TEXT.replace(new, "...").replace(old, new).replace("...", old)
    assert text != TEXT
    assert any(said in difference for difference in mpich.device.check(TABLE, text, BELOW))


def test_a_check_tells_ranks_of_one_node_from_others() -> None:
    tree = json.loads(TEXT)
    for_four = tree["collective=allreduce"]["comm_type=intra"]["comm_size<=4"]
    for_four["comm_hierarchy=parent"]["comm_size=node_comm_size"] = composition(
        "Allreduce", "gamma"
    )
    found = mpich.device.check(TABLE, json.dumps(tree), BELOW)
    assert found
    assert all("4 ranks per node" in difference for difference in found)


@pytest.mark.parametrize(
    ("text", "layer", "said"),
    [
        (TEXT, mpich.MPIR, r"is a file for the device layer \(MPIR_CVAR_CH4_COLL_.*the MPIR layer"),
        (json.dumps(GENERIC), mpich.DEVICE, "is a file for the MPIR layer .* the device layer"),
        (json.dumps(SHARED), mpich.DEVICE, "is a file for the shared memory layer .*POSIX"),
        (
            json.dumps({"collective=bcast": composition("Allreduce", "beta")}),
            mpich.DEVICE,
            "is not an algorithm of 'bcast' in this layer",
        ),
    ],
)
def test_files_of_another_layer_are_refused(text: str, layer: mpich.Layer, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        mpich.parse(text, layer=layer)
    assert "\n" not in str(refused.value)


def test_files_of_earlier_releases_lack_algorithms() -> None:
    """They abort when MPICH 4.0 starts; a table's other rules are kept."""
    rungs = [(0, AlgorithmChoice("ring")), (65536, AlgorithmChoice("rabenseifner"))]
    rules = table_of({(ALLREDUCE, 4, "commutative"): rungs}).rules
    for library, lost in (("mpich 4.0.3", 1), ("mpich 4.1.2", 0)):
        table = TuningTable(CLUSTER, library, rules)
        kept, left = mpich.drop_inexpressible(table)
        assert len(left) == lost
        assert mpich.emit(kept, GENERIC)
        if lost:
            with pytest.raises(InputError, match=r"'ring': tuning files of mpich 4\.0\.3 lack th"):
                mpich.emit(table, GENERIC)
    bcast: Node = {"collective=bcast": composition("Bcast", "delta")}
    with pytest.raises(InputError, match=r"composition_delta' and .* of MPICH 4\.3"):
        mpich.parse(json.dumps(bcast), "mpich 4.2.3", mpich.DEVICE)
    assert mpich.parse(json.dumps(bcast), "mpich 4.3.0", mpich.DEVICE)


def test_a_library_with_other_rules_of_its_own_is_refused() -> None:
    strange = {**BELOW, "collective=bcast": {"comm_hierarchy=any": composition("Bcast", "alpha")}}
    with pytest.raises(InputError, match="own rules for bcast have an unknown layout"):
        mpich.device.emit(TABLE, strange)


def test_both_files_are_exported_and_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, own = tmp_path / "t.json", {"mpich": GENERIC, "mpich-device": BELOW}
    write_table(TABLE, table)
    for form, tree in own.items():
        generic, file = tmp_path / f"{form}.own", tmp_path / f"{form}.json"
        generic.write_text(json.dumps(tree))
        words = ["--base-rules", str(generic)]
        assert (
            main(["table", "export", str(table), "--format", form, "--out", str(file), *words]) == 0
        )
        said = capsys.readouterr().out
        assert f"use it: {FORMATS[form].command_of(file)}\n(with the variable of the" in said
        assert main(["table", "check", str(file), "--table", str(table), *words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["format"] == form
    assert "`" not in said
    other = ["--format", "mpich", "--base-rules", str(tmp_path / "mpich.own")]
    assert main(["table", "check", str(file), "--table", str(table), *other]) == 1
    assert "this is a file for the device layer" in " ".join(capsys.readouterr().err.split())


def test_exporting_one_file_says_that_it_needs_the_other() -> None:
    assert "the variable of the file `mpich-device`" in FORMATS["mpich"].usage
    assert "the variable of the file `mpich`" in FORMATS["mpich-device"].usage
