"""Which rules are worth following."""

from tuner.runtime.following import pays
from tuner.table import Evidence

SMALL = Evidence("measured", (8, 64), (4e-6, 5e-6), (2.9e-6, 3.5e-6))
LARGE = Evidence("measured", (1 << 20,), (900e-6,), (700e-6,))


def test_a_choice_must_save_more_than_it_costs_to_force_it() -> None:
    assert not pays(SMALL, 2e-6)
    assert pays(LARGE, 2e-6)
    assert pays(SMALL, 0.0)


def test_rules_without_times_are_followed() -> None:
    assert pays(Evidence("none"), 2e-6)
