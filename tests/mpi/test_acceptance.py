"""Accepting rules and comparing tables with real launches of a C program and of the Python one.

What is faster is known beforehand: a preloaded library makes MPI_Allreduce slow for some sizes, in
the launch without the file.
"""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.ladders import table_of
from tests.support.waiting import patience
from tuner.base.errors import ProbeError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable
from tuner.formats import mpich
from tuner.launch import Launcher, ShapeLauncher
from tuner.report import split_control
from tuner.report.cautions import comparison_cautions, is_slower, table_cautions
from tuner.validation import acceptance
from tuner.validation import heldout as heldout_module
from tuner.validation.acceptance import Acceptance, accept_rules, accepted_table
from tuner.validation.heldout import HeldoutResult, compare_heldout
from tuner.validation.timing import (
    CONDITIONS,
    LaunchOptions,
    TimedCall,
    TimingProgram,
    build_program,
    time_pairs,
)
from tuner.validation.validate_openmpi import activation
from tuner.workflows.acceptance import accept_winning_rules, prepare_side, withdraw_losing_rules

SLOW_FROM = 3000  # bytes
SLOW_BELOW = 50_000  # bytes
SUPPORT = Path(__file__).parents[1] / "support"
ALLREDUCE, BCAST = Collective.ALLREDUCE, Collective.BCAST
FAST = LaunchOptions(environment={"TUNER_TEST_FAST": "1"})
Builder = Callable[[Launcher], TimingProgram]


