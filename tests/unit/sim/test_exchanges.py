"""All-to-alls on equal links take as long as in SimGrid, whatever the lengths of their blocks.

SimGrid's times in `exchanges.csv` are of `python -m tests.bench.exchanges 40 --write FILE` with
SimGrid 3.32.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.support.exchanges import case_of
from tests.support.unequal_topologies import shared_ports
from tuner.sim import simulate

with Path(__file__).with_name("exchanges.csv").open(encoding="utf-8", newline="") as file:
    ROWS = [(int(row["seed"]), row["case"], float(row["seconds"])) for row in csv.DictReader(file)]


@pytest.mark.parametrize("engine", ["fast", "events"])
@pytest.mark.parametrize(("seed", "name", "seconds"), ROWS, ids=[name for _, name, _ in ROWS])
def test_times_are_simgrids(seed: int, name: str, seconds: float, engine: str) -> None:
    case = case_of(seed)
    assert case.name == name
    found = simulate(case.schedule, case.placement, shared_ports(case), case.nbytes, engine=engine)
    assert found == pytest.approx(seconds, rel=1e-9)
