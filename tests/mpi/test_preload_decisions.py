"""The dispatcher in C decides as the table says, call by call."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.calls import EVEN
from tests.support.ladders import CLUSTER, Rungs, table_of
from tests.support.preload import compiled, preload_environment
from tuner.algorithms import build, schedule_properties
from tuner.core.collective import Collective
from tuner.core.path_classes import BLOCK, CYCLIC
from tuner.core.table import (
    OPERATORS,
    SCHEDULE,
    AlgorithmChoice,
    Evidence,
    Rule,
    RuleKey,
    TuningTable,
)
from tuner.launch import Launcher
from tuner.mpi_libraries import library_module
from tuner.preload.report import flat_rules, read_counts

P = 3
BOUNDS = (0, 1, 24, 300, 3000)
SIZES = sorted(
    {3 * n for bound in BOUNDS for n in (bound // 3 - 1, bound // 3, bound // 3 + 1)} - {-3}
)


def ladders(library: str) -> dict[tuple[Collective, int, str], Rungs]:
    """Each collective with the library's default, a schedule, and an algorithm that is forced."""
    found: dict[tuple[Collective, int, str], Rungs] = {}
    for collective in EVEN:
        schedule = AlgorithmChoice(SCHEDULES.get(collective, "binomial"), {}, "schedule")
        for operators in OPERATORS[: 1 + collective.is_reduction]:
            choices = [AlgorithmChoice(), schedule]
            choices += _forced(library, collective, operators)
            bounds = BOUNDS if collective.has_data else BOUNDS[:1]
            found[collective, P, operators] = [
                (bound, choices[(place + 1) % len(choices)]) for place, bound in enumerate(bounds)
            ]
    return found


SCHEDULES = {
    Collective.ALLGATHER: "ring",
    Collective.ALLTOALL: "bruck",
    Collective.BARRIER: "dissemination",
    Collective.REDUCE_SCATTER: "recursive_halving",
    Collective.ALLREDUCE: "recursive_doubling",
}


def _forced(library: str, collective: Collective, operators: str) -> list[AlgorithmChoice]:
    module = library_module(library)
    if collective not in module.ALGORITHMS:
        return []
    known = [
        choice
        for choice in module.candidates(collective, P, 1 << 16)
        if not choice.is_default
        and (operators == "commutative" or module.preserves_operand_order(collective, choice))
        and not module.unsupported_reason(collective, choice, P)
    ]
    return known[:1]


def applies(collective: Collective, choice: AlgorithmChoice, nbytes: int, operators: str) -> bool:
    """Return whether a choice can make a call of elements of one byte.

    Blocks have whole chunks, and operators that do not commute need their operands in order.
    """
    if choice.runner != SCHEDULE:
        return True
    made = [
        build(collective, choice.algorithm, P, root=root, params=choice.params)
        for root in (range(P) if collective.is_rooted else range(1))
    ]
    if collective.has_blocks and nbytes % made[0].n_chunks:
        return False
    reorders = not all(schedule_properties(one).order_preserving for one in made)
    return not (reorders and collective.is_reduction and operators == OPERATORS[0])


@pytest.mark.parametrize("fixture", ["launcher", "mpich_launcher"])
def test_each_call_follows_the_rule_of_its_size(
    request: pytest.FixtureRequest, fixture: str, tmp_path: Path
) -> None:
    launcher: Launcher = request.getfixturevalue(fixture)
    table = table_of(ladders(launcher.version()), library=launcher.version())
    calls = [
        (collective, nbytes, operators)
        for collective in EVEN
        for nbytes in (SIZES if collective.has_data else [0])
        for operators in (OPERATORS if collective.is_reduction else OPERATORS[:1])
    ]
    listed = [f"{c.value} {n} {int(ops == 'commutative')}\n" for c, n, ops in calls]
    (tmp_path / "calls").write_text("".join(listed))
    expected: Counter[tuple[str, str, int, str]] = Counter()
    for collective, nbytes, operators in calls:
        rule = table.lookup(RuleKey(collective, 1, P, operators=operators), nbytes)
        assert rule is not None
        if not rule.choice.is_default and applies(collective, rule.choice, nbytes, operators):
            expected[collective, operators, rule.start_bytes, str(rule.choice)] += P
    run = launcher.run(
        P,
        [str(tmp_path / "calls")],
        program=compiled(launcher, "preload_calls.c", tmp_path),
        environment=preload_environment(launcher, table, tmp_path),
    )
    assert run.stdout.split() == ["done"]
    assert run.stderr.count("tuner: ") == 1
    counts = read_counts(tmp_path / "report")
    found = {
        (rule.key.collective, rule.key.operators, rule.start_bytes, rule.choice): counts[
            rule.number
        ]
        for rule in flat_rules((tmp_path / "flat").read_bytes())
        if counts[rule.number]
    }
    assert found == expected
    assert {choice.partition("(")[0] for _, _, _, choice in found} > {"dissemination via schedule"}


LAYOUTS = {  # ranks 0 and 2 are on one node, 1 and 3 on another
    "0,1,2,3": (2, 2, CYCLIC),
    "0,2,1,3": (2, 2, BLOCK),
    "2,0,3,1": (2, 2, BLOCK),
    "0,2,3,1": (2, 2, BLOCK),
    "0,1,3,2": None,
    "0,1": (2, 1, BLOCK),
    "2,0": (1, 2, BLOCK),
    "0,1,2": None,
    "3": (1, 1, BLOCK),
}


def test_each_communicator_follows_the_rules_of_its_layout(
    mpich_launcher: Launcher, tmp_path: Path
) -> None:
    library, choice = mpich_launcher.version(), AlgorithmChoice("binomial", {}, "schedule")
    shapes = {(2, 2, CYCLIC), (2, 2, BLOCK), (2, 1, BLOCK), (1, 2, BLOCK), (1, 1, BLOCK)}
    shapes |= {(1, 3, BLOCK), (3, 1, BLOCK), (1, 4, BLOCK), (4, 1, BLOCK)}
    rules = tuple(
        Rule(
            RuleKey(Collective.BCAST, nodes, ppn, placement=placement),
            start,
            stop,
            choice,
            Evidence("measured"),
        )
        for nodes, ppn, placement in shapes
        for start, stop in pairwise([*range(len(LAYOUTS) + 1), math.inf])
    )
    table = TuningTable(CLUSTER, library, rules)
    environment = preload_environment(
        mpich_launcher, table, tmp_path, TUNER_TUNE_AFTER_US="0", MPIR_CVAR_NUM_CLIQUES="2"
    )
    program = compiled(mpich_launcher, "preload_layouts.c", tmp_path)
    run = mpich_launcher.run(4, [*LAYOUTS], program=program, environment=environment)
    assert run.stdout.split() == ["done"]
    counts = read_counts(tmp_path / "report")
    found = {
        (rule.start_bytes, rule.key.nodes, rule.key.ppn, rule.key.placement): counts[rule.number]
        for rule in flat_rules((tmp_path / "flat").read_bytes())
        if counts[rule.number]
    }
    assert found == {
        (number, *layout): 2 * layout[0] * layout[1]  # the first call is the library's
        for number, layout in enumerate(LAYOUTS.values(), 1)
        if layout
    }