@pytest.fixture
def preloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Launcher], None]:
    """Makes launches of one library slow for some sizes unless they are `FAST`."""

    def preload(launcher: Launcher) -> None:
        assert launcher.compiler is not None
        target = tmp_path / "slow.so"
        subprocess.run(
            [
                launcher.compiler,
                "-shared",
                "-fPIC",
                "-O1",
                "-o",
                target,
                SUPPORT / "slow_allreduce.c",
            ],
            check=True,
        )
        monkeypatch.setenv("LD_PRELOAD", str(target))
        monkeypatch.setenv("SLOW_FROM", str(SLOW_FROM))
        monkeypatch.setenv("SLOW_BELOW", str(SLOW_BELOW))

    return preload


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The differences here are large, so few sizes and launches show them on a busy machine."""
    monkeypatch.setattr(acceptance, "MAX_SIZE_RATIO", 2.5)
    monkeypatch.setattr(acceptance, "MIN_ROUNDS", 2)
    monkeypatch.setattr(acceptance, "SCREENING_ROUNDS", 2)
    monkeypatch.setattr(acceptance, "MAX_ROUNDS", 4)
    monkeypatch.setattr(heldout_module, "MAX_HELDOUT_ROUNDS", 3)


@pytest.fixture(params=["openmpi", "mpich"])
def library(request: pytest.FixtureRequest) -> Launcher:
    found: Launcher = request.getfixturevalue(
        "launcher" if request.param == "openmpi" else "mpich_launcher"
    )
    return found


def table_for(launcher: Launcher) -> TuningTable:
    """Rules for allreduce from 1000 to 200,000 bytes; nothing for bcast."""
    return table_of(
        {
            (ALLREDUCE, 2): [
                (0, AlgorithmChoice()),
                (1000, AlgorithmChoice("recursive_doubling")),
                (200_000, AlgorithmChoice()),
            ],
            (BCAST, 2): [(0, AlgorithmChoice())],
        },
        probed=(1000, 16_000, 100_000),
        library=launcher.version(),
    )


@pytest.mark.alone
@pytest.mark.representative("openmpi")
def test_a_rule_stays_where_it_wins(
    library: Launcher, preloaded: Callable[[Launcher], None], tmp_path: Path
) -> None:
    table = table_for(library)
    program = build_program(library.compiler, tmp_path)
    assert program.description == "C program"
    preloaded(library)
    seen = list[tuple[int, int]]()

    def tried() -> Acceptance:
        return accept_rules(
            table,
            "any",
            ShapeLauncher(library),
            program,
            FAST,
            seconds=0.002,
            directory=tmp_path,
            progress=lambda done, total: seen.append((done, total)),
        )

    found = tried()
    if len(found.accepted) < 3:  # other tests took the cores from one of the launches
        found = tried()
    kept = {trial.nbytes for trial in found.accepted}
    assert kept == {t.nbytes for t in found.calls if SLOW_FROM <= t.nbytes < SLOW_BELOW}
    assert len(kept) >= 3
    assert seen[-1][0] == seen[-1][1]
    rules = accepted_table(table, "any", found).rules_for(table.keys[0])
    assert [str(rule.choice) for rule in rules] == ["default", "recursive_doubling", "default"]
    assert (rules[1].start_bytes, rules[1].stop_bytes) == (min(kept), max(kept) + 1)
    assert rules[1].evidence.gain > 2
    assert rules[1].evidence.nbytes == tuple(sorted(kept))


def test_a_tuned_launch_of_mpich_reads_the_files_of_both_layers(
    mpich_launcher: Launcher, tmp_path: Path
) -> None:
    table = table_for(mpich_launcher)
    side = prepare_side(table, "any", mpich_launcher, tmp_path)
    trees = mpich.read_generic_trees(mpich_launcher.libmpi())
    assert trees.device is not None
    above, below = (
        Path(side.environment[layer.variable]).read_text() for layer in (mpich.MPIR, mpich.DEVICE)
    )
    assert len(side.environment) == 2
    assert not side.settings
    assert mpich.check(table, above, trees.mpir) == []
    assert mpich.device.check(table, below, trees.device) == []


@pytest.mark.alone
@pytest.mark.extended
def test_calls_without_rules_cost_nothing_in_mpich(
    mpich_launcher: Launcher, tmp_path: Path
) -> None:
    """Without its device layer they take 2 to 5 times as long."""
    table = table_for(mpich_launcher)
    calls = [TimedCall(collective, 1, 2, 64) for collective in (ALLREDUCE, BCAST)]
    program = build_program(mpich_launcher.compiler, tmp_path)
    assert program.program is not None
    times = time_pairs(
        ShapeLauncher(mpich_launcher),
        program,
        calls,
        prepare_side(table, "any", mpich_launcher, tmp_path),
        library=mpich_launcher.version(),
        launches=4,
        seconds=0.002,
        directory=tmp_path,
    )
    for call in calls:
        assert 0.5 < times.mean_speedup(call)[0] < 2


@pytest.mark.alone
@pytest.mark.extended
def test_what_a_file_costs_elsewhere_is_found(
    launcher: Launcher,
    preloaded: Callable[[Launcher], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tuned launch is slow in small calls, which the table leaves to the library."""
    table = table_of(
        {
            (ALLREDUCE, 2): [
                (0, AlgorithmChoice()),
                (5000, AlgorithmChoice("ring")),
                (40_000, AlgorithmChoice()),
            ]
        },
        probed=(5000, 30_000),
        library=launcher.version(),
    )
    side = LaunchOptions(environment={"SLOW_FROM": "0", "SLOW_BELOW": str(SLOW_FROM)})
    monkeypatch.setattr("tuner.workflows.acceptance.prepare_side", lambda *_: side)
    preloaded(launcher)
    settled, records = withdraw_losing_rules(table, launcher, lambda *_: None)
    assert settled.rules == table.rules
    control = split_control(records)[1]
    slower = [call for call in control if is_slower(call)]
    assert {call["nbytes"] < SLOW_FROM for call in slower} == {True}
    assert all(call["ratio"] < 0.5 for call in slower)
    assert any(
        said.startswith("The file itself costs") for said in comparison_cautions([], control)
    )


