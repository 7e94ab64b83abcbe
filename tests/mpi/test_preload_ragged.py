"""Calls whose blocks have lengths of their own follow a size that all ranks know."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from tests.support.ladders import table_of
from tests.support.mpi4py_suite import SHARED_CORES
from tests.support.preload import SUPPORT, compiled, preload_environment
from tests.support.waiting import patience
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable
from tuner.launch import Launcher
from tuner.mpi_libraries import library_module
from tuner.preload.flat_table import write_flat_table
from tuner.preload.report import read_counts
from tuner.preload.run_record import read_record

ALLGATHERV, ALLTOALLV = Collective.ALLGATHERV, Collective.ALLTOALLV
RANKS = 4
CALLS = 200
SPLIT_BYTES = 900  # where the rules of these tables change
LINEAR, PAIRWISE = AlgorithmChoice("linear"), AlgorithmChoice("pairwise")
# 16 calls with four elements for each rank, then 16 with 400, and so on; with a second argument,
# all with 400 to or from rank 0
PROGRAM = """
#include <mpi.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    static int sent[16], received[16], places[16], send[16 * 400], receive[16 * 400];
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int to_first = argc > 2 && argv[2][0] == 't', from_first = argc > 2 && !to_first;
    for (int call = 0; call < atoi(argv[1]); call++) {
        for (int i = 0; i < size; i++) {
            const int count = argc > 2 || call / 16 % 2 ? 400 : 4;
            sent[i] = (to_first && i) || (from_first && rank) ? 0 : count;
            received[i] = (to_first && rank) || (from_first && i) ? 0 : count;
            places[i] = i * 400;
        }
        MPI_Alltoallv(send, sent, places, MPI_INT, receive, received, places, MPI_INT,
                      MPI_COMM_WORLD);
    }
    return MPI_Finalize();
}
"""
# Each call's blocks have 240 elements in sum, one of them twice as many as the others, and in every
# third call a tenth of it. The last one has a negative count on rank 0, and nothing to send.
GATHERING = """
#include <mpi.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    static int counts[16], places[16], send[240], receive[240];
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int call = 0; call < atoi(argv[1]); call++) {
        const int whole = call % 3 ? 240 : 24, share = whole / (size + 1);
        for (int i = 0, end = 0; i < size; i++) {
            counts[i] = i == call % size ? whole - (size - 1) * share : share;
            places[i] = end;
            end += counts[i];
        }
        MPI_Allgatherv(send, counts[rank], MPI_INT, receive, counts, places, MPI_INT,
                       MPI_COMM_WORLD);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    counts[0] = rank == 0 ? -1 : 0;
    for (int i = 1; i < size; i++)
        counts[i] = 0;
    const int code = MPI_Allgatherv(send, counts[rank], MPI_INT, receive, counts, places, MPI_INT,
                                    MPI_COMM_WORLD);
    return MPI_Finalize() || (code == MPI_SUCCESS) == (rank == 0);
}
"""
# Rank 0 makes its fifth call with wrong arguments, of which the library says so; no bytes are sent.
WRONG_CALL = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    static int zeros[16], failed;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int call = 0; call < 300; call++)
        failed += MPI_Alltoallv(zeros, zeros, zeros, MPI_INT, zeros, zeros, zeros,
                                call == 4 && rank == 0 ? MPI_DATATYPE_NULL : MPI_INT,
                                MPI_COMM_WORLD) != MPI_SUCCESS;
    printf("rank %d: %d\\n", rank, failed);
    return MPI_Finalize();
}
"""


def two_rules(
    library: str, small: AlgorithmChoice, large: AlgorithmChoice, collective: Collective = ALLTOALLV
) -> TuningTable:
    ladder = [(0, small), (SPLIT_BYTES, large)]
    return table_of({(collective, p): ladder for p in range(2, RANKS + 1)}, library=library)


def table_of_all(library: str) -> TuningTable:
    """Return a table with two choices, and more where a collective has some in the library."""
    ladders = {}
    known = library_module(library)
    forced = [one for one in (ALLGATHERV, ALLTOALLV) if one in known.ALGORITHMS]
    for collective, p in product(forced, range(2, RANKS + 1)):
        first, *rest = known.candidates(collective, p, 1 << 20)
        steps = [(SPLIT_BYTES << n, choice) for n, choice in enumerate([*rest, first])]
        ladders[collective, p] = [(0, rest[-1]), *steps]
    return table_of(ladders, library=library)


