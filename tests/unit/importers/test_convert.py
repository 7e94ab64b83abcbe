"""Readings as measurements, and `tuner import-results`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.measurement import Measurement, read_measurements
from tuner.core.table import AlgorithmChoice
from tuner.importers import (
    BenchmarkResult,
    RankCounts,
    UserMetadata,
    as_measurements,
    parse_results,
    read_results,
    write_measurements,
)
from tuner.importers.reading import BURST, COLLECTIVE, EXCHANGE, PINGPONG, Benchmark
from tuner.select.dataset import build_observations
from tuner.select.significance import compare_with_default

HEAD = "system,run,collective,nodes,ppn,lib,lib_version,algorithm,size_bytes,median_us"
ROWS = (
    "leo,r1,bcast,2,4,OMPI,4.1.6,default_ompi,64,5",
    "leo,r1,bcast,2,4,OMPI,4.1.6,chain_ompi,64,4",
    "leo,r2,bcast,2,4,OMPI,4.1.6,default_ompi,64,6",
    "leo,r2,bcast,2,4,OMPI,4.1.6,default_ompi,64,7",
)
LATENCY = "# OSU MPI Latency Test v7.3\n# Size   Latency (us)\n0   1.50\n8   1.75\n"
BCAST = "# OSU MPI Broadcast Latency Test v7.3\n# Size   Avg Latency(us)\n8   3.50\n16   0.00\n"


def rows(*lines: str) -> list[BenchmarkResult]:
    return parse_results("\n".join([HEAD, *lines, ""]))


def complaint(readings: list[BenchmarkResult], library: str = "", cluster: str = "") -> str:
    with pytest.raises(InputError) as refused:
        as_measurements(readings, library, cluster)
    return str(refused.value)


def test_runs_are_launches_and_repeated_rows_are_samples() -> None:
    found = as_measurements(rows(*ROWS))
    series = found.series
    assert [(s.algorithm, s.launch) for s in series] == [
        ("default", 0),
        ("default", 1),
        ("chain", 0),
    ]
    taken = [sample for one in series for sample in one.samples]
    assert taken == pytest.approx([5e-6, 6e-6, 7e-6, 4e-6])
    assert [len(one.samples) for one in series] == [1, 2, 1]
    assert (found.library, found.cluster.name) == ("openmpi 4.1.6", "leo")
    assert (found.cluster.nodes, found.cluster.cores) == (2, 4)
    assert found.provenance["statistics"] == {"median_us": 4}
    assert found.provenance["excluded"] == []


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
def test_what_was_measured_in_one_run_is_compared_in_it(order: tuple[str, str]) -> None:
    """The second run is busy; the default is measured in it alone, and the ring as fast there."""
    taken = {("r1", "ring"): 100, ("r2", "ring"): 150, ("r2", "default"): 150}
    lines = [
        f"leo,{run},allreduce,2,4,OMPI,4.1.6,{name},65536,{taken[run, name] + n % 3}"
        for run in order
        for name in ("ring", "default")
        if (run, name) in taken
        for n in range(8)
    ]
    found = build_observations(as_measurements(rows(*lines)), lambda _point, _choice: math.nan)
    contest = compare_with_default(found[0].point, found)
    assert contest.gains[AlgorithmChoice("ring")] == pytest.approx(1.0, abs=0.01)
    assert not contest.winners


def test_what_is_no_time_of_a_call_is_left_out() -> None:
    found = as_measurements(rows(*ROWS, "leo,r1,bcast,2,4,OMPI,4.1.6,ring,64,1e-9"))
    assert found.provenance["excluded"] == [
        "1 of bcast: times of 0, or next to it, below what the file resolves"
    ]


def test_a_selector_can_label_them() -> None:
    labelled = build_observations(as_measurements(rows(*ROWS)), lambda _point, _choice: 1e-6)
    assert [row.choice.algorithm for row in labelled] == ["default", "chain"]


def test_pairs_are_of_their_path_class() -> None:
    for nodes, subject in ((1, "node"), (2, "network")):
        readings = parse_results(LATENCY, metadata=UserMetadata(nodes=nodes))
        series = as_measurements(readings, "mpich 5.0.2", "here").series
        assert [(s.kind, s.subject, s.p, s.nodes, s.nbytes, s.algorithm) for s in series] == [
            ("pingpong", subject, 2, nodes, 0, ""),
            ("pingpong", subject, 2, nodes, 8, ""),
        ]


def test_what_is_left_out_is_counted() -> None:
    bcast = parse_results(BCAST, metadata=UserMetadata(p=4, nodes=2))
    text = BCAST.replace("Broadcast", "Gatherv")
    found = as_measurements(bcast + parse_results(text), "openmpi", "here")
    assert [series.nbytes for series in found.series] == [8]
    assert found.provenance["excluded"] == [
        "1 of OSU MPI Broadcast Latency: times of 0, or next to it, below what the file resolves",
        "2 of OSU MPI Gatherv Latency: neither a collective that is known here nor messages of"
        " pairs",
    ]


def test_unequal_nodes_empty_calls_and_sizes_that_no_measurement_holds_are_left_out() -> None:
    head = "# Benchmarking Gather\n# #processes = 3\n#bytes #repetitions t_max[usec]\n"
    fit, uneven = UserMetadata(ppn=3), UserMetadata(ppn=2)
    text = f"{head}0 1 5.0\n{2**62} 1 5.0\n8 1 5.0\n"
    found = as_measurements(parse_results(text, metadata=fit), "mpich", "here")
    assert [series.nbytes for series in found.series] == [24]
    assert [line[:1] for line in found.provenance["excluded"]] == ["1", "1"]
    said = complaint(parse_results(text, metadata=uneven), library="x", cluster="y")
    assert "unequal numbers of ranks on 2 nodes" in said


def test_of_several_libraries_one_is_chosen() -> None:
    both = rows(ROWS[0], ROWS[1].replace("4.1.6", "5.0.7"))
    assert complaint(both) == (
        "the readings are of 2 library names: 'openmpi 4.1.6', 'openmpi 5.0.7': choose one with"
        " --library"
    )
    assert "the library must be one of" in complaint(both, library="mpich")
    assert len(as_measurements(both, library="OMPI 5.0.7").series) == 1


def test_of_several_clusters_one_is_chosen() -> None:
    both = rows(ROWS[0], ROWS[1].replace("leo", "lumi"))
    assert complaint(both).endswith("'leo', 'lumi': choose one with --cluster")
    assert as_measurements(both, cluster="lumi").cluster.name == "lumi"


def test_names_that_no_file_says_are_demanded() -> None:
    readings = parse_results(LATENCY, metadata=UserMetadata(nodes=1))
    assert complaint(readings, library="x").endswith(
        "of which cluster they are: name it with --cluster"
    )
    assert complaint(readings, cluster="x").endswith("name it with --library")


def test_nothing_left_is_refused_with_the_reasons() -> None:
    assert complaint(rows(ROWS[0].replace("bcast", "scan"))) == (
        "expected measurements in the readings: 1 of scan: neither a collective that is known here"
        " nor messages of pairs"
    )
    assert "there are none" in complaint([], library="x", cluster="y")


NAMES = st.text("abcdefgh_0123456789 é", min_size=1, max_size=12).map(str.strip).filter(bool)
SECONDS = st.floats(1e-9, 1e3)


@st.composite
def readings(draw: st.DrawFn) -> BenchmarkResult:
    kind = draw(st.sampled_from([COLLECTIVE, PINGPONG, BURST, EXCHANGE]))
    subject = draw(st.sampled_from(list(Collective))) if kind == COLLECTIVE else ""
    nodes, ppn = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return BenchmarkResult(
        draw(NAMES),
        1,
        Benchmark("b", kind, subject),
        draw(st.integers(1, 2**40)),
        tuple(draw(st.lists(SECONDS, min_size=1, max_size=3))),
        "mean",
        rank_counts=RankCounts(nodes * ppn, nodes, ppn),
        algorithm=draw(NAMES),
        params=draw(st.dictionaries(NAMES, st.integers(0, 2**30), max_size=2)),
        memory=draw(st.sampled_from(["host", "cuda"])),
        run=draw(st.sampled_from(["", "a", "b"])),
    )


@given(st.lists(readings(), min_size=1, max_size=8))
@settings(max_examples=examples(60))
def test_written_and_read_they_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, given_readings: list[BenchmarkResult]
) -> None:
    path = tmp_path_factory.mktemp("written") / "m.ndjson"
    found = as_measurements(given_readings, "openmpi 5.0.11", "here")
    write_measurements(found, path)
    assert read_measurements(path) == found
    assert sorted(sample for series in found.series for sample in series.samples) == sorted(
        sample for reading in given_readings for sample in reading.samples
    )
    keys = [(s.point, s.algorithm, tuple(sorted(s.params.items())), s.launch) for s in found.series]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("name", "library", "cluster", "series"),
    [
        ("pico/fugaku.csv", "", "", 1752),
        ("pico/leonardo.csv", "OMPI 4.1.6", "", 1097),
        ("pico/lumi.csv", "", "", 569),
        ("pico/mn5_h100_nccl.csv", "nccl", "", 81),
        ("abci2/a100_collectives.csv", "openmpi 4.0.5 (ucx)", "", 600),
        ("aws_c5n_mpi/algorithms_8x36.csv", "OpenMPI 4.0.1 TCP", "aws", 101),
        ("nccl_tests_cluster_h100/all_pairs.csv", "", "cluster01", 675),
    ],
)
def test_the_sets_become_measurements(
    shared: Path, tmp_path: Path, name: str, library: str, cluster: str, series: int
) -> None:
    found = as_measurements(read_results(shared / "data" / name), library, cluster)
    assert len(found.series) == series
    write_measurements(found, tmp_path / "m.ndjson")
    assert read_measurements(tmp_path / "m.ndjson") == found


# ---- the command line


def test_files_become_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "l.out").write_text(LATENCY)
    (tmp_path / "b.out").write_text(BCAST)
    out = tmp_path / "m.ndjson"
    words = [
        str(tmp_path / "l.out"),
        str(tmp_path / "b.out"),
        "--ranks",
        "8",
        "--nodes",
        "2",
        "--algorithm",
        "chain",
        "--param",
        "segment=64KiB",
        "--param",
        "chains=4",
        "--library",
        "openmpi 5.0.11",
        "--cluster",
        "here",
        "--out",
        str(out),
    ]
    assert main(["import-results", *words]) == 0
    text = capsys.readouterr().out
    assert "openmpi 5.0.11 on cluster here (2 hosts): 3 series of 4 readings" in text
    assert "left out: 1 of OSU MPI Broadcast Latency" in text
    words_said = " ".join(text.split())
    assert "One sample alone is in 3 of 3 series: such can be compared" in words_said
    assert words_said.endswith(
        "tables are made of probes of your own (`tuner probe`: Open MPI, MPICH)."
    )
    found = read_measurements(out)
    assert found.series[-1] == Measurement(
        "collective",
        "bcast",
        2,
        4,
        8,
        8,
        found.series[-1].samples,
        "chain",
        {"segment": 65536, "chains": 4},
        launch=1,
    )
    assert main(["import-results", *words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["series"] == {"collective": 1, "pingpong": 2}
    assert (record["readings"], record["samples"], record["out"]) == (4, 3, str(out))


def test_what_one_sample_means_is_said_where_there_are_such_series_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.csv"
    path.write_text("\n".join([HEAD, *ROWS[2:], ""]))
    assert main(["import-results", str(path), "--out", str(tmp_path / "m.ndjson")]) == 0
    assert "one sample" not in capsys.readouterr().out


def test_names_are_told_apart_across_files_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path, name in zip(files, ("ring_a", "ring-a"), strict=True):
        path.write_text(f"{HEAD}\n{ROWS[0].replace('default_ompi', name)}\n")
    out = tmp_path / "m.ndjson"
    assert main(["import-results", *map(str, files), "--out", str(out)]) == 1
    said = capsys.readouterr().err
    assert f"{files[1]}: line 2: 'ring-a' and 'ring_a' ({files[0]}: line 2) would both" in said
    assert not out.exists()


def test_mistakes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.out").write_text(BCAST)
    out = tmp_path / "m.ndjson"
    for words, status, said in (
        ([str(tmp_path / "b.out")], 1, "b.out: line 3: the file does not say on how many ranks"),
        (
            [str(tmp_path / "b.out"), "--ranks", str(2**31)],
            2,
            "--ranks 2147483648: it is at least 1",
        ),
        ([str(tmp_path / "b.out"), "--ranks", "2", "--nodes", "1"], 1, "name it with --cluster"),
        (
            [str(tmp_path / "b.out"), "--ranks", "2", "--nodes", "1", "--library", "mine"],
            2,
            'no version of mine: add it, as in --library "mine 5.0.11"',
        ),
        ([str(tmp_path / "nothing")], 1, "expected the path of a file"),
        ([str(tmp_path)], 1, "is a folder without files of NCCL's Inspector: name the files in it"),
        ([str(tmp_path / "b.out"), "--collective", "x"], 2, "unknown collective 'x'"),
        (
            [str(tmp_path / "b.out"), "--format", "imb"],
            1,
            "expected a title such as `# Benchmarking",
        ),
    ):
        assert main(["import-results", *words, "--out", str(out)]) == status
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
        assert not out.exists()


def test_the_user_adds_the_version_that_a_file_lacks() -> None:
    results = [
        BenchmarkResult(
            "a.txt",
            line,
            Benchmark("all_reduce_perf", COLLECTIVE, "allreduce"),
            64,
            (1e-6,),
            rank_counts=RankCounts(2, 1, 2),
            library="nccl",
        )
        for line in (1, 2)
    ]
    assert as_measurements(results, cluster="here").library == "nccl"
    assert as_measurements(results, "nccl 2.18.5", "here").library == "nccl 2.18.5"
    with pytest.raises(InputError, match=r"the library must be one of .*, not 'rccl 2\.22'"):
        as_measurements(results, "rccl 2.22", "here")
