"""Calls that others in the same file show to be slow are found."""

from tuner.importers import parse_results
from tuner.overview.slow_calls import slow_calls

HEADER = "collective,algorithm,p,nodes,nbytes,median_s"


def _slow(*rows: str) -> list[str]:
    return slow_calls(parse_results("\n".join([HEADER, *rows, ""])))


def test_even_times_are_not_slow() -> None:
    assert _slow("bcast,default,8,8,1024,1e-5", "bcast,default,8,8,2048,2e-5") == []


def test_a_call_longer_than_a_larger_one_is_slow() -> None:
    found = _slow("bcast,default,8,8,16384,9e-5", "bcast,default,8,8,32768,4e-5")
    assert found == ["bcast of 16KiB on 8 ranks takes 90us, longer than one of 32KiB (40us)"]


def test_a_jump_of_the_times_is_slow() -> None:
    found = _slow("bcast,default,8,8,1024,1e-5", "bcast,default,8,8,2048,9e-5")
    assert found == ["bcast of 2KiB on 8 ranks takes 9.0 times as long as one of 1KiB"]


def test_a_default_slower_than_an_algorithm_is_slow() -> None:
    found = _slow(
        "bcast,default,8,8,1024,3e-5", "bcast,binomial,8,8,1024,1e-5", "bcast,chain,8,8,1024,2e-5"
    )
    assert found == [
        "the best algorithm of each call is 3.00 times as fast as the default (geometric mean of"
        " 1 call)",
        "bcast of 1KiB on 8 ranks: binomial is 3.00 times as fast as the default",
    ]


def test_a_call_longer_than_others_that_do_the_same_is_slow() -> None:
    found = _slow(
        "allreduce,default,8,8,1024,9e-5",
        "reduce,default,8,8,1024,2e-5",
        "bcast,default,8,8,1024,1e-5",
    )
    assert found == [
        "allreduce of 1KiB on 8 ranks takes 90us, longer than reduce and bcast of the same size"
        " (30us)"
    ]


def test_calls_on_other_ranks_are_not_compared() -> None:
    assert _slow("bcast,default,8,8,1024,9e-5", "bcast,default,4,4,2048,1e-5") == []


def test_the_worst_are_shown_and_the_others_counted() -> None:
    rows = [f"bcast,default,{p},{p},1024,{p}e-5" for p in range(2, 9)]
    rows += [f"bcast,default,{p},{p},2048,1e-5" for p in range(2, 9)]
    found = _slow(*rows)
    assert [one.split(" takes")[0] for one in found] == [
        "bcast of 1KiB on 8 ranks", "bcast of 1KiB on 7 ranks", "bcast of 1KiB on 6 ranks"
    ]  # fmt: skip
    assert found[-1].endswith("(and 4 more calls like this)")
