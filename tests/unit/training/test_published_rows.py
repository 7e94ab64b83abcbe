"""Published training results within their tolerances."""

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.bench.megatron import LLAMA, TABLE, Case, LlamaCase
from tests.bench.published_training import (
    EFFICIENCY,
    EXAMPLES,
    RATE,
    ROWS,
    Row,
    is_within,
    predicted,
)
from tuner.machines.loader import load_machine
from tuner.training.workload import read_workload

# Of these, schedules of many ranks are simulated, or numbers of servers are tried.
SLOW = ("s-caffe", "horovod-64", "shm", "cntk", "parameter-server")
WEEKLY = ("s-caffe", "cntk-cpu-salar")
FIRST = {row.file: row for row in reversed(ROWS)}


def marked(row: Row) -> ParameterSet:
    """Leave what takes seconds, and further rows with parameter servers, to the weekly tests."""
    repeats = row.file.startswith("parameter-server") and row is not FIRST[row.file]
    slow, weekly = row.file.startswith(SLOW), repeats or row.file.startswith(WEEKLY)
    marks = [pytest.mark.slow] * slow + [pytest.mark.weekly] * weekly
    return pytest.param(row, marks=marks, id=row.name)


@pytest.mark.parametrize("row", [marked(row) for row in ROWS])
def test_published_result_is_predicted_within_its_tolerance(row: Row) -> None:
    value = predicted(row)
    assert is_within(row, value), f"{row.name}: published {row.published:g}, predicted {value:g}"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_a_machine_or_a_workload_of_a_known_rate(path: Path) -> None:
    if "model:" in path.read_text():
        assert read_workload(path).rate.rate > 0
    else:
        assert load_machine(str(path), EXAMPLES).topology.nodes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("published", "case"),
    [
        pytest.param(*row[1:], id=str(row[0]), marks=[pytest.mark.extended] * (number in large))
        for rows, large in ((TABLE[2:8], (1, 3, 4, 5)), (LLAMA, (1,)))
        for number, row in enumerate(rows)
    ],
)
def test_transformers_reach_what_was_published_with_the_default_rate(
    published: float, case: Case | LlamaCase
) -> None:
    """Rows of Megatron-LM on A100 but the smallest and largest, and of Llama 3 405B on H100."""
    assert case.teraflops() == pytest.approx(published, rel=0.08)


@pytest.mark.weekly
@pytest.mark.slow
def test_examples_show_the_results_that_they_are_compared_with() -> None:
    compared = [row for row in ROWS if row.measure in (EFFICIENCY, RATE) and "shm" not in row.file]
    for row in compared:
        workload = read_workload(EXAMPLES / f"{row.file}.yaml")
        (shown,) = (one for one in workload.published if one.ranks == row.ranks)
        alone = workload.rate.rate
        value = shown.efficiency(alone)
        published = row.published / (row.ranks * alone if row.measure == RATE else 1.0)
        assert value == pytest.approx(published, abs=0.001), row.name


@pytest.mark.weekly
@pytest.mark.slow
def test_parameter_servers_lose_efficiency_between_64_and_128_gpus() -> None:
    rate = {
        row.ranks: predicted(row) / row.ranks
        for row in ROWS
        if row.file == "parameter-server-piz-daint" and row.ranks >= 32
    }
    assert rate[64] / rate[32] > 0.85
    assert rate[128] / rate[64] < 0.7
