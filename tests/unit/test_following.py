"""Which rules are worth following."""

import math

import numpy as np
import pytest

from tuner.collective import Collective
from tuner.locality import CONSECUTIVE, CYCLIC
from tuner.runtime.following import LONGEST, countable, pays
from tuner.runtime.layout import regular
from tuner.table import NCCL, SCHEDULE, Choice, Evidence, Key, Rule

SMALL = Evidence("measured", (8, 64), (4e-6, 5e-6), (2.9e-6, 3.5e-6))
LARGE = Evidence("measured", (1 << 20,), (900e-6,), (700e-6,))


def test_a_choice_must_save_more_than_it_costs_to_force_it() -> None:
    assert not pays(SMALL, 2e-6)
    assert pays(LARGE, 2e-6)
    assert pays(SMALL, 0.0)


def test_rules_without_times_are_followed() -> None:
    assert pays(Evidence("none"), 2e-6)


def test_more_bytes_than_a_message_can_count_are_the_librarys() -> None:
    def split(
        lo: int, hi: float, choice: Choice, collective: Collective = Collective.BCAST
    ) -> list[tuple[int, float, Choice]]:
        rule = Rule(Key(collective, 1, 4), lo, hi, choice, Evidence("none"))
        return [(part.lo, part.hi, part.choice) for part in countable(rule)]

    ours, rest = Choice("binomial", {}, SCHEDULE), Choice()
    assert split(0, math.inf, ours) == [(0, LONGEST, ours), (LONGEST, math.inf, rest)]
    assert split(LONGEST + 8, math.inf, ours) == [(LONGEST + 8, math.inf, rest)]
    assert split(64, LONGEST, ours) == [(64, LONGEST, ours)]
    forced, other = Choice("binomial"), Choice("ring", {}, NCCL)
    assert split(0, math.inf, forced) == [(0, LONGEST, forced), (LONGEST, math.inf, rest)]
    assert split(0, math.inf, forced, Collective.REDUCE) == [(0, math.inf, forced)]
    for whole in (rest, other):
        assert split(0, math.inf, whole) == [(0, math.inf, whole)]


@pytest.mark.parametrize(
    ("firsts", "layout"),
    [
        ([0], (1, 1, CONSECUTIVE)),
        ([0, 0, 0, 0], (1, 4, CONSECUTIVE)),
        ([0, 1, 2], (3, 1, CONSECUTIVE)),
        ([0, 0, 2, 2, 4, 4], (3, 2, CONSECUTIVE)),
        ([0, 1, 0, 1], (2, 2, CYCLIC)),
        ([0, 1, 2, 0, 1, 2], (3, 2, CYCLIC)),
        ([0, 1, 0, 1, 0], None),
        ([0, 1, 0, 1, 1, 0], None),
        ([0, 0, 2], None),
        ([0, 0, 2, 2, 0, 2], None),
        ([0, 1, 1, 0], None),
    ],
)
def test_tables_are_for_as_many_ranks_on_every_node_consecutive_or_dealt_one_by_one(
    firsts: list[int], layout: tuple[int, int, str] | None
) -> None:
    """Rules were measured with ranks placed like this; all others are left to the library."""
    assert regular(np.array(firsts)) == layout