def test_a_rule_under_which_a_call_without_data_ends_the_program_is_withdrawn(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open MPI's `split_binary` divides a segment by the size of the datatype."""
    table = table_of(
        {(BCAST, 3): [(0, AlgorithmChoice("linear")), (1024, AlgorithmChoice())]},
        library=launcher.version(),
    )
    rules = tmp_path / "ending.rules"
    rules.write_text("1\n7\n1\n0\n1\n0 4 0 1024\n")
    side = LaunchOptions(settings=activation(rules))
    monkeypatch.setattr("tuner.workflows.acceptance.prepare_side", lambda *_: side)
    said = list[str]()
    kept = accept_winning_rules(table, launcher, lambda *_: None, on_warning=said.append)
    assert [rule.choice for rule in kept.rules] == [AlgorithmChoice()]
    assert said == [
        "bcast on 3 ranks, [0, 1024) bytes: 'linear' is withdrawn: a call without data ends the"
        " program or never returns"
    ]
    (record,) = kept.provenance["acceptance"]["files"]
    assert record["fatal"] == said


@pytest.mark.alone
@pytest.mark.extended
@pytest.mark.parametrize(("budget", "comparisons"), [(math.inf, 3), (0.0, 2)])
def test_a_rule_that_does_not_win_again_is_withdrawn(
    launcher: Launcher,
    preloaded: Callable[[Launcher], None],
    monkeypatch: pytest.MonkeyPatch,
    budget: float,
    comparisons: int,
) -> None:
    """Try two rules, one of them for sizes at which both sides take the same time.

    Without time left the other one, which has won, is not tried again.
    """
    table = table_of(
        {
            (ALLREDUCE, 2): [
                (0, AlgorithmChoice()),
                (5000, AlgorithmChoice("ring")),
                (40_000, AlgorithmChoice()),
                (90_000, AlgorithmChoice("rabenseifner")),
                (200_000, AlgorithmChoice()),
            ]
        },
        probed=(5000, 30_000, 90_000, 150_000),
        library=launcher.version(),
    )
    monkeypatch.setattr("tuner.workflows.acceptance.prepare_side", lambda *_: FAST)
    seen, said = list[set[int]](), list[str]()

    def compared(*arguments: Any, **named: Any) -> list[HeldoutResult]:
        found = compare_heldout(*arguments, **named)
        seen.append({one.nbytes for one in found})
        return found

    monkeypatch.setattr("tuner.workflows.acceptance.compare_heldout", compared)
    preloaded(launcher)
    settled, records = withdraw_losing_rules(
        table, launcher, lambda *_: None, on_note=said.append, budget=budget
    )
    assert [str(rule.choice) for rule in settled.rules] == ["default", "ring", "default"]
    assert len(seen) == comparisons
    *deciding, last = seen
    used = set[int]().union(*deciding)
    assert len(used) == sum(map(len, deciding))
    assert not used & last
    assert {record["nbytes"] for record in records} == last
    assert said == ["1 range of sizes did not win again and is withdrawn"]
    assert {nbytes for *_, nbytes in settled.provenance["comparison"]["used"]} == used
    (withdrawn,) = settled.provenance["comparison"]["withdrawn"]
    assert withdrawn == "allreduce on 2 ranks, [90000, 200000) bytes: 'rabenseifner'"
    assert "1 range of sizes was withdrawn" in table_cautions(settled)[0]


@pytest.mark.alone
@pytest.mark.extended
def test_sizes_that_were_used_for_nothing_are_compared(
    launcher: Launcher, preloaded: Callable[[Launcher], None], tmp_path: Path
) -> None:
    program = build_program(launcher.compiler, tmp_path)
    preloaded(launcher)
    results = compare_heldout(
        table_for(launcher),
        ShapeLauncher(launcher),
        program,
        FAST,
        seconds=0.001,
        directory=tmp_path,
    )
    changed = [each for each in results if each.algorithm != "default"]
    assert 1 <= len(changed) <= len(results) - len(changed)
    for result in changed:
        slow = SLOW_FROM <= result.nbytes < SLOW_BELOW
        assert (result.ratio > 2) == slow
        assert result.ci95[0] > 1 or not slow  # of equal calls one in forty looks faster
        assert [condition.name for condition in result.conditions] == list(CONDITIONS)
    assert not {result.nbytes for result in results} & {1000, 16_000, 100_000}


@pytest.mark.alone
@pytest.mark.representative("False")
@pytest.mark.parametrize("interpreted", [False, True])
def test_a_wrong_result_is_noticed(
    launcher: Launcher, preloaded: Callable[[Launcher], None], tmp_path: Path, interpreted: bool
) -> None:
    program = build_program(None if interpreted else launcher.compiler, tmp_path)
    assert ("mpi4py" in program.description) == interpreted
    preloaded(launcher)
    calls = [TimedCall(ALLREDUCE, 1, 2, nbytes) for nbytes in (400, 4000)]
    times = time_pairs(
        ShapeLauncher(launcher),
        program,
        calls,
        LaunchOptions(environment={"TUNER_TEST_WRONG": "1", "TUNER_TEST_FAST": "1"}),
        library=launcher.version(),
        launches=2,
        seconds=0.001,
        directory=tmp_path,
    )
    assert times.wrong_calls == {calls[1]}
    assert set(times.tuned) == {(call, name) for call in calls for name in CONDITIONS}
    assert all(len(rounds) == 2 for rounds in times.default.values())
    assert times.mean_speedup(calls[1])[1] > 1 > times.speedup(calls[0], CONDITIONS[0])[1]


@pytest.mark.parametrize(("left_s", "rounds"), [(-1.0, 2), (math.inf, 3)])
def test_after_the_deadline_no_round_begins_but_the_least_ones(
    launcher: Launcher, tmp_path: Path, left_s: float, rounds: int
) -> None:
    call, told = TimedCall(ALLREDUCE, 1, 2, 400), list[tuple[int, int]]()
    times = time_pairs(
        ShapeLauncher(launcher),
        build_program(launcher.compiler, tmp_path),
        [call],
        LaunchOptions(),
        library=launcher.version(),
        launches=3,
        min_launches=2,
        deadline=time.monotonic() + left_s,
        seconds=0.001,
        directory=tmp_path,
        progress=lambda done, total: told.append((done, total)),
    )
    assert times.rounds(call) == rounds
    assert times.undecided == ({call} if rounds < 3 else set())
    done, total = told[-1]
    assert done == total


@pytest.mark.representative("False")
@pytest.mark.parametrize("interpreted", [False, True])
def test_ranks_that_outnumber_their_cores_are_spread_in_every_turn(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interpreted: bool
) -> None:
    """Left to the kernel, three of four share a core in every other turn."""
    assert launcher.compiler is not None
    recorder = tmp_path / "recorder.so"
    sources = [str(SUPPORT / "record_affinity.c"), "-ldl"]
    options = ["-shared", "-fPIC", "-o", str(recorder)]
    subprocess.run([launcher.compiler, *options, *sources], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(recorder))
    monkeypatch.setenv("AFFINITY_RECORD", str(tmp_path / "default"))
    usual = os.sched_getaffinity(0)
    cores = sorted(usual)[:2]
    os.sched_setaffinity(0, cores)
    try:
        time_pairs(
            ShapeLauncher(launcher),
            build_program(None if interpreted else launcher.compiler, tmp_path),
            [TimedCall(ALLREDUCE, 1, 4, 52_000)],
            LaunchOptions(environment={"AFFINITY_RECORD": str(tmp_path / "tuned")}),
            library=launcher.version(),
            launches=1,
            seconds=0.002,
            directory=tmp_path,
        )
    finally:
        os.sched_setaffinity(0, usual)
    turns = {side: cores_by_turn(tmp_path / side) for side in ("default", "tuned")}
    assert turns["default"] == turns["tuned"]
    assert len({*turns["default"]}) > 1, "another pair shares a core in another turn"
    assert all(sorted(turn) == sorted([*cores, *cores]) for turn in turns["default"])


def cores_by_turn(record: Path) -> list[tuple[int, ...]]:
    """Return the cores of ranks 0, 1, ... in each turn from what `record_affinity.c` wrote."""
    of_rank: dict[str, list[int]] = {}
    for line in record.read_text().splitlines():
        rank, core = line.split()
        of_rank.setdefault(rank, []).append(int(core))
    return [*zip(*(of_rank[rank] for rank in sorted(of_rank)), strict=True)]


@pytest.mark.representative("openmpi")
def test_every_collective_is_right_in_both_programs(library: Launcher, tmp_path: Path) -> None:
    calls = [TimedCall(collective, 1, 2, 8000) for collective in Collective]
    for compiler in (library.compiler, None):
        times = time_pairs(
            ShapeLauncher(library),
            build_program(compiler, tmp_path),
            calls,
            LaunchOptions(),
            library=library.version(),
            launches=1,
            seconds=0.0005,
            directory=tmp_path,
        )
        assert not times.wrong_calls
        assert set(times.default) == {(call, name) for call in calls for name in CONDITIONS}


def test_when_one_launch_dies_the_other_one_ends(
    launcher: Launcher, preloaded: Callable[[Launcher], None], tmp_path: Path
) -> None:
    begun = time.monotonic()
    broken = LaunchOptions(environment={"TUNER_TEST_ENDS": "1"})
    program = build_program(launcher.compiler, tmp_path)
    preloaded(launcher)
    with pytest.raises(ProbeError, match=r"(?i)exit") as raised:
        time_pairs(
            ShapeLauncher(launcher),
            program,
            [TimedCall(ALLREDUCE, 1, 2, 4000)],
            broken,
            library=launcher.version(),
            launches=1,
            seconds=0.001,
            directory=tmp_path,
        )
    assert time.monotonic() - begun < patience()
    assert "other launch" not in str(raised.value)


@pytest.mark.extended
def test_launches_of_which_one_died_are_repeated(
    launcher: Launcher, preloaded: Callable[[Launcher], None], tmp_path: Path
) -> None:
    deadly, said, seen = tmp_path / "deadly", list[str](), list[tuple[int, int]]()
    deadly.touch()
    program = build_program(launcher.compiler, tmp_path)
    preloaded(launcher)
    call = TimedCall(ALLREDUCE, 1, 2, 4000)
    times = time_pairs(
        ShapeLauncher(launcher),
        program,
        [call],
        LaunchOptions(environment={"TUNER_TEST_DIES": str(deadly)}),
        library=launcher.version(),
        launches=2,
        seconds=0.001,
        directory=tmp_path,
        progress=lambda *now: seen.append(now),
        on_warning=said.append,
    )
    (sentence,) = said
    assert sentence.startswith("launches of 2 ranks failed and are repeated: a rank died (signal")
    assert sentence.endswith("(with the table, while timing allreduce 1x2 3.91KiB)")
    assert {
        len(side[call, name]) for side in (times.default, times.tuned) for name in CONDITIONS
    } == {2}
    assert seen[-1] == (16, 16)


def test_a_program_of_another_library_is_refused(launcher: Launcher, tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match=r"mpicc links another library .* than the ranks have"):
        time_pairs(
            ShapeLauncher(launcher),
            build_program(launcher.compiler, tmp_path),
            [TimedCall(ALLREDUCE, 1, 2, 4000)],
            LaunchOptions(),
            library="openmpi 5.0.1",
            launches=1,
            seconds=0.001,
            directory=tmp_path,
        )


def test_a_list_of_calls_that_cannot_be_read_is_said(launcher: Launcher, tmp_path: Path) -> None:
    program = build_program(launcher.compiler, tmp_path)
    with pytest.raises(ProbeError, match="the list of calls cannot be read here"):
        launcher.run(2, program.arguments("-", "0", "0.001", "nowhere"), program=program.program)


def test_a_compiler_that_fails_leaves_the_python_program(tmp_path: Path) -> None:
    broken = tmp_path / "mpicc"
    broken.write_text("#!/bin/sh\necho no headers >&2\nexit 1\n")
    broken.chmod(0o755)
    program = build_program(broken, tmp_path)
    assert program.program is None
    assert program.fallback_reason == f"{broken} cannot compile MPI programs: no headers"
    assert build_program(tmp_path / "nowhere", tmp_path).program is None


def test_a_program_that_cannot_start_leaves_the_python_program(
    launcher: Launcher, tmp_path: Path
) -> None:
    """A compiler that links a library which programs then do not find."""
    lost = tmp_path / "liblost.so"
    subprocess.run(["cc", "-shared", "-o", str(lost), "-x", "c", "/dev/null"], check=True)
    compiler = tmp_path / "mpicc"
    compiler.write_text(
        f'#!/bin/sh\n{launcher.compiler} -Wl,--no-as-needed "$@" -L{tmp_path} -llost && rm {lost}\n'
    )
    compiler.chmod(0o755)
    program = build_program(compiler, tmp_path)
    assert program.program is None
    assert program.fallback_reason.startswith(f"what {compiler} makes does not start: ")
    assert "liblost.so: cannot open shared object file" in program.fallback_reason
