"""Properties that follow from the records of the collectives."""

from __future__ import annotations

from tuner.core.collective import Collective


def test_substitutes_are_those_of_the_guidelines() -> None:
    """Compare with the patterns of Traeff, Gropp and Thakur, as PGMPITuneLib has them."""
    assert {str(one): {"+".join(others) for others in one.substitutes} for one in Collective} == {
        "bcast": {"scatter+allgather"},
        "reduce": {"allreduce", "reduce_scatter+gather"},
        "allreduce": {"reduce+bcast", "reduce_scatter+allgather"},
        "reduce_scatter": {"allreduce", "reduce+scatter"},
        "allgather": {"gather+bcast"},
        "gather": {"allgather"},
        "scatter": {"bcast"},
        "alltoall": set(),
        "alltoallv": set(),
        "allgatherv": set(),
        "barrier": {"allreduce"},
    }
