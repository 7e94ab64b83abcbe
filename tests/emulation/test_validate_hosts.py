"""What real libraries run on several hosts under exported files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.emulation.topologies import FLAT
from tests.support.ladders import Rungs, spread, table_of
from tests.support.waiting import patience
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable, write_table
from tuner.launch import Launcher

BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE
HOSTS = ("--hosts", "node0,node1,node2,node3")


def validations(
    table: TuningTable, folder: Path, *words: str
) -> tuple[int, list[dict[str, object]]]:
    """Status and answer of `tuner table validate` on the first host of the flat cluster."""
    (folder / "flat.yaml").write_text(FLAT)
    write_table(table, folder / "t.json")
    tuner = [sys.executable, "-m", "tuner.cli.main"]
    prove = ["table", "validate", "t.json", "--json", *HOSTS, *words]
    done = subprocess.run(
        [*tuner, "emulate", "run", "flat.yaml", "--", *tuner, *prove],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=patience(),
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout[done.stdout.index("[") :])


@pytest.mark.parametrize(("nodes", "ppn"), [(4, 1), (2, 2)])
def test_open_mpi_follows_the_rules_and_keeps_han_elsewhere(
    launcher: Launcher, tmp_path: Path, nodes: int, ppn: int
) -> None:
    chain = AlgorithmChoice("chain", {"chains": 2, "segment": 8192})
    ladders: dict[Collective, Rungs] = {
        BCAST: [(0, AlgorithmChoice()), (1024, chain)],
        ALLREDUCE: [(0, AlgorithmChoice("recursive_doubling")), (4096, AlgorithmChoice())],
    }
    table = spread(nodes, ppn, ladders, launcher.version())
    status, found = validations(table, tmp_path)
    assert [validation["reason"] for validation in found] == [""] * 4
    assert status == 0


def test_mpich_follows_the_file_on_hosts(mpich_launcher: Launcher, tmp_path: Path) -> None:
    ladders: dict[Collective, Rungs] = {
        BCAST: [(0, AlgorithmChoice()), (1024, AlgorithmChoice("binomial"))]
    }
    table = spread(4, 1, ladders, mpich_launcher.version())
    status, found = validations(table, tmp_path, "--python", str(mpich_launcher.python))
    assert [validation["reason"] for validation in found] == ["", ""]
    assert status == 0


def test_every_shape_of_as_many_ranks_is_tried(launcher: Launcher, tmp_path: Path) -> None:
    """A file knows only the number of ranks, so their rules are one in it: still each is proved."""
    ladders: dict[Collective, Rungs] = {
        BCAST: [(0, AlgorithmChoice()), (4096, AlgorithmChoice("binomial"))]
    }
    shapes = [spread(*shape, ladders, launcher.version()) for shape in ((2, 2), (4, 1))]
    rules = tuple(rule for shape in shapes for rule in shape.rules)
    status, found = validations(TuningTable(shapes[0].cluster, launcher.version(), rules), tmp_path)
    assert [validation["reason"] for validation in found] == [""] * 4
    assert status == 0


def test_what_han_makes_inside_is_told(launcher: Launcher, tmp_path: Path) -> None:
    """It keeps the allreduce on two hosts, whose parts are broadcasts of two ranks each."""
    inner = table_of(
        {(BCAST, 2): [(0, AlgorithmChoice("chain", {"chains": 2, "segment": 1024}))]}, (64,)
    )
    defaults: dict[Collective, Rungs] = {
        ALLREDUCE: [(0, AlgorithmChoice())],
        Collective.REDUCE: [(0, AlgorithmChoice())],
    }
    kept = spread(2, 2, defaults, launcher.version())
    table = TuningTable(kept.cluster, kept.library, (*kept.rules, *inner.rules))
    status, (allreduce, bcast, reduce) = validations(table, tmp_path)
    assert (bcast["reason"], reduce["reason"]) == ("", "")  # nothing of a reduce follows a rule
    assert "han keeps the call, but what it is made of follows the rules, too: bcast chain" in str(
        allreduce["reason"]
    )
    assert status == 1
