"""Rules files that users wrote are explained line by line."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.support.trees import BINOMIAL, DOUBLING, GENERIC, RABENSEIFNER, Node, composition
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.formats.file_rules import AskedCall, FileRules, deciding_rule, unreached
from tuner.formats.registry import recognise_format

ALLREDUCE, ALLGATHER, BCAST = Collective.ALLREDUCE, Collective.ALLGATHER, Collective.BCAST
REORDERS = (
    "is for commutative operators: with another one Open MPI gives wrong results or runs a slower"
    " algorithm"
)


def read(text: str, library: str = "") -> FileRules:
    form = recognise_format(text, library.partition(" ")[0])
    return form.read(text, library or form.libraries[0])


def cautions(text: str, library: str = "") -> list[tuple[int, str]]:
    found = read(text, library)
    return sorted((each.line, each.text) for each in (*found.cautions, *unreached(found.rules)))


def decided(text: str, call: AskedCall, library: str = "") -> tuple[int, str]:
    rule = deciding_rule(read(text, library).rules, call)
    return (rule.line, rule.runs) if rule else (0, "")


def test_the_walk_of_open_mpi_through_unsorted_communicators_is_followed() -> None:
    text = "1 # one\n2 # allreduce\n2\n16\n1\n0 2 0 0\n5\n1\n0 1 0 0\n"
    found = [decided(text, AskedCall(ALLREDUCE, p, nbytes=8)) for p in (4, 15, 16, 99)]
    assert found == [(6, "nonoverlapping, algorithm 2")] * 2 + [(9, "linear, algorithm 1")] * 2
    assert cautions(text) == [(7, "communicator size 5 follows 16; sizes must ascend")]


def test_unsorted_messages_leave_rows_without_effect() -> None:
    text = "1\n7\n1\n0\n3\n0 1 0 0\n8192 6 0 0\n1024 7 0 0\n"
    assert cautions(text) == [
        (7, "no call reaches this rule"),
        (
            8,
            "message size 1024 follows 8192; sizes must ascend, as Open MPI looks no further than"
            " the first larger one",
        ),
    ]
    assert decided(text, AskedCall(BCAST, 4, nbytes=2048))[0] == 6
    assert decided(text, AskedCall(BCAST, 4, nbytes=8192))[0] == 8


def test_the_only_format_of_a_library_is_taken_for_any_file() -> None:
    assert recognise_format("anything\n", "nccl").name == "nccl"
    assert recognise_format("BAD=1\n", "intelmpi").name == "intelmpi"


def test_blank_lines_and_comments_may_stand_before_the_first_number() -> None:
    text = "\n" * 40 + "# a\n \t\n  # b\n1 # one\n2\n1\n0\n1\n0 3 0 0\n"
    assert recognise_format(text).name == "openmpi"
    assert recognise_format("rule-file-version-2\n" + text).name == "openmpi"


@pytest.mark.parametrize(
    ("library", "said"),
    [
        ("openmpi 4.1.4", [(6, "algorithm 7 does not exist, the largest is 6")]),
        ("openmpi 5.0.9", [(6, "sparbit gives wrong results for calls in place")]),
        ("openmpi", [(6, "sparbit gives wrong results for calls in place")]),
    ],
)
def test_an_algorithm_that_a_version_lacks_is_named(
    library: str, said: list[tuple[int, str]]
) -> None:
    assert cautions("1\n0\n1\n0\n1\n0 7 0 0\n", library) == said


def test_version_six_shifts_the_communicators_of_classic_files() -> None:
    text = "1\n7\n3\n2\n1\n0 1 0 0\n4\n1\n0 6 0 0\n8\n1\n0 3 0 0\n"
    found = [decided(text, AskedCall(BCAST, p, nbytes=8), "openmpi 6.0") for p in (1, 2, 3, 4, 8)]
    assert [line for line, _ in found] == [6, 9, 9, 12, 12]
    assert (
        "takes each size of communicators for the next one" in cautions(text, "openmpi 6.0")[0][1]
    )
    assert decided(text, AskedCall(BCAST, 4, nbytes=8))[0] == 9


def test_fences_need_no_number_of_ranks_and_no_call() -> None:
    text = "1\n7\n2\n0\n1\n0 0 0 0\n1\n1\n0 6 0 0\n"
    assert cautions(text) == []  # of a fence that is below one rank
    assert decided(text, AskedCall(BCAST, nbytes=8)) == (9, "binomial, algorithm 6")


def test_dangerous_rows_of_open_mpi_are_named() -> None:
    text = (
        "rule-file-version-2\n3\n"
        "2\n1\n0\n1\n0 4 0 0\n"  # allreduce by ring
        "15\n1\n0\n2\n0 1 0 0\n4096 2 0 0\n"  # scatter by size
        "0\n1\n0\n1\n0 6 0 0\n"  # allgather of two ranks on any number
    )
    assert cautions(text, "openmpi 4.1.8") == [
        (7, f"ring {REORDERS}"),
        (
            12,
            "rules for scatter that depend on the size make programs hang, whose ranks may see"
            " different sizes: use one algorithm for all sizes",
        ),
        (18, "two_proc is refused by 3 ranks: such calls fail"),
    ]


def test_rows_by_size_of_calls_that_have_none_are_without_effect() -> None:
    text = "1\n6\n1\n0\n2\n0 4 0 0\n1024 3 0 0\n"
    assert cautions(text) == [(7, "no call reaches this rule")]
    assert decided(text, AskedCall(Collective.BARRIER, 4)) == (6, "dissemination, algorithm 4")


def test_collectives_and_algorithms_without_a_name_here_are_explained_by_number() -> None:
    text = "2\n12\n1\n0\n1\n0 3 0 0\n10\n1\n0\n1\n0 1 0 0\n"
    assert cautions(text) == [(7, "collective 10 is unknown")]
    call = AskedCall(Collective.REDUCE_SCATTER, 4, nbytes=8)
    assert decided(text, call) == (6, "algorithm 3")


def json_rules(*entries: Any, collective: str = "allreduce") -> str:
    head = '{"rule_file_version": 3, "module": "tuned", "collectives": {\n'
    return head + f'"{collective}": [\n' + ",\n".join(map(json.dumps, entries)) + "\n]}}\n"


def test_json_rules_are_explained_with_their_lines() -> None:
    text = (
        '{"rule_file_version": 3, "module": "tuned", "collectives": {"allreduce": [\n'
        '{"comm_size_max": 8, "rules": [\n{"msg_size_max": 99, "alg": 3},\n'
        '{"msg_size_max": 50, "alg": "basic_linear"},\n{"alg": "swing"}]},\n'
        '{"comm_rank_distribution": "single-node", "rules": [{"alg": "allgather_reduce"}]}\n]}}'
    )
    assert cautions(text) == [
        (4, "no call reaches this rule: its calls are decided by line 3"),
        (
            5,
            "allreduce, entry 0, rule 2: algorithm swing of allreduce is not known;"
            " Open MPI leaves out a rule whose algorithm it does not know",
        ),
    ]
    assert decided(text, AskedCall(ALLREDUCE, 8, nbytes=9)) == (
        3,
        "recursive_doubling, algorithm 3",
    )
    rule = deciding_rule(read(text).rules, AskedCall(ALLREDUCE, 8, nbytes=9))
    assert rule is not None
    assert rule.path == "allreduce, entry 0, rule 0: ranks 1 to 8, bytes 0 to 99"
    left = deciding_rule(read(text).rules, AskedCall(ALLREDUCE, 8, nbytes=100))
    assert left is not None
    assert (left.runs, left.is_written) == ("", False)
    assert decided(text, AskedCall(ALLREDUCE, 9, 1, 9, 100)) == (6, "algorithm 7")
    assert decided(text, AskedCall(ALLREDUCE, 9, 3, 3, 100)) == (0, "")


def test_json_rules_have_no_effect_in_earlier_releases() -> None:
    text = json_rules({"rules": [{"alg": 3}]})
    assert cautions(text, "openmpi 5.0.9") == [(1, "Open MPI 5.0.9 silently ignores JSON rules")]
    assert decided(text, AskedCall(ALLREDUCE, 4, 1, 4, 8), "openmpi 5.0.9") == (0, "")


def test_a_file_that_a_release_does_not_read_has_no_rules() -> None:
    limited = "rule-file-version-2\n1\n2\n1\n0\n1\n0 3 0 0 0\n"
    call = AskedCall(ALLREDUCE, 4, 1, 4, 8)
    assert decided(limited, call, "openmpi 4.1.8")[0] == 7
    assert decided(limited, call, "openmpi 4.1.4") == (0, "")
    assert cautions(limited, "openmpi 4.1.4") == [
        (1, "Open MPI 4.1.4 reads no files of version 2 and drops this one")
    ]
    assert read(HAN, "openmpi 4.1.4").rules == []


def test_json_rules_may_be_for_collectives_that_have_no_table() -> None:
    text = json_rules({"rules": [{"alg": 9}]}, collective="exscan")
    assert cautions(text)[0] == (
        3,
        "exscan, entry 0, rule 0: algorithm 9 of exscan is not known; Open MPI leaves out a rule"
        " whose algorithm it does not know",
    )
    assert cautions(json_rules({"rules": [{"alg": 0}]}))[0] == (
        3,
        "allreduce, entry 0, rule 0: algorithm 0 of allreduce leaves these calls to Open MPI",
    )


HAN = """2 # collectives
allreduce
2 # levels
inter_node
1
1
1
0 libnbc
global_communicator
3
1
1
0 han
64
2
0 tuned
65536 basic
32
1
0 han
alltoall
1
2
1
1
1
0 tuned
"""


def test_the_file_of_han_is_explained_as_its_search_from_the_end_finds_rules() -> None:
    assert cautions(HAN) == [
        (4, "not explained: inter_node is for communicators inside han"),
        (16, "no call reaches this rule: its calls are decided by line 20"),
        (17, "no call reaches this rule: its calls are decided by line 20"),
        (18, "32 should be from 65 to 2147483647"),
        (23, "han has no alltoall: these rules have no effect"),
    ]
    assert decided(HAN, AskedCall(ALLREDUCE, 64, 2, 32, 8)) == (20, "component han")
    assert decided(HAN, AskedCall(ALLREDUCE, 64, 1, 64, 8)) == (0, "")
    sorted_text = HAN.replace("\n32\n", "\n128\n")
    assert decided(sorted_text, AskedCall(ALLREDUCE, 64, 2, 32, 8)) == (16, "component tuned")


def csel(**branches: Any) -> str:
    barrier: Node = {"collective=barrier": {"algorithm=MPIR_Barrier_allcomm_nb": {}}}
    tree = GENERIC | barrier | {f"collective={name}": node for name, node in branches.items()}
    return json.dumps(tree, indent=1)


def own_cautions(text: str, library: str = "mpich") -> list[str]:
    """Return what is said, but that the small tree lacks most collectives."""
    return [text for line, text in cautions(text, library) if line > 1]


def test_a_composition_for_one_node_on_several_is_dangerous() -> None:
    danger = (
        "MPIDI_Allreduce_intra_composition_gamma is for one node, and calls on several reach it:"
        " put comm_size=node_comm_size above it"
    )
    gamma, beta = composition("Allreduce", "gamma"), composition("Allreduce", "beta")
    split = {"comm_size=node_comm_size": gamma, "comm_size=any": beta}
    tree = {"collective=allreduce": {"comm_type=intra": split}}
    assert cautions(json.dumps(tree, indent=1)) == []
    split["comm_size=any"] = gamma
    assert cautions(json.dumps(tree, indent=1)) == [(8, danger)]


def test_a_leaf_of_mpich_below_conditions_that_exclude_one_another_is_without_effect() -> None:
    sizes = {"avg_msg_size<=4096": BINOMIAL, "avg_msg_size<=1024": BINOMIAL}
    text = csel(bcast={"comm_type=intra": {**sizes, "avg_msg_size=any": BINOMIAL}})
    assert own_cautions(text) == ["no call reaches this rule"]
    line = text.split("\n").index('   "avg_msg_size<=1024": {') + 2
    assert (line, "no call reaches this rule") in cautions(text)
    assert decided(text, AskedCall(BCAST, 4, nbytes=1024))[0] == line - 3


def test_mpich_takes_a_size_below_for_one_up_to_it_under_conditions_on_the_call() -> None:
    sizes = {"comm_size<8": DOUBLING, "comm_size=any": RABENSEIFNER}
    early = csel(allreduce={"comm_type=intra": sizes})
    late = csel(allreduce={"comm_type=intra": {"is_commutative=yes": sizes}})
    doubling, rabenseifner = (
        key.partition("=")[2] for leaf in (DOUBLING, RABENSEIFNER) for key in leaf
    )
    for text, p, runs in (
        (early, 7, doubling),
        (early, 8, rabenseifner),
        (late, 8, doubling),
        (late, 9, rabenseifner),
    ):
        assert decided(text, AskedCall(ALLREDUCE, p))[1] == runs


def test_mpich_counts_elements_of_a_gather_and_bytes_of_an_allgather() -> None:
    for name, last in (("gather", 400), ("allgather", 100)):
        few: Node = {f"algorithm=MPIR_{name.capitalize()}_intra_few": {}}
        many: Node = {f"algorithm=MPIR_{name.capitalize()}_intra_many": {}}
        sizes = {"total_msg_size<=100": few, "total_msg_size=any": many}
        text = csel(**{name: {"comm_type=intra": sizes}})
        ends = [
            decided(text, AskedCall(Collective(name), 2, nbytes=n))[1] for n in (last, last + 4)
        ]
        assert [runs.rpartition("_")[2] for runs in ends] == ["few", "many"]


def test_a_branch_after_the_last_one_of_mpich_is_without_effect() -> None:
    after = {"any": {"avg_msg_size<=9": BINOMIAL, "avg_msg_size=any": BINOMIAL}}
    text = csel(bcast={"comm_type=intra": {**after, "comm_size=any": BINOMIAL}})
    assert own_cautions(text) == ["no call reaches this rule"]
    lost = json.dumps({"collective=bcast": {"any": {"comm_type=inter": BINOMIAL}, "x": 0}})
    lost = lost.replace('"x": 0', '"comm_size=any": ' + json.dumps(BINOMIAL))
    assert decided(lost, AskedCall(BCAST, 4, nbytes=8)) == (0, "")


def test_algorithms_of_mpich_want_their_conditions_above_them() -> None:
    ring: Node = {"algorithm=MPIR_Allreduce_intra_ring": {}}
    said = (
        "MPIR_Allreduce_intra_ring is for calls with is_commutative=yes, and others reach it, which"
        " may get wrong results or end the program"
    )
    split = {"is_commutative=yes": ring, "is_commutative=no": DOUBLING}
    assert own_cautions(csel(allreduce={"comm_type=intra": split})) == []
    assert own_cautions(csel(allreduce={"comm_type=intra": ring})) == [said]
    built_in = {"is_op_built_in=yes": RABENSEIFNER, "is_op_built_in=no": DOUBLING}
    assert "is for calls with count>=pow2" in own_cautions(csel(allreduce=built_in))[0]


def test_algorithms_that_mpich_lacks_end_programs() -> None:
    text = csel(bcast={"comm_type=intra": {"algorithm=MPIR_Bcast_intra_binomal": {}}})
    assert own_cautions(text) == ["programs end in MPI_Init: MPICH has no MPIR_Bcast_intra_binomal"]
    assert own_cautions(text, "mvapich") == []
    tree = csel(bcast={"comm_type=intra": {"algorithm=MPIR_Bcast_intra_tree": {}}})
    assert own_cautions(tree, "mpich 4.0") == [
        "MPICH 4.0 ends the program: algorithm=MPIR_Bcast_intra_tree is of MPICH 4.1"
    ]
    assert "there are no rules for allgather, allgatherv, alltoallv" in cautions(tree)[0][1]


def test_variables_of_mpich_are_rules_for_all_calls() -> None:
    text = (
        "# mine\nexport MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=ring\n"
        "MPIR_CVAR_BCAST_INTRA_ALGORITHM='binomal'\nMPIR_CVAR_NOLOCAL=1\n"
    )
    ring = "ring is for calls with is_commutative=yes alone: by default MPICH decides the others"
    assert cautions(text) == [
        (2, f"{ring} itself"),
        (2, "the device layer may answer first: set MPIR_CVAR_DEVICE_COLLECTIVES=none, too"),
        (
            3,
            "MPICH has no binomal: it has binomial, scatter_recursive_doubling_allgather,"
            " scatter_ring_allgather, smp, tree, pipelined_tree",
        ),
        (4, "MPIR_CVAR_NOLOCAL is not explained: it forces no algorithm here"),
    ]
    assert decided(text, AskedCall(ALLREDUCE)) == (2, "ring")
    for more in ("MPIR_CVAR_DEVICE_COLLECTIVES=none", "MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE=0"):
        assert [line for line, _ in cautions(f"{text}{more}\n")] == [2, 3, 4]


def test_a_variable_of_mpich_is_for_the_calls_that_its_algorithm_serves() -> None:
    text = (
        "export MPIR_CVAR_DEVICE_COLLECTIVES=none\n"
        "export MPIR_CVAR_ALLGATHER_INTRA_ALGORITHM=recursive_doubling\n"
    )
    assert [decided(text, AskedCall(ALLGATHER, p))[0] for p in (3, 4)] == [0, 2]
    said = "recursive_doubling is for calls with comm_size=pow2 alone: by default MPICH decides the"
    assert cautions(text) == [(2, f"{said} others itself")]


@pytest.mark.parametrize(
    ("later", "said"),
    [
        ("unset NAME", []),
        ("export NAME=auto", []),
        ("export NAME=rong", ["MPICH has no rong: it has"]),
        ("setenv NAME k_brucks", []),
    ],
)
def test_the_last_line_for_a_variable_of_mpich_counts(later: str, said: list[str]) -> None:
    name = "MPIR_CVAR_ALLGATHER_INTRA_ALGORITHM"
    text = f"{name}=ring\nMPIR_CVAR_DEVICE_COLLECTIVES=none\n{later.replace('NAME', name)}\n"
    runs = decided(text, AskedCall(ALLGATHER, 4))
    assert runs == ((3, "k_brucks") if "k_brucks" in later else (0, ""))
    again, *others = cautions(text)
    assert again == (1, f"{name} is set again in line 3, which counts")
    assert [told.partition(" brucks")[0] for _, told in others] == said


def test_a_variable_of_no_collective_is_no_rule() -> None:
    found = read("MPIR_CVAR_FOO_INTRA_ALGORITHM=bar\n")
    assert found.rules == []
    said = "MPIR_CVAR_FOO_INTRA_ALGORITHM is not explained: algorithms are known here of allgather"
    assert found.cautions[0].text.startswith(said)


def test_variables_of_intel_mpi_are_read_from_any_shell() -> None:
    text = (
        'export I_MPI_ADJUST_ALLREDUCE="5:0-1023;1"\nsetenv I_MPI_ADJUST_ALLGATHER "2:0-7;3"\n'
        "I_MPI_FABRICS=shm\nI_MPI_ADJUST_ALLREDUCE=7\nunset I_MPI_ADJUST_BCAST\n"
    )
    assert cautions(text) == [
        (1, "I_MPI_ADJUST_ALLREDUCE is set again in line 4, which counts"),
        (3, "I_MPI_FABRICS is not explained: only variables of rules are"),
    ]
    assert decided(text, AskedCall(ALLREDUCE, 8, nbytes=8)) == (4, "preset_7, number 7")
    assert decided(text, AskedCall(ALLGATHER, 8, nbytes=63)) == (2, "preset_2, number 2")
    assert decided(text, AskedCall(ALLGATHER, 8, nbytes=64)) == (2, "preset_3, number 3")
    with pytest.raises(InputError, match="line 1: I_MPI_ADJUST_BCAST: there is no preset 99"):
        read("I_MPI_ADJUST_BCAST=99\n")
    with pytest.raises(InputError, match="line 1: 'mpirun' is not NAME=VALUE"):
        read("mpirun -genv I_MPI_ADJUST_BCAST 1\n", "intelmpi")


@pytest.mark.parametrize(
    ("value", "nbytes", "runs", "said"),
    [
        ("1:0-1024;2:1025-4096", 8192, 2, "the last entry '2:1025-4096' takes all larger calls"),
        ("2:1025-4096", 64, 2, "'2:1025-4096' should begin at 0: Intel MPI looks at the ends"),
        ("1:0-1024;2:2048-4096;3", 1500, 2, "'2:2048-4096' should begin at 1025"),
        ("1:0-1024;2:0-512;3", 2048, 3, "no call reaches this rule"),
    ],
    ids=["bounded last entry", "no entry from 0 on", "gap", "end below an earlier one"],
)
def test_bounds_that_do_not_count_for_intel_mpi_are_explained(
    value: str, nbytes: int, runs: int, said: str
) -> None:
    text = f"I_MPI_ADJUST_ALLREDUCE={value}\n"
    asked = AskedCall(ALLREDUCE, 8, nbytes=nbytes)
    assert decided(text, asked) == (1, f"preset_{runs}, number {runs}")
    assert any(said in caution for _, caution in cautions(text)), cautions(text)


def test_bounds_that_do_not_count_for_mvapich2_are_explained() -> None:
    text = "MV2_INTER_ALLREDUCE_TUNING=1:0-1023,2:2048-4095\n"
    asked = AskedCall(ALLREDUCE, 8, nbytes=1 << 20)
    assert decided(text, asked)[1].endswith("number 2")
    assert [said.partition(": ")[2] for _, said in cautions(text)] == [
        "'2:2048-4095' should begin at 1024: MVAPICH2 looks at the ends alone",
        "the last entry '2:2048-4095' takes all larger calls: end it in +",
    ]


def test_rows_of_nccl_are_read_as_the_plugin_does() -> None:
    text = (
        "# mine\nAllReduce,0,99,tree,ll,2,-1,-1\nallreduce,50,99,ring,ll,4,-1,-1\n"
        "allreduce,100,199,rong,simple,-1,2,-1\nbroadcast,0,99,tree,simple,1,-1,-1\n"
        "allreduce,0,1\n"
    )
    found = cautions(text, "nccl")
    assert [line for line, _ in found] == [2, 3, 4, 4, 5, 6]
    assert "the plugin would take it for allreduce" in found[0][1]
    assert found[1][1] == "no call reaches this rule: its calls are decided by line 2"
    assert "NCCL has no broadcast by tree Simple: the row would be passed over" in found[4][1]
    assert decided(text, AskedCall(ALLREDUCE, nbytes=60), "nccl") == (2, "tree, LL, 2 channels")
    call = AskedCall(ALLREDUCE, 8, 2, 4, 100)
    assert decided(text, call, "nccl") == (4, "ring, Simple, 1 channel")
    assert decided(text, AskedCall(ALLREDUCE, 8, 1, 8, 100), "nccl") == (0, "")
    assert "on one channel" in read(text, "nccl").otherwise


def test_rccl_keeps_its_number_of_channels_where_a_row_names_none() -> None:
    text = "allreduce,0,99,ring,ll,-1,-1,-1\n"
    asked = AskedCall(ALLREDUCE, nbytes=8)
    assert decided(text, asked, "rccl") == (1, "ring, LL, channels as the library has them")
    assert decided(text, asked, "nccl") == (1, "ring, LL, 1 channel")
    assert cautions(text, "rccl") == []
    assert "-1 would mean one channel" in cautions(text, "nccl")[0][1]


def test_sections_of_ucc_replace_what_stands_outside() -> None:
    text = (
        "export UCC_TL_UCP_TUNE='allreduce:0-4k:@knomial#bcast:@knomial'\nUCC_TL_NCCL_TUNE=0\n"
        "[team_size=8 ppn=4]\nUCC_TL_UCP_TUNE=allreduce:4k-inf:[8]:@ring\n"
        "[vendor=intel team_size=9]\nUCC_TL_UCP_TUNE=bcast:@dbt\n"
    )
    assert cautions(text) == [
        (2, "UCC_TL_NCCL_TUNE is not explained: only UCC_TL_UCP_TUNE is"),
        (6, "the section is in force only on its processor, which is not asked about"),
    ]
    assert decided(text, AskedCall(ALLREDUCE, 8, 1, 8, 8)) == (1, "knomial, of tl/ucp")
    assert decided(text, AskedCall(ALLREDUCE, 8, 2, 4, 4096)) == (4, "ring, of tl/ucp")
    assert decided(text, AskedCall(ALLREDUCE, 8, 2, 4, 8))[1] == ""
    assert decided(text, AskedCall(ALLREDUCE, 4, 1, 4, 8)) == (1, "knomial, of tl/ucp")


def test_variables_of_ucc_are_read_from_any_shell() -> None:
    for text in (
        'setenv UCC_TL_UCP_TUNE "allreduce:0-4k:@knomial"\n',
        "  export  UCC_TL_UCP_TUNE='allreduce:0-4k:@knomial' \n",
    ):
        assert decided(text, AskedCall(ALLREDUCE, 8, 1, 8, 8)) == (1, "knomial, of tl/ucp")


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 5000,
        "#\n" * 5000 + "x",
        " " * 60_000 + "x",
        "\t\n" * 30_000,
        "MV2_" * 15_000,
        "MPIR_CVAR_" * 6_000,
        "[" + "=" * 60_000,
    ],
)
def test_a_long_file_of_another_kind_is_refused_at_once(text: str) -> None:
    before = time.process_time()
    with pytest.raises(InputError, match="expected a rules file in one of the formats"):
        recognise_format(text)
    assert (
        time.process_time() - before < 20
    )  # where a pattern tries again and again: minutes or for ever


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello\n",
        "{}",
        "a,b,c\n",
        "# size time\n4   9.38\n",
        "\n2 files were found\n",
        "see MV2_INTER_BCAST_TUNING\n",
        "the variable I_MPI_ADJUST_BCAST=1\n",
    ],
)
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected a rules file in one of the formats"):
        recognise_format(text)