def made(launcher: Launcher, text: str, folder: Path) -> Path:
    source = folder / "some_calls.c"
    source.write_text(text)
    return compiled(launcher, str(source), folder)


@pytest.fixture
def program(launcher: Launcher, tmp_path: Path) -> Path:
    return made(launcher, PROGRAM, tmp_path)


@pytest.fixture
def watching(launcher: Launcher, tmp_path: Path) -> dict[str, str]:
    """Return the variables that make Open MPI's ranks count its algorithms, after a library's."""
    command = ["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", str(tmp_path / "watch.so")]
    subprocess.run([*command, str(SUPPORT / "watch_ragged.c"), "-ldl"], check=True)
    return {"LD_PRELOAD": str(tmp_path / "watch.so"), "WATCHED": str(tmp_path / "watched")}


def watched_calls(
    launcher: Launcher,
    program: Path,
    table: TuningTable,
    watching: dict[str, str],
    folder: Path,
    words: Sequence[str] = (str(CALLS),),
    **variables: str,
) -> list[tuple[int, int]]:
    """Return how many calls each rank has made linearly, and pairwise."""
    follow = {
        **preload_environment(launcher, table, folder),
        "TUNER_TUNE_AFTER_US": "0",
        **variables,
    }
    preload = f"{follow['LD_PRELOAD']}:{watching['LD_PRELOAD']}"
    environment = {**SHARED_CORES, **follow, **watching, "LD_PRELOAD": preload}
    launcher.run(RANKS, words, program=program, environment=environment, timeout=patience(20))
    lines = Path(watching["WATCHED"]).read_text(encoding="utf-8").splitlines()
    return [(int(linear), int(pairwise)) for linear, pairwise in map(str.split, lines)]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_an_allgatherv_follows_the_bytes_of_all_blocks(
    mpich_launcher: Launcher, ranks: int, tmp_path: Path
) -> None:
    program = made(mpich_launcher, GATHERING, tmp_path)
    bruck, own = AlgorithmChoice("bruck"), AlgorithmChoice()
    table = two_rules(mpich_launcher.version(), bruck, own, ALLGATHERV)
    follow = preload_environment(mpich_launcher, table, tmp_path, TUNER_TUNE_AFTER_US="0")
    environment = {**SHARED_CORES, **follow}
    mpich_launcher.run(
        ranks, [str(CALLS)], program=program, environment=environment, timeout=patience(20)
    )
    small = (CALLS + 2) // 3
    last = ranks - 1  # the last call, which rank 0 makes wrongly
    assert sum(read_counts(tmp_path / "report").values()) == ranks * small + last


