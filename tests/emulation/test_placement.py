"""Ranks that are dealt to real hosts one by one: measured, tuned for and recognised."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.emulation.topologies import FLAT
from tests.support.ladders import table_of
from tests.support.waiting import patience
from tuner.core.collective import Collective
from tuner.core.measurement import read_measurements
from tuner.core.path_classes import BLOCK, CYCLIC, PLACEMENTS
from tuner.core.table import (
    SCHEDULE,
    AlgorithmChoice,
    RuleKey,
    TuningTable,
    read_table,
    write_table,
)
from tuner.launch import Launcher

TUNER = (sys.executable, "-m", "tuner.cli.main")
PROGRAM = ROOT / "tests" / "emulation" / "programs" / "followed.py"
DEALT = {"0011": BLOCK, "0101": CYCLIC}  # on another host than rank 0
BINOMIAL = AlgorithmChoice("binomial", runner=SCHEDULE)
CHAIN = AlgorithmChoice("chain", runner=SCHEDULE)
HOSTS = (
    "--hosts",
    "node0,node1",
    "--ppn",
    "2",
    "--shapes",
    "2x2",
    "--sizes",
    "4KiB,64KiB",
    "--collectives",
    "bcast,allreduce",
    "--repetitions",
    "6",
    "--placements",
    "consecutive,cyclic",
)


def on_hosts(folder: Path, *words: str) -> str:
    """What a command prints on the first host of the flat cluster."""
    (folder / "flat.yaml").write_text(FLAT)
    done = subprocess.run(
        [*TUNER, "emulate", "run", "flat.yaml", "--", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=patience(48),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def both(library: str, placements: Sequence[str]) -> TuningTable:
    """Another algorithm for each of these placements of two ranks on two hosts."""
    made = {BLOCK: BINOMIAL, CYCLIC: CHAIN}
    rules = tuple(
        replace(rule, key=RuleKey(Collective.BCAST, 2, 2, placement=kind))
        for kind in placements
        for rule in table_of({(Collective.BCAST, 4): [(0, made[kind])]}).rules
    )
    return TuningTable(table_of({}).cluster, library, rules)


@pytest.mark.parametrize("known", [PLACEMENTS, (BLOCK,), (CYCLIC,)], ids=",".join)
def test_ranks_follow_the_rules_for_their_own_placement_and_no_others(
    launcher: Launcher, tmp_path: Path, known: Sequence[str]
) -> None:
    write_table(both(launcher.version(), known), tmp_path / "t.json")
    started = (str(launcher.executable), "-np", "4", "--host", "node0:2,node1:2")
    program = ("-x", "PYTHONPATH", sys.executable, str(PROGRAM), str(tmp_path / "t.json"))
    said = on_hosts(tmp_path, *started, *program)
    found = json.loads(said.splitlines()[-1])
    assert len(found) == 24
    assert all(each["right"] for each in found)
    rules = {BLOCK: [str(BINOMIAL)], CYCLIC: [str(CHAIN)]}
    seen = set()
    for each in found:
        hosts = [0, 0, 0, 0]
        for rank, number in enumerate(each["order"]):
            hosts[number] = rank // 2
        dealt = DEALT.get("".join(str(int(host != hosts[0])) for host in hosts), "")
        assert each["layout"] == ([2, 2, dealt] if dealt else None)
        assert each["follows"] == (rules[dealt] if dealt in known else [])
        seen.add(dealt)
    assert seen == {BLOCK, CYCLIC, ""}


def test_both_placements_are_measured_in_one_launch_and_tuned_for(tmp_path: Path) -> None:
    words = ("probe", "run", *HOSTS, "--measure", "messages,collectives", "--budget", "60s")
    on_hosts(tmp_path, *TUNER, *words, "--out", "m.ndjson")
    measured = read_measurements(tmp_path / "m.ndjson")
    found = [one for one in measured.series if one.kind == "collective"]
    assert {one.placement for one in found} == set(PLACEMENTS)
    arms = {
        kind: {(o.subject, o.nbytes, o.algorithm) for o in found if o.placement == kind}
        for kind in PLACEMENTS
    }
    assert arms[BLOCK] == arms[CYCLIC]
    assert {one.launch for one in measured.series} == {0}
    before = (tmp_path / "m.ndjson").read_bytes()
    on_hosts(tmp_path, *TUNER, *words, "--out", "m.ndjson")  # resumes, and nothing lacks
    assert (tmp_path / "m.ndjson").read_bytes() == before
    for command in (
        ("calibrate", "m.ndjson", "--topology", "flat.yaml", "--out", "c.json"),
        (
            "tune",
            "--measurements",
            "m.ndjson",
            "--calibration",
            "c.json",
            "--topology",
            "flat.yaml",
            "--out",
            "t.json",
        ),
    ):
        subprocess.run([*TUNER, *command], cwd=tmp_path, check=True, capture_output=True)
    assert {key.placement for key in read_table(tmp_path / "t.json").keys} == set(PLACEMENTS)
    assert "2x2 cyclic" in on_hosts(tmp_path, *TUNER, "table", "show", "t.json")


def test_a_pipeline_crosses_the_network_more_often_between_cyclic_ranks(tmp_path: Path) -> None:
    """Once, or at every step: so the ranks lay as the series says."""
    words = ("probe", "run", *HOSTS, "--measure", "collectives", "--budget", "40s")
    on_hosts(tmp_path, *TUNER, *words, "--out", "m.ndjson")
    took = {
        one.placement: min(one.samples)
        for one in read_measurements(tmp_path / "m.ndjson").series
        if (one.subject, one.nbytes, one.algorithm) == ("bcast", 65536, "pipeline")
        and not one.params
    }
    assert took[CYCLIC] > 1.5 * took[BLOCK]
