"""Which calls the field check chooses, and how it reads what `make tune` leaves."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.field.calls import Call, choose_calls, spread_sizes
from tests.field.tables import CheckError, Library, read_libraries


def rule(
    ranks: int, low: int, high: float, algorithm: str = "default", operators: str = "any"
) -> dict[str, Any]:
    key = {"collective": "allreduce", "nodes": 1, "ppn": ranks, "operators": operators}
    params = {"radix": 4} if algorithm == "knomial" else {}
    return {
        "key": {**key, "memory": "host"},
        "start_bytes": low,
        "stop_bytes": "inf" if high == inf else high,
        "choice": {"algorithm": algorithm, "params": params, "runner": "library"},
        "evidence": {"nbytes": [4, 1024, 65536]},
    }


RULES = [
    rule(2, 0, inf),
    rule(3, 0, 3328),
    rule(3, 3328, 319488, "knomial"),
    rule(3, 319488, inf),
    rule(3, 0, inf, "ring", "commutative"),
]


def tuned(folder: Path, name: str = "openmpi", use: Any = None) -> Path:
    """Write a directory like the one that `make tune` leaves."""
    (folder / name).mkdir(parents=True)
    (folder / "openmpi" / "openmpi.rules").touch() if name == "openmpi" else None
    table = {"library": f"{name} 5.0", "rules": RULES}
    (folder / name / "table.json").write_text(json.dumps(table))
    heldout = [
        {"collective": "allreduce", "p": 3, "nbytes": 5792, "ratio": 1.2, "ci95": [1.1, 1.3]}
    ]
    entry = {"heldout": heldout, **({"use": use} if use else {})}
    (folder / "report.json").write_text(json.dumps({"libraries": {name: entry}}))
    return folder


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return read_libraries(tuned(tmp_path))[0]


def test_rules_of_openmpi_are_those_for_any_operator(library: Library, tmp_path: Path) -> None:
    assert library.algorithm("allreduce", 3, 3327) == "default"
    assert library.algorithm("allreduce", 3, 3328) == "knomial(radix=4)"
    assert library.algorithm("allreduce", 3, 319488) == "default"
    assert library.algorithm("bcast", 3, 4) == "default"
    mpich = read_libraries(tuned(tmp_path / "other", "mpich"))[0]
    assert mpich.algorithm("allreduce", 3, 4) == "ring"
    assert mpich.algorithm("allreduce", 2, 4) == "default"


def test_calls_lie_in_the_ranges_of_the_rules_and_next_to_their_bounds(library: Library) -> None:
    calls = choose_calls(library)
    changed = [call for call in calls if call.changed and call.origin == "rule"]
    assert all(3328 <= call.nbytes < 319488 and call.ranks == 3 for call in changed)
    sizes = {(call.ranks, call.nbytes) for call in calls if call.origin == "rule"}
    assert {(3, 3324), (3, 3332), (3, 319484), (3, 319492)} <= sizes
    thirds = [
        sum(low <= call.nbytes < 4.6 * low for call in changed) for low in (3328, 15200, 69600)
    ]
    assert all(thirds)


def test_calls_avoid_what_was_probed_or_compared(library: Library) -> None:
    calls = choose_calls(library)
    for call in calls:
        if call.origin == "rule":
            assert call.nbytes not in (4, 1024, 65536, 5792)
            assert call.nbytes % 8 == 4
    assert [call for call in calls if call.origin == "report"] == [
        Call("allreduce", 3, 5792, "knomial(radix=4)", "report")
    ]
    assert {call.collective for call in calls if call.ranks == 2} >= {"gather", "barrier", "reduce"}
    blocks = [call for call in calls if call.collective in ("gather", "scatter", "allgather")]
    assert all(call.nbytes % (4 * call.ranks) == 0 for call in blocks)


def test_as_many_calls_are_left_to_the_default_as_are_changed(library: Library) -> None:
    chosen = [call for call in choose_calls(library) if call.origin == "rule"]
    assert sum(not call.changed for call in chosen) >= sum(call.changed for call in chosen) > 0


def test_the_same_seed_chooses_the_same_calls(library: Library) -> None:
    assert choose_calls(library, 1) == choose_calls(library, 1) != choose_calls(library, 2)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 20), st.sampled_from([4, 12]))
def test_spread_sizes_are_odd_multiples_within_bounds(
    low: int, width: int, number: int, unit: int
) -> None:
    for size in spread_sizes(low, low + width, number, unit, set(), Random(3)):
        assert low <= size < low + width
        assert size % (2 * unit) == unit


def test_use_is_what_readme_prints(tmp_path: Path) -> None:
    folder = tuned(tmp_path / "a")
    use = read_libraries(folder)[0].use
    rules = str(folder / "openmpi" / "openmpi.rules")
    assert use.command[-2:] == ("coll_tuned_dynamic_rules_filename", rules)
    folder = tuned(tmp_path / "b", "mpich")
    (folder / "mpich" / "mpich.json").touch()
    file = "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE"
    json_file = str(folder / "mpich" / "mpich.json")
    expected = {file: json_file, "MPIR_CVAR_DEVICE_COLLECTIVES": "none"}
    assert read_libraries(folder)[0].use.environment == expected
    (folder / "mpich" / "mpich-device.json").touch()
    assert read_libraries(folder)[0].use.environment == {
        file: json_file,
        "MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE": str(
            folder / "mpich" / "mpich-device.json"
        ),
    }


def test_use_of_the_report_is_taken_with_the_files_of_this_directory(tmp_path: Path) -> None:
    said = {
        "command": ["mpirun", "--mca", "coll_rules", "/elsewhere/tuner-out/openmpi/openmpi.rules"],
        "environment": {"SOME_VARIABLE": "1"},
    }
    folder = tuned(tmp_path, use=said)
    library = read_libraries(folder)[0]
    rules = folder / "openmpi" / "openmpi.rules"
    assert library.use.command == ("--mca", "coll_rules", str(rules))
    assert library.use.environment == {"SOME_VARIABLE": "1"}
    rules.write_text("2 # collectives")
    assert read_libraries(folder)[0].digest != library.digest


def test_bad_directories_get_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match="does not exist: run 'make tune' first"):
        read_libraries(tmp_path)
    folder = tuned(tmp_path / "a")
    with pytest.raises(CheckError, match="has no library 'lam'; it has: openmpi"):
        read_libraries(folder, ["lam"])
    (folder / "openmpi" / "table.json").write_text('{"library": "openmpi 5", "rules": [{}]}')
    with pytest.raises(CheckError, match=r"unexpected content in .*table.json"):
        read_libraries(folder)
    (folder / "report.json").write_text("{")
    with pytest.raises(CheckError, match=r"report.json is not JSON"):
        read_libraries(folder)
