"""What somebody wants of a table besides speed."""

from __future__ import annotations

import pytest

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import Choice
from tuner.select.constraints import Constraints, same_order

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
    assert same_order(OPENMPI, collective, Choice(name, params)) is expected


def test_reproducible_tables_have_no_other_reductions() -> None:
    wanted = Constraints(reproducible=True)
    assert not wanted.allow(MPICH, ALLREDUCE, Choice("ring"))
    assert wanted.allow(MPICH, ALLREDUCE, Choice("recursive_doubling"))
    assert wanted.allow(MPICH, BCAST, Choice("scatter_allgather"))
    assert wanted.allow(MPICH, ALLREDUCE, Choice())
    assert Constraints().allow(MPICH, ALLREDUCE, Choice("ring"))


def test_forbidden_algorithms_are_forbidden_everywhere_or_for_one_collective() -> None:
    wanted = Constraints(forbidden=frozenset({"linear", "allreduce:ring"}))
    assert not wanted.allow(OPENMPI, BCAST, Choice("linear"))
    assert not wanted.allow(OPENMPI, ALLREDUCE, Choice("ring", {"segment": 8}))
    assert wanted.allow(OPENMPI, Collective.ALLGATHER, Choice("ring"))


def test_names_that_were_not_measured_are_no_wish() -> None:
    """A design does not measure what is forbidden: a library's own algorithms are known, too."""
    measured = [(ALLREDUCE, Choice("odd")), (ALLREDUCE, Choice())]
    for name in ("ring", "allreduce:ring", "odd"):
        Constraints(forbidden=frozenset({name})).require_known(MPICH, measured)
    for name, of in (("rign", ""), ("bcast:ring", ""), ("allreduce:binomial", " of allreduce")):
        with pytest.raises(
            InputError, match=rf"be forbidden; these are{of}: odd, rabenseifner, recursive_doub"
        ):
            Constraints(forbidden=frozenset({name})).require_known(MPICH, measured)


def test_a_name_of_another_collective_is_not_offered() -> None:
    measured = [(ALLREDUCE, Choice("ring")), (BCAST, Choice("chain"))]
    with pytest.raises(InputError, match=r"these are of bcast: [^:]*\bchain\b") as found:
        Constraints(forbidden=frozenset({"bcast:ring"})).require_known(OPENMPI, measured)
    assert "rabenseifner" not in str(found.value)


@pytest.mark.parametrize(
    ("forbidden", "rules", "sentence"),
    [
        ("default", None, "default cannot be forbidden"),
        ("bcast:default", None, "default cannot be forbidden"),
        ("ring", 0, "cannot have 0 rules"),
    ],
)
def test_wishes_that_no_table_meets(forbidden: str, rules: int | None, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Constraints(forbidden=frozenset({forbidden}), rules=rules)


def test_ladders_are_for_all_operators_unless_only_some_are_used() -> None:
    assert Constraints().operators(ALLREDUCE) == ("any", "commutative")
    assert Constraints(commutative_only=True).operators(ALLREDUCE) == ("commutative",)
    assert Constraints(commutative_only=True).operators(BCAST) == ("any",)
    record = Constraints(forbidden=frozenset({"b", "a"}), rules=3).record()
    assert record == {"forbidden": ["a", "b"], "rules": 3}
