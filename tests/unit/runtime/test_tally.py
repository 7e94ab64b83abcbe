"""The line that says how many calls followed which rule."""

import pytest

from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.runtime.tally import CallTally

RING = AlgorithmChoice("ring", {}, SCHEDULE)


def test_calls_are_listed_the_most_frequent_first() -> None:
    tally = CallTally(0, to_stderr=False)
    tally.counter(Collective.ALLREDUCE, RING)[0] += 3
    tally.counter(Collective.BCAST, AlgorithmChoice("binomial"))[0] += 5
    tally.counter(Collective.BCAST, AlgorithmChoice())[0] += 1
    tally.count_as_library(Collective.ALLREDUCE, RING)
    assert tally.summary_line() == (
        f"9 calls of rank 0: 7 followed the table (5 bcast {AlgorithmChoice('binomial')},"
        " 2 allreduce"
        f" {RING}), 2 left to the library (1 allreduce, 1 bcast)"
    )


def test_the_line_is_printed_by_rank_0_alone(capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (1, 0):
        tally = CallTally(rank, to_stderr=True)
        tally.counter(Collective.BCAST, RING)[0] += 1
        for _ in range(2):
            tally.report()
    assert capsys.readouterr().err.splitlines() == [
        f"tuner: 1 call of rank 0: 1 followed the table (1 bcast {RING}), 0 left to the library",
        "tuner: 0 calls of rank 0: 0 followed the table, 0 left to the library",
    ]