def test_an_agreement_before_every_call_follows_each_size(
    launcher: Launcher, program: Path, watching: dict[str, str], tmp_path: Path
) -> None:
    table = two_rules(launcher.version(), PAIRWISE, LINEAR)
    told = watched_calls(launcher, program, table, watching, tmp_path, TUNER_AGREE_EVERY="1")
    large = sum(call // 16 % 2 for call in range(CALLS))
    assert told == [(large, CALLS - large)] * RANKS


def test_the_rule_of_all_sizes_so_far_is_followed(
    launcher: Launcher, program: Path, watching: dict[str, str], tmp_path: Path
) -> None:
    """Up to the first agreement the library runs `linear`, as it does from four ranks on."""
    table = table_of({(ALLTOALLV, RANKS): [(0, PAIRWISE)]}, library=launcher.version())
    told = watched_calls(launcher, program, table, watching, tmp_path)
    assert len(set(told)) == 1
    assert 0 < told[0][0] < 100


@pytest.mark.parametrize("every", ["100", "0"])
def test_sizes_of_several_rules_are_left_to_the_library(
    launcher: Launcher, program: Path, watching: dict[str, str], every: str, tmp_path: Path
) -> None:
    """Agree in call 89 alone, which is a large one after small ones, or never."""
    table = two_rules(launcher.version(), AlgorithmChoice(), PAIRWISE)
    told = watched_calls(launcher, program, table, watching, tmp_path, TUNER_AGREE_EVERY=every)
    assert told == [(CALLS, 0)] * RANKS


@pytest.mark.parametrize("every", ["100", "1"])
def test_sizes_of_several_rules_are_said(
    launcher: Launcher, program: Path, every: str, tmp_path: Path
) -> None:
    table = two_rules(launcher.version(), AlgorithmChoice(), PAIRWISE)
    follow = preload_environment(launcher, table, tmp_path, TUNER_AGREE_EVERY=every)
    environment = {**SHARED_CORES, **follow}
    done = launcher.run(
        RANKS, [str(CALLS)], program=program, environment=environment, timeout=patience(20)
    )
    sentence = "the table has several choices, so that the library decided: 1 ("
    assert (sentence in done.stderr) == (every == "100")


def test_without_agreements_one_choice_for_all_sizes_is_followed(
    launcher: Launcher, program: Path, watching: dict[str, str], tmp_path: Path
) -> None:
    table = two_rules(launcher.version(), PAIRWISE, PAIRWISE)
    told = watched_calls(launcher, program, table, watching, tmp_path, TUNER_AGREE_EVERY="0")
    assert told == [(0, CALLS)] * RANKS


@pytest.mark.parametrize("pattern", ["to the first", "from the first"])
def test_uneven_calls_are_left_to_the_library(
    launcher: Launcher, program: Path, watching: dict[str, str], pattern: str, tmp_path: Path
) -> None:
    """One rank receives or sends everything, so that no rule is for the bytes of all."""
    table = two_rules(launcher.version(), AlgorithmChoice(), PAIRWISE)
    words = str(CALLS), pattern
    told = watched_calls(launcher, program, table, watching, tmp_path, words, TUNER_AGREE_EVERY="1")
    assert told == [(CALLS, 0)] * RANKS


@pytest.mark.parametrize("every", ["1", "7", ""])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("library", ["launcher", "mpich_launcher"])
def test_random_counts_arrive(
    request: pytest.FixtureRequest,
    library: str,
    ranks: int,
    threads: int,
    every: str,
    tmp_path: Path,
) -> None:
    launcher: Launcher = request.getfixturevalue(library)
    program = compiled(launcher, "ragged_calls.c", tmp_path)
    table = table_of_all(launcher.version())
    environment = {
        **SHARED_CORES,
        **preload_environment(launcher, table, tmp_path, TUNER_TUNE_AFTER_US="0"),
        "TUNER_AGREE_EVERY": every,
    }
    words = [str(CALLS // threads), f"{ranks}{every}", str(threads)]
    done = launcher.run(
        ranks, words, program=program, environment=environment, timeout=patience(20), check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "0 wrong"), done.stderr
    assert threads > 1 or not every or sum(read_counts(tmp_path / "report").values()) > 0


@pytest.mark.parametrize("every", ["1", "3", ""])
@pytest.mark.parametrize("library", ["launcher", "mpich_launcher"])
def test_a_call_that_one_rank_makes_wrongly_stops_nobody(
    request: pytest.FixtureRequest, library: str, every: str, tmp_path: Path
) -> None:
    launcher: Launcher = request.getfixturevalue(library)
    program = made(launcher, WRONG_CALL, tmp_path)
    table = table_of_all(launcher.version())
    followed = {
        **preload_environment(launcher, table, tmp_path),
        "TUNER_TUNE_AFTER_US": "0",
        "TUNER_AGREE_EVERY": every,
    }
    alone, told = (
        launcher.run(RANKS, [], program=program, environment=one, timeout=patience())
        for one in (SHARED_CORES, {**SHARED_CORES, **followed})
    )
    assert sorted(told.stdout.split("\n")) == sorted(alone.stdout.split("\n"))


def test_a_record_has_sizes_up_to_the_next_power_of_two(
    launcher: Launcher, program: Path, tmp_path: Path
) -> None:
    environment = {
        **SHARED_CORES,
        **preload_environment(launcher, table_of({}), tmp_path),
        "TUNER_FLAT_TABLE": "",
        "TUNER_RECORD": str(tmp_path / "record"),
    }
    launcher.run(
        RANKS, [str(CALLS)], program=program, environment=environment, timeout=patience(20)
    )
    record = read_record(tmp_path / "record")
    sizes = Counter({kind.nbytes: kind.calls for kind in record.kinds})
    large = sum(call // 16 % 2 for call in range(CALLS))
    assert sizes == {8192: large, 64: CALLS - large}  # of 6,400 and 64 bytes
    assert not record.broken
    assert record.kinds[0].collective is ALLTOALLV


def test_our_schedules_do_not_run_it(tmp_path: Path) -> None:
    ours = AlgorithmChoice("pairwise", {}, "schedule")
    notes = write_flat_table(table_of({(ALLTOALLV, 4): [(0, ours)]}), tmp_path / "flat")
    assert notes == [
        "alltoallv pairwise via schedule on 1x4 ranks: schedules are for blocks of one length"
    ]
