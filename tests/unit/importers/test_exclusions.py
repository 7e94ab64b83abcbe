"""Readers use or refuse what a file states: labels, lines other than rows, datatypes, operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.csv_files import HEAD
from tests.support.csv_files import ROW as TABLE_ROW
from tests.support.imb_files import END, block, whole
from tests.support.imb_files import ROW as IMB_ROW
from tests.support.nccl_tests_files import BEGIN, FOOT, rank, record, table
from tests.support.nccl_tests_files import ROW as NCCL_ROW
from tests.support.osu_files import ALLREDUCE
from tests.support.ucc_files import ROW as UCC_ROW
from tests.support.ucc_files import table as ucc_table
from tuner.base.errors import InputError
from tuner.importers import BenchmarkResult, UserMetadata, as_measurements, parse_results, read_all

TOLD = UserMetadata(p=8, nodes=2)
EXAMPLES = {  # reader -> a file of it, and what the user adds
    "osu": (ALLREDUCE, TOLD),
    "imb": (whole(block("Bcast", 2, IMB_ROW, IMB_ROW)), UserMetadata(ppn=2)),
    "nccl-tests": (table(NCCL_ROW, NCCL_ROW), UserMetadata()),
    "ucc_perftest": (ucc_table("Bcast", UCC_ROW, UCC_ROW), TOLD),
}


def values(readings: list[BenchmarkResult]) -> list[tuple[object, ...]]:
    return [(one.line, one.nbytes, one.samples, one.exclusion_reason) for one in readings]


@pytest.mark.parametrize(
    "label",
    [
        "[0] ",  # mpiexec -l of MPICH and Intel MPI
        "0: ",  # srun --label
        "  0: ",
        "[1,0]<stdout>:",  # Open MPI 4
        "[1,0]<stdout>: ",  # Open MPI 5, --output tag
        "[prterun-node7-4711@1,0][node7:4713]<stdout>: ",  # --output tag-detailed
        "Thu Nov 26 12:00:01 2026<stdout>: ",  # --output timestamp
        "2026-11-26T12:00:01.123456789Z stdout F ",  # a container's log
        "worker-3 | ",  # a job system
    ],
)
@pytest.mark.parametrize("form", EXAMPLES)
def test_labels_of_launchers_and_job_systems_do_no_harm(form: str, label: str) -> None:
    text, told = EXAMPLES[form]
    labelled = "".join(f"{label}{line}".rstrip(" ") + "\n" for line in text.splitlines())
    assert values(parse_results(labelled, metadata=told)) == values(
        parse_results(text, metadata=told)
    )


def test_labels_may_count_and_tell_the_time() -> None:
    text = "".join(
        f"12:00:{second:02d} [{second}] {line}\n"
        for second, line in enumerate(ALLREDUCE.splitlines(), 7)
    )
    assert [one.nbytes for one in parse_results(text, metadata=TOLD)] == [4, 1024]


@pytest.mark.parametrize("label", ["2. ", ". ", "4 ", "12.5 "])
def test_a_number_before_a_title_changes_no_row(label: str) -> None:
    barrier = f"{label}# OSU MPI Barrier Latency Test v5.6.2\n# Avg Latency(us)\n      1.23\n"
    with pytest.raises(InputError):
        parse_results(barrier, metadata=TOLD)


def test_a_second_launch_with_another_label_is_refused() -> None:
    text = "".join(
        f"pod-{name} | {line}\n" for name in "ab" for line in ALLREDUCE.splitlines() if line
    )
    with pytest.raises(InputError, match="line 5: a title with another label than the first"):
        parse_results(text, metadata=TOLD)


LOG = "h:1:2 [0] NCCL INFO Collective: AllReduce"


@pytest.mark.parametrize("form", ["osu", "imb", "nccl-tests"])
@pytest.mark.parametrize("label", ["", "node7: "])
def test_a_log_may_name_a_collective(form: str, label: str, tmp_path: Path) -> None:
    """Such a line is a title in the output of ucc_perftest alone."""
    text, told = EXAMPLES[form]
    first, last = text.removesuffix("\n").rsplit("\n", 1)
    labelled = "".join(f"{label}{line}\n" for line in [*first.splitlines(), LOG, last])
    path = tmp_path / "results.txt"
    path.write_text(f"{LOG}\n{labelled}")
    readings, _ = read_all([path], metadata=told)
    plain = parse_results(text, metadata=told)
    assert [one.samples for one in readings] == [one.samples for one in plain]


def test_a_table_may_follow_the_name_of_a_collective() -> None:
    text = f"Collective: allgather\n{HEAD}\n{TABLE_ROW}\n"
    assert values(parse_results(text)) == values(parse_results(text.replace(":", "")))


def test_a_title_whose_label_does_not_repeat_is_named(tmp_path: Path) -> None:
    text = "".join(f"node7: {line}\n" for line in ucc_table().splitlines())
    path = tmp_path / "results.txt"
    path.write_text(f"{LOG}\n{text}")
    (reading,), notes = read_all([path], metadata=TOLD)
    assert reading.samples == (14.75e-6,)
    assert notes == [f"{path}: line 1: not used, a title whose label the next line lacks: {LOG!r}"]


def test_few_labels_are_tried(tmp_path: Path) -> None:
    path = tmp_path / "results.txt"
    titles = "".join(f"{'x' * n} # OSU MPI Latency Test v7\n" for n in range(150, 0, -1))
    path.write_text(titles + ALLREDUCE)
    assert len(read_all([path], metadata=TOLD)[1]) == 100


@pytest.mark.parametrize("label", ["1\u0661" * 9 + "x ", "a1 " * 60_000, "x "])
def test_labels_take_no_time(label: str) -> None:
    """Check that hostile labels are refused at once; without bounds one of them takes hours."""
    text = f"{label}{ALLREDUCE.strip()}\n".replace("\n", f"\n{label}") + "1" * 60 + " " * 900_000
    with pytest.raises(InputError):
        parse_results(text, metadata=TOLD)


@pytest.mark.parametrize(
    "line",
    [
        "node1:4001:4010 [0] NCCL INFO 1048576 Bytes -> Algo 1 proto 2 time 21.500000",
        "real 0m3.21s",
        "0.03user 0.01system 0:00.05elapsed 93%CPU (0avgtext+0avgdata 9000maxresident)k",
        "Run finished at 12:00:00 UTC",
        "Thu Nov 26 12:00:00 UTC 2026",
        "N/A of this",
    ],
)
@pytest.mark.parametrize("form", EXAMPLES)
def test_lines_between_rows_are_skipped_and_the_first_is_shown(
    form: str, line: str, tmp_path: Path
) -> None:
    text, told = EXAMPLES[form]
    lines = text.splitlines()
    row = next(n for n, content in enumerate(lines) if content.strip()[:1].isdecimal())
    path = tmp_path / "results.txt"
    path.write_text("\n".join([*lines[: row + 1], line, *lines[row + 1 :], ""]))
    readings, notes = read_all([path], metadata=told)
    plain = parse_results(text, metadata=told)
    assert [one.samples for one in readings] == [one.samples for one in plain]
    assert notes == [
        f"{path}: skipped 1 line among the rows, the first is line {row + 2}: {line!r}"
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (ALLREDUCE, UserMetadata(p=1, nodes=1)),
        (whole(block("Bcast", 1, IMB_ROW)), UserMetadata(ppn=1)),
        (table(NCCL_ROW, ranks=[rank(0, "node0")]), UserMetadata()),
        (f"{HEAD}\n{TABLE_ROW}\n".replace(",4,2,8,", ",1,1,1,"), UserMetadata()),
    ],
)
def test_a_call_on_one_rank_is_no_collective(text: str, told: UserMetadata) -> None:
    assert {one.exclusion_reason for one in parse_results(text, metadata=told)} == {"on one rank"}


def test_processes_that_ran_alone_are_no_collective() -> None:
    """Two programs without MPI each print ranks 0 and 1, and share the node."""
    twice = [rank(n, "node0") for n in (0, 0, 1, 1)]
    (reading,) = parse_results(table(NCCL_ROW, ranks=twice))
    assert "built without MPI" in reading.exclusion_reason


def kept(text: str, told: UserMetadata = TOLD) -> tuple[list[float], list[str]]:
    """Return the times that are used, and the reasons for leaving out the others."""
    readings = parse_results(text, metadata=told)
    reasons = sorted({one.exclusion_reason for one in readings} - {""})
    return [1e6 * one.samples[0] for one in readings if not one.exclusion_reason], reasons


def osu_table(*tables: tuple[str, float]) -> str:
    head = "# OSU MPI Allreduce Latency Test v7.4\n"
    return head + "".join(
        f"# Datatype: {name}.\n# Size       Avg Latency(us)\n4096   {time}\n"
        for name, time in tables
    )


def test_datatypes_are_not_samples_of_one_call() -> None:
    three = osu_table(("MPI_CHAR", 40), ("MPI_INT", 20), ("MPI_FLOAT", 10))
    assert kept(three) == (
        [10.0],
        ["of MPI_CHAR; float was measured too", "of MPI_INT; float was measured too"],
    )
    assert kept(osu_table(("MPI_CHAR", 40), ("MPI_INT", 20), ("MPI_INT", 21)))[0] == [20.0, 21.0]
    assert kept(osu_table(("MPI_CHAR", 40))) == ([40.0], [])


def test_names_of_operands_differ_between_benchmarks() -> None:
    """Floats and their sum are the same everywhere, and what only moves data has no operands."""
    head = "collective,nodes,ppn,size_bytes,time_us,dtype,op,gpu\n"
    same = "".join(
        f"allreduce,2,4,64,{time},{name},no\n"
        for time, name in enumerate(("float,sum", "MPI_FLOAT,MPI_SUM", "float32,", "FLOAT,SUM"), 1)
    )
    assert kept(head + same, UserMetadata())[1] == []
    moved = "bcast,2,4,64,1,char,,no\nbcast,2,4,64,2,byte,,no\n"
    assert kept(head + moved, UserMetadata())[1] == []


def test_operands_of_other_calls_do_not_matter() -> None:
    head = "collective,nodes,ppn,size_bytes,time_us,dtype,op,gpu\n"
    rows = (
        "allreduce,2,4,64,1,float,sum,no\nallreduce,2,4,64,2,bfloat16,sum,yes\n"
        "allreduce,2,4,128,3,double,sum,no\nallreduce,1,1,128,4,float,sum,no\n"
    )
    times, reasons = kept(head + rows, UserMetadata())
    assert times == pytest.approx([1.0, 2.0, 3.0])
    assert reasons == ["on one rank"]


def test_operands_are_compared_over_all_files(tmp_path: Path) -> None:
    for name, time in (("MPI_CHAR", 40), ("MPI_FLOAT", 10)):
        (tmp_path / f"{name}.txt").write_text(osu_table((name, time)))
    readings, _ = read_all(sorted(tmp_path.iterdir()), metadata=TOLD)
    assert [bool(one.exclusion_reason) for one in readings] == [True, False]
    found = as_measurements(readings, "openmpi 5.0.6", "here")
    assert found.provenance["operands"] == {"MPI_FLOAT": 1}


def test_operators_of_nccl_tests_are_not_samples_of_one_call() -> None:
    product = NCCL_ROW.replace("  sum", " prod").replace("20.50", "30.50")
    double = NCCL_ROW.replace(" float", "double").replace("20.50", "40.50")
    assert kept(table(NCCL_ROW, product, double), UserMetadata()) == (
        [20.5],
        ["of double sum; float was measured too", "of float prod; float was measured too"],
    )
    (reading,) = parse_results(str(record()).replace("'", '"'))
    assert reading.operands == "float sum"


def test_datatype_and_operator_of_imb_hold_for_its_reductions() -> None:
    head = (
        "#    Intel(R) MPI Benchmarks 2021.9, MPI-1 part\n"
        "# MPI_Datatype                   :   MPI_BYTE\n"
        "# MPI_Datatype for reductions    :   MPI_FLOAT\n"
        "# MPI_Op                         :   MPI_MAX\n"
    )
    text = head + block("Bcast", 2, IMB_ROW) + block("Allreduce", 2, IMB_ROW) + END
    readings = parse_results(text, metadata=UserMetadata(ppn=2))
    assert [one.operands for one in readings] == ["MPI_BYTE", "MPI_FLOAT MPI_MAX"]


def test_every_run_of_imb_has_its_own_operands_and_memory() -> None:
    runs = "".join(
        f"#    Intel(R) MPI Benchmarks 2021.9, MPI-1 part\n# {program} Allreduce\n"
        f"# MPI_Datatype for reductions    :   {datatype}\n{block('Allreduce', 2, IMB_ROW)}{END}"
        for program, datatype in (
            ("IMB-MPI1", "MPI_FLOAT"),
            ("IMB-MPI1-GPU -mem_alloc_type device", "MPI_DOUBLE"),
        )
    )
    readings = parse_results(runs, metadata=UserMetadata(ppn=2))
    assert [(one.operands, one.memory) for one in readings] == [
        ("MPI_FLOAT", "host"),
        ("MPI_DOUBLE", "cuda"),
    ]


def test_columns_of_a_table_name_datatype_and_operator() -> None:
    text = (
        "collective,nodes,ppn,size_bytes,time_us,dtype,op\n"
        "allreduce,2,4,64,5,double,sum\nallreduce,2,4,64,3,float,sum\n"
    )
    assert kept(text, UserMetadata()) == ([3.0], ["of double sum; float was measured too"])


def test_columns_that_are_not_used_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("collective,nodes,ppn,size_bytes,time_us,max_us,colour\nbcast,2,4,64,5,6,red\n")
    assert read_all([path])[1] == [f"{path}: line 1: columns not used: 'colour'"]


def test_a_run_of_old_nccl_tests_with_wrong_results_is_left_out() -> None:
    """They have no number of wrong values per row."""
    old = table(NCCL_ROW).replace("#wrong", " error")
    failed = old.replace("values : 0 OK", "values : 3 FAILED")
    assert failed != old
    good = old.partition(BEGIN)[2]
    assert kept(old, UserMetadata()) == ([20.5], [])
    assert kept(failed, UserMetadata()) == ([], ["the results of the run were wrong"])
    assert kept(failed + BEGIN + good, UserMetadata())[0] == [20.5]
    counted = table(NCCL_ROW).replace(FOOT, FOOT.replace("0 OK", "3 FAILED"))
    assert kept(counted, UserMetadata()) == ([20.5], [])


FOUR_OF_ONE = [rank(n, "node0") for n in range(4)]


def test_processes_whose_headers_follow_one_another_ran_alone() -> None:
    """Two programs without MPI of four GPUs each: headers, then tables, then footers."""
    one = table("ROW", ranks=FOUR_OF_ONE)
    head, foot = one.split("ROW\n")
    version = "NCCL version 2.18.3+cuda12.2\n"
    mixed = head + version + head + f"{NCCL_ROW}\n" * 2 + foot * 2
    assert {"built without MPI" in each.exclusion_reason for each in parse_results(mixed)} == {True}
    times, reasons = kept(head.partition("# nThread")[0] + table(NCCL_ROW) * 2, UserMetadata())
    assert (times, reasons) == ([20.5, 20.5], [])


def test_a_run_that_failed_before_another_does_it_no_harm() -> None:
    failed = table(NCCL_ROW, ranks=FOUR_OF_ONE).partition("#       size")[0]
    text = f"{failed}node0: Test NCCL failure common.cu:958\n{table(NCCL_ROW)}"
    assert kept(text, UserMetadata()) == ([20.5], [])


def test_a_row_after_the_end_of_its_run_is_refused() -> None:
    text = table(NCCL_ROW) + f"{NCCL_ROW}\n{FOOT}"
    with pytest.raises(InputError, match="line 17: a row after the end of its run"):
        parse_results(text)
    assert kept(table(NCCL_ROW) + "real 0m3.21s\n", UserMetadata())[1] == []


def test_results_of_an_unknown_datatype_are_not_mixed_with_others() -> None:
    head = "collective,nodes,ppn,size_bytes,time_us,dtype,op\n"
    both = "allreduce,2,4,64,5,,sum\nallreduce,2,4,64,3,float,sum\n"
    assert kept(head + both, UserMetadata()) == (
        [3.0],
        ["of a datatype that is not stated; float was measured too"],
    )
    alone = "allreduce,2,4,64,5,,sum\nbcast,2,4,64,3,float,\n"
    assert kept(head + alone, UserMetadata())[1] == []
