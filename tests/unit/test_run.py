"""`tuner.run` makes Open MPI's algorithms forcible unless that would switch on anything else."""

from __future__ import annotations

import os

import pytest

from tuner.runtime.dynamic_rules import DYNAMIC_RULES_VARIABLE, enable_dynamic_rules


@pytest.mark.parametrize(
    ("name", "switched"),
    [
        ("OMPI_MCA_coll_tuned_allreduce_algorithm", False),
        ("OMPI_MCA_coll_tuned_dynamic_rules_filename", False),
        ("OMPI_MCA_coll_tuned_priority", True),
    ],
)
def test_what_the_environment_would_force_stays_off(
    monkeypatch: pytest.MonkeyPatch, name: str, switched: bool
) -> None:
    for known in [known for known in os.environ if known.startswith("OMPI_MCA_coll_tuned_")]:
        monkeypatch.delenv(known)
    monkeypatch.setenv(name, "1")
    with enable_dynamic_rules():
        assert (DYNAMIC_RULES_VARIABLE in os.environ) == switched
    assert DYNAMIC_RULES_VARIABLE not in os.environ
