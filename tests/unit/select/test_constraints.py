"""What somebody wants of a table besides speed."""

from __future__ import annotations

import pytest

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.select.constraints import Constraints, is_reproducible

OPENMPI, MPICH = "openmpi 5.0.11", "mpich 5.0.2"
ALLREDUCE, BCAST, REDUCE = Collective.ALLREDUCE, Collective.BCAST, Collective.REDUCE


@pytest.mark.parametrize(
    ("collective", "name", "params", "expected"),
    [
        (ALLREDUCE, "recursive_doubling", {}, True),
        (ALLREDUCE, "linear", {}, True),
        (ALLREDUCE, "rabenseifner", {}, True),
        (ALLREDUCE, "ring", {}, False),
        (ALLREDUCE, "segmented_ring", {"segment": 8192}, False),
        (REDUCE, "binomial", {}, True),
        (REDUCE, "pipeline", {"segment": 1024}, True),
        (ALLREDUCE, "nonoverlapping", {}, False),  # is made of what the library decides
        (ALLREDUCE, "something_else", {}, False),
        (Collective.REDUCE_SCATTER, "ring", {}, False),
    ],
)
def test_who_combines_every_element_in_one_order(
    collective: Collective, name: str, params: dict[str, int], expected: bool
) -> None:
    assert is_reproducible(OPENMPI, collective, AlgorithmChoice(name, params)) is expected


def test_reproducible_tables_have_no_other_reductions() -> None:
    wanted = Constraints(reproducible=True)
    assert not wanted.is_allowed(MPICH, ALLREDUCE, AlgorithmChoice("ring"))
    assert wanted.is_allowed(MPICH, ALLREDUCE, AlgorithmChoice("recursive_doubling"))
    assert wanted.is_allowed(MPICH, BCAST, AlgorithmChoice("scatter_allgather"))
    assert wanted.is_allowed(MPICH, ALLREDUCE, AlgorithmChoice())
    assert Constraints().is_allowed(MPICH, ALLREDUCE, AlgorithmChoice("ring"))


def test_forbidden_algorithms_are_forbidden_everywhere_or_for_one_collective() -> None:
    wanted = Constraints(excluded_algorithms=frozenset({"linear", "allreduce:ring"}))
    assert not wanted.is_allowed(OPENMPI, BCAST, AlgorithmChoice("linear"))
    assert not wanted.is_allowed(OPENMPI, ALLREDUCE, AlgorithmChoice("ring", {"segment": 8}))
    assert wanted.is_allowed(OPENMPI, Collective.ALLGATHER, AlgorithmChoice("ring"))


def test_names_that_were_not_measured_are_no_wish() -> None:
    """A design does not measure what is forbidden: a library's own algorithms are known, too."""
    measured = [(ALLREDUCE, AlgorithmChoice("odd")), (ALLREDUCE, AlgorithmChoice())]
    for name in ("ring", "allreduce:ring", "odd"):
        Constraints(excluded_algorithms=frozenset({name})).check_excluded_names(MPICH, measured)
    for name, of in (("rign", ""), ("bcast:ring", ""), ("allreduce:binomial", " of allreduce")):
        with pytest.raises(
            InputError, match=rf"be excluded; these are{of}: odd, rabenseifner, recursive_doub"
        ):
            Constraints(excluded_algorithms=frozenset({name})).check_excluded_names(MPICH, measured)


def test_a_name_of_another_collective_is_not_offered() -> None:
    measured = [(ALLREDUCE, AlgorithmChoice("ring")), (BCAST, AlgorithmChoice("chain"))]
    with pytest.raises(InputError, match=r"these are of bcast: [^:]*\bchain\b") as found:
        Constraints(excluded_algorithms=frozenset({"bcast:ring"})).check_excluded_names(
            OPENMPI, measured
        )
    assert "rabenseifner" not in str(found.value)


@pytest.mark.parametrize(
    ("forbidden", "rules", "sentence"),
    [
        ("default", None, "default cannot be excluded"),
        ("bcast:default", None, "default cannot be excluded"),
        ("ring", 0, "cannot have 0 rules"),
    ],
)
def test_wishes_that_no_table_meets(forbidden: str, rules: int | None, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Constraints(excluded_algorithms=frozenset({forbidden}), max_rules=rules)


def test_ladders_are_for_all_operators_unless_only_some_are_used() -> None:
    assert Constraints().operator_classes(ALLREDUCE) == ("any", "commutative")
    assert Constraints(commutative_only=True).operator_classes(ALLREDUCE) == ("commutative",)
    assert Constraints(commutative_only=True).operator_classes(BCAST) == ("any",)
    record = Constraints(excluded_algorithms=frozenset({"b", "a"}), max_rules=3).record()
    assert record == {"forbidden": ["a", "b"], "rules": 3}
