"""Tables with a row per result, and PICO's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.csv_files import HEAD, ITERATIONS, ROW, SUMMARIZED, SUMMARY
from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.importers import BenchmarkResult, RankCounts, UserMetadata, parse_results, read_results
from tuner.importers.algorithm_names import algorithm_name, library_name
from tuner.importers.csv_table import COLUMN_ALIASES, TIME_COLUMN_STEMS

SMALL = "collective,nodes,ppn,size_bytes,time_us\nbcast,2,4,64,5.25\n"


def only(text: str, told: UserMetadata | None = None) -> BenchmarkResult:
    (reading,) = parse_results(text, metadata=told)
    return reading


def complaint(text: str, told: UserMetadata | None = None, source: str = "t.csv") -> str:
    with pytest.raises(InputError) as refused:
        parse_results(text, metadata=told, source=source)
    return str(refused.value)


def test_the_names_of_columns_are_documented() -> None:
    text = (ROOT / "docs" / "reference" / "result-tables.md").read_text(encoding="utf-8")
    for name in (name for names in COLUMN_ALIASES.values() for name in names):
        assert f"`{name}`" in text
    for stem in TIME_COLUMN_STEMS:
        assert f"`{stem}_`" in text


def test_columns_say_what_they_are() -> None:
    reading = only(f"{HEAD}\n{ROW}\n")
    assert (reading.benchmark.kind, reading.benchmark.subject) == ("collective", "allgather")
    assert (reading.nbytes, reading.line) == (64, 2)
    assert reading.samples == pytest.approx((5.5e-6,))
    assert (reading.min_seconds, reading.max_seconds) == pytest.approx((4.5e-6, 6.5e-6))
    assert (reading.library, reading.cluster, reading.run) == ("openmpi 4.1.6", "leo", "r1")
    assert (reading.algorithm, reading.memory, reading.statistic) == ("ring", "host", "median_us")
    assert reading.rank_counts == RankCounts(8, 4, 2)


@pytest.mark.parametrize(
    ("unit", "seconds"), [("us", 5.25e-6), ("ms", 5.25e-3), ("s", 5.25), ("ns", 5.25e-9)]
)
def test_times_have_their_unit_in_the_name(unit: str, seconds: float) -> None:
    assert only(SMALL.replace("_us", f"_{unit}")).samples == pytest.approx((seconds,))


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_delimiters_comments_and_banners(delimiter: str) -> None:
    text = "The results, of today:\n\n" + SMALL.replace(",", delimiter) + "# the end\n"
    reading = only(text)
    assert (reading.line, reading.nbytes) == (4, 64)


def test_what_no_column_says_is_told_or_demanded() -> None:
    text = "size_bytes,algorithm,time_us\n64,2. chain,5.25\n"
    assert "add --ranks and --nodes" in complaint(text)
    assert "add --collective" in complaint(text, UserMetadata(p=4, nodes=2))
    reading = only(
        text, UserMetadata(p=4, nodes=2, collective="bcast", memory="cuda", algorithm="x")
    )
    assert (reading.benchmark.subject, reading.algorithm) == ("bcast", "chain")
    assert (reading.memory, reading.rank_counts) == ("cuda", RankCounts(4, 2, 2))
    assert "unknown collective 'sing'" in complaint(text, UserMetadata(collective="sing"))


def test_where_there_are_no_options_a_column_is_asked_for() -> None:
    """Of `tuner evaluate` and `tuner train`, which named options that they lack."""
    silent = UserMetadata(has_options=False)
    text = "size_bytes,algorithm,time_us\n64,2. chain,5.25\n"
    wanted = (
        "add columns p and nodes, or read it by `tuner import-results` with --ranks and --nodes"
    )
    assert complaint(text, silent).endswith(wanted)
    counted = "collective,ranks,size_bytes,time_us\nbcast,4,64,5.25\n"
    assert ": add a column nodes, or read it by" in complaint(counted, silent)
    placed = "nodes,ppn,size_bytes,time_us\n2,2,64,5.25\n"
    assert "which collective was measured: add a column collective" in complaint(placed, silent)


@pytest.mark.parametrize("form", ["auto", "csv"])
def test_a_table_without_times_says_which_column_it_lacks(form: str) -> None:
    text = "# mine\ncollective,nodes,ppn,algorithm,size_bytes,median\nbcast,2,2,chain,64,5.25\n"
    with pytest.raises(InputError, match="line 2: no column says the time: call it median_us"):
        parse_results(text, form)


def test_pairs_of_nodes_are_runs() -> None:
    head = "cluster,nccl_version,node_a,node_b,gpus_per_node,test,size_bytes,out_of_place_us"
    text = (
        f"{head}\nc,2.28.7,n1,n2,1,sendrecv_perf,64,5.25\nc,2.28.7,n1,n3,4,all_reduce_perf,64,7\n"
    )
    pair, eight = parse_results(text)
    assert (pair.benchmark.kind, pair.rank_counts, pair.run) == (
        "exchange",
        RankCounts(2, 2, 1),
        "n1 n2",
    )
    assert (eight.benchmark.subject, eight.rank_counts) == ("allreduce", RankCounts(8, 2, 4))
    assert (pair.library, pair.memory) == ("nccl 2.28.7", "cuda")


def test_barriers_are_calls_of_one_size_in_host_memory() -> None:
    row = ROW.replace("allgather", "MPI_Barrier").replace("host", "gpu")
    reading = only(f"{HEAD}\n{row}\n")
    assert (reading.benchmark.subject, reading.nbytes, reading.memory) == ("barrier", 4, "host")


def test_unknown_collectives_and_empty_times_are_read_all_the_same() -> None:
    assert only(SMALL.replace("bcast", "scan")).benchmark.kind == ""
    assert only(SMALL.replace("5.25", "")).exclusion_reason == "no time is told"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("5.25", "5,25", "line 2: 6 fields where the header names 5"),
        ("5.25", "1e300", "line 2: time_us cannot be '1e300', more than 1000000 s: correct it"),
        (",2,4,", ",1000000000000,1,", "1000000000000 nodes of 1 each: each is at most 2147483647"),
        ("size_bytes,", "time_us,", "line 1: two columns are called 'time_us': leave one of"),
        ("5.25", "fast", "line 2: time_us cannot be 'fast'"),
        ("5.25", "inf", "line 2: time_us cannot be 'inf'"),
        ("5.25", "nan", "line 2: time_us cannot be 'nan'"),
        (",64,", ",6.5,", "line 2: the size cannot be '6.5'"),
        (",64,", ",,", "line 2: the size cannot be ''"),
        (",2,4,", ",0,4,", "line 2: nodes cannot be '0'"),
        (",4,64", ",64", "line 2: 4 fields"),
        ("bcast,", '"bcast,', "line 2: not a row of a table"),
        ("bcast,2,4,64,5.25\n", "", "line 1: expected rows below the header"),
        ("size_bytes", "weight", "line 1: no column says the size"),
        ("time_us", "cost", "line 1: no column says the time"),
        ("5.25\n", "5.25", "line 2: cut off"),
        ("nodes,", "time_ms,", "line 1: the columns time_us and time_ms say the same time in two"),
    ],
)
def test_damage_is_refused_with_its_line(before: str, after: str, said: str) -> None:
    assert said in complaint(SMALL.replace(before, after, 1))


def test_ranks_must_be_nodes_times_ppn() -> None:
    wrong = f"{HEAD}\n{ROW}\n".replace(",8,", ",9,")
    said = "line 2: 9 ranks are not 4 nodes of 2 ranks each: correct "
    columns = f"{said}ranks or nodes or ppn in that row"
    assert complaint(wrong).endswith(columns)
    assert complaint(wrong, UserMetadata(has_options=False)).endswith(columns)
    told = (
        "line 2: 9 ranks are not 2 nodes of 4 ranks each: correct nodes or ppn in that row or"
        " --ranks"
    )
    assert complaint(SMALL, UserMetadata(p=9)).endswith(told)
    assert "line 2: the memory cannot be 'tape'" in complaint(
        f"{HEAD}\n{ROW}\n".replace(",no,", ",tape,")
    )


# ---- columns that name what another column tells


def test_metrics_of_pairs() -> None:
    head = "pairs,buffer,metric,size_bytes,value"
    text = f"{head}\n1,gpu,multi_lat_us,8,1.5\n4,cpu,mbw_MBps,1000,500\n4,cpu,mbw_MBps,1000,0\n"
    latency, burst, none = parse_results(text, metadata=UserMetadata(nodes=2))
    assert (latency.benchmark.kind, latency.rank_counts, latency.memory) == (
        "pingpong",
        RankCounts(2, 2, 1),
        "cuda",
    )
    assert latency.samples == pytest.approx((1.5e-6,))
    assert burst.samples == pytest.approx((64 * 4 * 1000 / 500e6,))
    assert (burst.rank_counts, burst.params) == (RankCounts(8, 2, 4), {"messages": 64})
    assert none.samples == ()
    assert "--nodes" in complaint(text)


def test_metrics_with_units_but_without_sizes() -> None:
    text = "metric,src,dst,value,unit\nlatency,0,1,2.5,us\nbidirectional_bandwidth,0,1,20,GB/s\n"
    latency, both = parse_results(text)
    assert latency.samples == pytest.approx((2.5e-6,))
    assert (both.bytes_per_second, both.samples) == (20e9, ())
    assert "bytes" in latency.exclusion_reason
    assert "line 2: 'parsec' is not a unit" in complaint(text.replace(",us", ",parsec"))
    assert "line 2: 'GB/s' is not a unit" in complaint(text.replace(",us", ",GB/s"))
    assert "neither a latency" in complaint(text.replace("latency", "colour"))


@pytest.mark.parametrize(
    ("value", "unit"),
    [
        ("50", "GB/s"),
        ("50", "GB/sec"),
        ("50", "GBps"),
        ("50", "GBPS"),
        ("50", "GB/S"),
        ("400", "Gbits/sec"),
        ("50000000", "KB/s"),
        ("400", "Gb/s"),
        ("400", "Gbps"),
        ("400", "Gbit/s"),
        ("400000", "Mb/s"),
        ("50000", "MB/s"),
        ("50000000", "kB/s"),
    ],
)
def test_bits_and_bytes_are_told_apart(value: str, unit: str) -> None:
    rows = (
        f"metric,size_bytes,value,unit,nodes\nwrite_bw,1048576,{value},{unit},2\n",
        f"metric,size_bytes,value,nodes\nwrite_bw_{unit},1048576,{value},2\n",
    )
    for text in rows if unit.endswith("ps") else rows[:1]:
        assert only(text).bytes_per_second == pytest.approx(50e9)
        assert only(text).rank_counts == RankCounts(2, 2, 1)


@pytest.mark.parametrize("unit", ["gb/s", "mbps", "gib/s", "mb/sec"])
def test_a_rate_of_bits_or_bytes_is_refused(unit: str) -> None:
    text = f"metric,size_bytes,value,unit,nodes\nwrite_bw,1048576,400,{unit},2\n"
    said = f"line 2: '{unit}' may count bits or bytes: write Gb/s for bits, GB/s for bytes"
    assert complaint(text).endswith(said)


@pytest.mark.parametrize(
    ("metric", "microseconds"), [("latency_MS", 1500.0), ("latency_us", 1.5), ("latency", 1.5)]
)
def test_units_of_times_have_any_case(metric: str, microseconds: float) -> None:
    text = f"metric,size_bytes,value,nodes\n{metric},8,1.5,2\n"
    assert only(text).samples == pytest.approx((1e-6 * microseconds,))


def test_a_smallest_latency_is_not_one_in_minutes() -> None:
    reading = only("metric,size_bytes,value,nodes\nlatency_min,8,70000,2\n")
    assert reading.exclusion_reason == "a min beside the typical value"


def test_a_latency_has_no_rate_as_its_unit() -> None:
    assert "'Gb/s' is not a unit" in complaint("metric,size_bytes,value\nlat_Gb/s,8,1\n")


def test_contradictions_about_one_pair_are_refused() -> None:
    head = "metric,size_bytes,value,unit,nodes,ranks,ppn\nlatency,8,1.5,us,"
    assert only(f"{head}2,2,1\n").rank_counts == RankCounts(2, 2, 1)
    for shape in ("2,8,4", "2,2,2", "4,2,1"):
        assert "line 2: one pair is of 2 ranks on 1 or 2 nodes" in complaint(f"{head}{shape}\n")


def test_nodes_of_messages_are_in_a_column_or_said() -> None:
    text = "metric,size_bytes,value,unit,nodes\nlatency,8,1.5,us,1\n"
    assert only(text).rank_counts == RankCounts(2, 1, 2)
    assert "--nodes says 2" in complaint(text, UserMetadata(nodes=2))


def test_expressions_with_their_library() -> None:
    head = "expression,size_bytes,column,value"
    text = (
        f"{head}\nstats(lat_impi),8,median,1.5\nstats(lat_impi),8,std,.1\nbw_mean_all,8,MPICH,4\n"
    )
    median, spread, rate = parse_results(text, metadata=UserMetadata(nodes=2))
    assert (median.library, median.benchmark.kind, median.exclusion_reason) == (
        "impi",
        "pingpong",
        "",
    )
    assert (spread.samples, spread.exclusion_reason) == ((), "a std beside the typical value")
    assert (rate.library, rate.benchmark.kind) == ("mpich", "burst")


# ---- names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("default_ompi", "default"),
        ("default-default", "default"),
        ("tuned", "default"),
        ("", "default"),
        ("ring_mpich", "ring"),
        ("ring_over", "ring_over"),
        ("4. split binary tree", "split_binary"),
        ("default-recursive-doubling", "recursive_doubling"),
        ("3. Reduce + Bcast", "reduce_bcast"),
        ("0. ignore", "ignore"),
        ("环", "环"),
        ("Élan 环", "élan_环"),
        ("कड़ी", "कड़ी"),
        ("2. 链_ompi", "链"),
        ("2.", "2."),
    ],
)
def test_one_name_for_one_algorithm(text: str, name: str) -> None:
    assert algorithm_name(text) == name


NAMED = "collective,nodes,ppn,algorithm,size_bytes,time_us\n"


def named(*names: str) -> str:
    return NAMED + "".join(f'bcast,2,1,"{name}",64,5\n' for name in names)


def test_names_are_told_apart_in_any_order_and_in_all_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for order in (("ring", "4. ring", "5. ring"), ("4. ring", "ring", "5. ring")):
        with pytest.raises(InputError, match="would both be called ring"):
            parse_results(named(*order))
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path, name in zip(files, ("ring_a", "ring-a"), strict=True):
        path.write_text(named("default", name))
    assert main(["evaluate", *map(str, files)]) == 1
    assert "would both be called ring_a" in " ".join(capsys.readouterr().err.split())


def test_what_is_called_so_by_an_option_is_the_same_as_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "o.out").write_text(
        "# OSU MPI Broadcast Latency Test v7.3\n# Size   Avg Latency(us)\n64   3.50\n"
    )
    (tmp_path / "t.csv").write_text(named("ring"))
    words = [
        "--ranks",
        "2",
        "--nodes",
        "2",
        "--algorithm",
        "ring",
        "--library",
        "openmpi 5.0.11",
        "--cluster",
        "here",
        "--out",
        str(tmp_path / "m.ndjson"),
    ]
    files = [str(tmp_path / name) for name in ("o.out", "t.csv")]
    assert main(["import-results", *files, *words]) == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ring_a", "ring-a"),
        ("Ring (a)", "ring a"),
        ("c", "C++"),
        ("ring*", "ring"),
        ("1. ring", "2. ring"),
        ("default!", "default"),
    ],
)
def test_names_that_a_file_tells_apart_are_not_put_together(one: str, other: str) -> None:
    said = f"t.csv: line 3: {other!r} and {one!r} (line 2) would both be called "
    assert complaint(named(one, other)).startswith(said)


def test_one_name_written_in_several_ways_is_one() -> None:
    alike = ("ring", "Ring", "4. ring", "ring_ompi", "default-ring")
    assert {one.algorithm for one in parse_results(named(*alike))} == {"ring"}
    known = ("Rabenseifner's", "rabenseifner", "2. rabenseifner")
    assert {one.algorithm for one in parse_results(named(*known))} == {"rabenseifner"}
    plain = ("recursive doubling", "recursive_doubling", "default", "tuned", "")
    assert len({one.algorithm for one in parse_results(named(*plain))}) == 2
    other = named("2. ring").removeprefix(NAMED).replace("bcast", "reduce")
    assert len(parse_results(named("1. ring") + other)) == 2


def test_a_name_of_signs_alone_is_refused() -> None:
    said = "t.csv: line 2: an algorithm cannot be called '+': give it letters or digits"
    assert complaint(named("+")) == said


def test_one_name_for_one_library() -> None:
    assert library_name("Öpen MPI 5") == "Öpen MPI 5"
    assert library_name("OMPI", "4.1.6") == library_name("Open MPI 4.1.6") == "openmpi 4.1.6"
    assert library_name("OpenMPI 4.0.1 TCP") == "openmpi 4.0.1 TCP"
    assert library_name("openmpi-4.1.6") == library_name("OMPI-4.1.6") == "openmpi 4.1.6"
    assert library_name("cray-mpich-8.1") == "cray-mpich 8.1"
    assert library_name("lib-2", "3") == "lib-2 3"
    assert library_name("", "") == ""


# ---- PICO

NAME = "d/16_ring_over_int32.csv"


def test_iterations_become_samples_after_the_warm_up() -> None:
    (reading,) = parse_results(
        ITERATIONS, metadata=UserMetadata(nodes=2, collective="bcast"), source=NAME
    )
    assert reading.samples == pytest.approx((1e-6, 3e-6, 2e-6, 4e-6))
    assert (reading.nbytes, reading.algorithm, reading.run) == (64, "ring_over", "d")
    assert reading.rank_counts == RankCounts(2, 2, 1)


def test_iterations_of_the_slowest_rank_alone() -> None:
    text = "highest\n1000\n\n2000\n"
    told = UserMetadata(nodes=2, ppn=4, collective="allreduce")
    (reading,) = parse_results(text, "pico", told, source="16_default_ompi_double.csv")
    assert (reading.nbytes, reading.algorithm) == (128, "default")
    assert reading.samples == pytest.approx((1e-6, 2e-6))


@pytest.mark.parametrize(
    ("text", "source", "said"),
    [
        (ITERATIONS, "run.csv", "line 1: the name of the file says what was measured"),
        (ITERATIONS, "16_ring_text.csv", "line 1: the name of the file"),
        (ITERATIONS.replace("3000,1", "3000"), NAME, "line 4: 2 fields where the header names 3"),
        (ITERATIONS.replace("3000,1", "3x00,1"), NAME, "line 4: the time cannot be '3x00'"),
        (ITERATIONS.replace("3000,1", "3000,?"), NAME, "line 4: the time cannot be '?'"),
        (ITERATIONS[:-1], NAME, "line 6: cut off"),
        ("highest\n", NAME, "line 1: expected iterations below"),
    ],
)
def test_damaged_iterations_are_refused(text: str, source: str, said: str) -> None:
    told = UserMetadata(p=2, nodes=2, collective="bcast")
    assert said in complaint(text, told, source)


def test_iterations_of_nobody_knows_what_are_refused() -> None:
    assert "add --collective" in complaint(ITERATIONS, UserMetadata(nodes=2), NAME)
    assert "add --nodes" in complaint(ITERATIONS, UserMetadata(collective="bcast"), NAME)


def test_a_summary_is_in_nanoseconds() -> None:
    reading = only(f"{SUMMARY}\n{SUMMARIZED}\n")
    assert reading.samples == pytest.approx((5.5e-6,))
    assert (reading.min_seconds, reading.max_seconds) == pytest.approx((4.5e-6, 9e-6))
    assert (reading.benchmark.subject, reading.algorithm) == ("allreduce", "default")
    assert (reading.rank_counts, reading.memory, reading.run) == (RankCounts(8, 4, 2), "cuda", "t1")


# ---- the reference data


@pytest.mark.parametrize(
    ("name", "rows", "told"),
    [
        ("pico/fugaku.csv", 1752, None),
        ("pico/leonardo.csv", 1245, None),
        ("pico/lumi.csv", 569, None),
        ("pico/mn5_h100_nccl.csv", 270, None),
        ("abci2/a100_collectives.csv", 888, None),
        ("abci2/a100_intranode_p2p.csv", 512, None),
        ("abci2/a100_pt2pt_internode.csv", 282, UserMetadata(nodes=2)),
        ("aws_c5n_mpi/algorithms_8x36.csv", 605, None),
        ("aws_c5n_mpi/default_scaling.csv", 240, None),
        ("aws_c5n_mpi/pt2pt.csv", 1234, UserMetadata(p=72, nodes=2)),
        ("nccl_tests_cluster_h100/all_pairs.csv", 8840, None),
        (
            "ompi_collectives_tuning_example/detail.csv",
            168,
            UserMetadata(ppn=1, collective="gather"),
        ),
    ],
)
def test_the_sets_are_read(shared: Path, name: str, rows: int, told: UserMetadata | None) -> None:
    found = read_results(shared / "data" / name, metadata=told)
    assert len(found) == rows
    assert [reading.line for reading in found] == list(range(2, rows + 2))
    assert all(reading.samples or reading.exclusion_reason for reading in found)


def test_a_known_row_of_the_sets(shared: Path) -> None:
    found = read_results(shared / "data/pico/leonardo.csv")[1]
    assert (found.algorithm, found.library, found.cluster) == (
        "linear",
        "ompi_swing 5.0.0",
        "leonardo",
    )
    assert found.samples == pytest.approx((6.549e-6,))


@pytest.mark.parametrize(
    "name",
    [
        "mvapich_csel/rules.csv",
        "aws_ofi_nccl_tuner/p5_p5e_regions.csv",
        "samples/slurm/tree_topology.conf",
        "mvapich_csel/tacc_vista.json",
    ],
)
def test_what_is_no_result_is_refused(shared: Path, name: str) -> None:
    with pytest.raises(InputError, match="line 1"):
        read_results(shared / "data" / name)
