"""Defaults that were not measured, from the times of the algorithms that they run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuner.core.table import AlgorithmChoice
from tuner.select.cases import EvaluationCase
from tuner.select.dataset import CallPoint, DefaultRuns, Observation
from tuner.workflows import known_defaults
from tuner.workflows.known_defaults import default_algorithms, fill_in_defaults

DEFAULT, RING, TREE = AlgorithmChoice(), AlgorithmChoice("ring"), AlgorithmChoice("tree")


def case(nbytes: int, *choices: AlgorithmChoice, group: str = "ares") -> EvaluationCase:
    point = CallPoint("bcast", 2, 1, "host", nbytes)
    rows = {
        one: Observation(point, one, {0: (n + 1.0,)}, n + 1.0, n + 0.9, n + 1.1)
        for n, one in enumerate(choices)
    }
    return EvaluationCase(group, point, rows, "openmpi 4.1.6")


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library runs a ring up to 4 KiB, and then a chain, which is not measured."""

    def of_library(_library: str) -> DefaultRuns:
        return lambda point: RING if point.nbytes <= 4096 else AlgorithmChoice("chain")

    monkeypatch.setattr(known_defaults, "known_defaults", of_library)


def have_default(*cases: EvaluationCase) -> list[bool]:
    return [DEFAULT in one.observations for one in fill_in_defaults(cases)]


def test_the_default_takes_as_long_as_what_it_runs() -> None:
    (found,) = fill_in_defaults([case(64, TREE, RING)])
    assert found.observations[DEFAULT].seconds == found.observations[RING].seconds == 2.0
    assert have_default(case(64, RING)) == [False]  # nothing to choose


def test_where_some_calls_would_lack_it_none_has_it() -> None:
    """Calls without the default are not scored beside those that have it."""
    known, unknown, alone = case(64, RING, TREE), case(65536, RING, TREE), case(65536, RING)
    assert have_default(known, unknown) == [False, False]
    assert have_default(known, alone) == [True, False]
    assert have_default(known, case(65536, RING, TREE, group="zeus")) == [True, False]


def test_where_some_calls_have_it_measured_others_get_it() -> None:
    measured = case(65536, RING, TREE, DEFAULT)
    assert have_default(case(64, RING, TREE), case(8192, RING, TREE), measured) == [
        True,
        False,
        True,
    ]


def test_rules_are_not_kept_for_calls_of_which_some_have_other_rules() -> None:
    """MPI_Reduce_scatter_block, of no known library, is trained on with MPI_Reduce_scatter."""
    known, block = case(64, RING, TREE), replace(case(64, DEFAULT, RING), library="")
    elsewhere = case(64, RING, TREE, group="zeus")
    (kept,) = default_algorithms([known, elsewhere])["ares"]
    assert kept.choice_at(64) == RING
    assert default_algorithms([known, block, elsewhere]).keys() == {"zeus"}
    other = replace(known, point=replace(known.point, collective="allreduce"))
    found = default_algorithms([known, block, other])["ares"]
    assert [each.collective for each in found] == ["allreduce"]
