"""Tables: rules without gap or overlap, looked up, written and read; one sentence for all else."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster
from tuner.core.table import (
    AlgorithmChoice,
    Evidence,
    Rule,
    RuleKey,
    TuningTable,
    parse_table,
    read_table,
    write_table,
)

LAB = Cluster("lab", 1, 4, "a CPU", 2**34)
KEY = RuleKey(Collective.BCAST, 1, 4)


def rule(lo: int, hi: float, name: str = "default") -> Rule:
    choice = AlgorithmChoice(name, {"segment": 8} if name == "chain" else {})
    evidence = Evidence("measured", (lo,), (2e-6,), (1e-6,), (), 2.0, (1.8, 2.2), "linear")
    return Rule(KEY, lo, hi, choice, evidence)


def test_tables_survive_being_written(tmp_path: Path) -> None:
    table = TuningTable(
        LAB, "openmpi 5.0.11", (rule(100, math.inf, "chain"), rule(0, 100)), {"x": 1}
    )
    write_table(table, tmp_path / "t.json")
    read = read_table(tmp_path / "t.json")
    assert (read.rules, read.cluster, read.provenance) == (table.rules, LAB, {"x": 1})


@pytest.mark.parametrize(
    ("nbytes", "name"), [(0, "a"), (99, "a"), (100, "b"), (199, "b"), (200, "c"), (10**12, "c")]
)
def test_lookup_at_the_boundaries(nbytes: int, name: str) -> None:
    table = TuningTable(
        LAB, "x", (rule(0, 100, "a"), rule(100, 200, "b"), rule(200, math.inf, "c"))
    )
    found = table.lookup(KEY, nbytes)
    assert found is not None
    assert found.choice.algorithm == name
    assert table.lookup(replace(KEY, ppn=3), nbytes) is None


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ([rule(1, math.inf)], "should start at 0"),
        ([rule(0, 10), rule(11, math.inf)], "should start at 10"),
        ([rule(0, 10), rule(9, math.inf)], "should start at 10"),
        ([rule(0, 10)], "the last rule must end at inf"),
        ([rule(0, 0), rule(0, math.inf)], "end above its start"),
    ],
)
def test_gaps_and_overlaps_are_refused(rules: list[Rule], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        TuningTable(LAB, "x", tuple(rules))


def test_calls_without_a_size_have_one_rule() -> None:
    key = replace(KEY, collective=Collective.BARRIER)
    whole, *parts = (
        replace(one, key=key) for one in (rule(0, math.inf), rule(0, 10), rule(10, math.inf))
    )
    assert TuningTable(LAB, "x", (whole,)).lookup(replace(key, memory="cuda"), 4) == whole
    with pytest.raises(InputError, match="barrier on 1x4 ranks: its calls have no size: give one"):
        TuningTable(LAB, "x", tuple(parts))


def test_a_file_that_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    for text in ("", "[]", "{}", '{"kind": "table"'):
        path.write_text(text)
        with pytest.raises(InputError, match="not a tuning table"):
            read_table(path)
    path.write_text(json.dumps({"kind": "table", "version": 9}))
    with pytest.raises(InputError, match=r"version 9 of its format, where \d was expected"):
        read_table(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name: flat8\nnodes: 8\n", "no JSON, or a damaged one, at line 1"),
        ('{"kind": "probe", "version": 1}\n{"kind": "end"}\n', "no JSON, .* at line 2"),
        ("\udcff", "no text"),
        ('{"version": 1, "paths": []}', "a file of another kind"),
        ("[" * 100_000, "nested too deep"),
        ('{"kind": "table", "version": 1, "rules": []}', "it lacks 'cluster'"),
        ('{"kind": "table", "version": 1, "rules": 5}', "its rules are not a list"),
        (
            '{"kind": "table", "version": 1, "rules": [{"key": {}}]}',
            "a rule key lacks collective, ",
        ),
        (
            '{"kind": "table", "version": 1, "rules": [], "cluster": {"x": 1}}',
            "unknown in the cluster: 'x'",
        ),
        (
            '{"kind": "table", "version": 1, "rules": [], "cluster": 5}',
            "the cluster must be a mapping, got 5",
        ),
    ],
)
def test_why_it_is_none_is_said_without_the_inside(text: str, why: str) -> None:
    encoded = text.encode("utf-8", "surrogateescape")
    with pytest.raises(InputError, match=rf"not a tuning table \(.*{why}.*make one") as refused:
        parse_table(encoded)
    assert not re.search("Error|__init__|char |codec|indices|object", str(refused.value))


@pytest.mark.parametrize("name", ["ring\x1b[2J", "a\nb", "\x07"])
def test_names_that_a_terminal_would_obey_are_none(name: str) -> None:
    for wrong in ((name, {}), ("ring", {name: 1})):
        with pytest.raises(
            ValueError, match="is not a name of an algorithm or a parameter"
        ) as refused:
            AlgorithmChoice(*wrong)
        assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"start_bytes": 0', '"start_bytes": "0"'),
        ('"start_bytes": 0', '"start_bytes": false'),
        ('"stop_bytes": 100', '"stop_bytes": NaN'),
        ('"nodes": 1', '"nodes": "1"'),
        ('"ppn": 4', '"ppn": 0'),
        ('"operators": "any"', '"operators": "most"'),
        ('"collective": "bcast"', '"collective": "broadcast"'),
        ('"params": {}', '"params": null'),
        ('"params": {}', '"params": {"segment": "8"}'),
        ('"gain": 2.0', '"gain": "2.0"'),
        ('"algorithm"', '"name"'),
        ('"rules": [', '"rules": [7, '),
        ('"library": "x"', '"library": ["x"]'),
        ('"provenance": {}', '"provenance": 5'),
    ],
)
def test_tables_with_impossible_values(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "t.json"
    write_table(TuningTable(LAB, "x", (rule(0, 100), rule(100, math.inf))), path)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError, match=r"t\.json: "):
        read_table(path)


@pytest.mark.parametrize(
    "told",
    [
        {"default_s": ()},
        {"chosen_s": ()},
        {"default_s": (1e-6, 2e-6)},
        {"nbytes": ()},
        {"predicted_s": (1e-6, 1e-6)},
    ],
)
def test_evidence_tells_times_of_every_size_or_none(tmp_path: Path, told: dict[str, Any]) -> None:
    path, whole = tmp_path / "t.json", rule(0, math.inf, "chain")
    for silent in ({}, {"predicted_s": (1e-6,)}, {"default_s": (), "chosen_s": ()}):
        some = replace(whole, evidence=replace(whole.evidence, **silent))
        write_table(TuningTable(LAB, "x", (some,)), path)
        assert read_table(path).rules == (some,)
        assert main(["table", "show", str(path)]) == 0
        asked = ["--collective", "bcast", "--ranks", "4", "--size", "8"]
        assert main(["select", str(path), *asked]) == 0
    wrong = replace(whole, evidence=replace(whole.evidence, **told))
    write_table(TuningTable(LAB, "x", (wrong,)), path)
    with pytest.raises(InputError, match=r"bcast on 1x4 ranks from 0 bytes on: of . sizes there"):
        read_table(path)
