"""MPICH's own test suite passes under native files and the preloaded library as without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mpich_suite import (
    BANDS,
    MAX_RANKS,
    SEGMENT,
    Entry,
    build,
    calls_of_rules,
    compare,
    entries,
    followed,
    preload_tables,
    preloaded,
    run_alone,
    run_entry,
    source,
    tables,
)
from tuner.core.collective import Collective
from tuner.launch import Launcher
from tuner.validation.timing import LaunchOptions
from tuner.validation.validate_openmpi import activation

LIBRARIES = {"openmpi": "launcher", "mpich": "mpich_launcher"}
N_TABLES = {"openmpi": 4, "mpich": 2}


@pytest.fixture(scope="module", autouse=True)
def _suite() -> None:
    try:
        source()
    except FileNotFoundError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[Entry, str]]:
    """Return the outcome of each entry without a file, for each library."""
    return {}


@pytest.mark.parametrize(
    ("library", "number"), [(name, n) for name, most in N_TABLES.items() for n in range(most)]
)
def test_as_without(
    request: pytest.FixtureRequest,
    outcomes: dict[str, dict[Entry, str]],
    library: str,
    number: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    launcher: Launcher = request.getfixturevalue(LIBRARIES[library])
    built, every = build(launcher), tables(launcher.version())
    assert len(every) == N_TABLES[library]
    side = followed(every[number], launcher, tmp_path)
    if library not in outcomes:
        outcomes[library] = run_alone(launcher, built)
    found = compare(launcher, built, side, outcomes[library])
    with capsys.disabled():
        print(f"\n{launcher.version()}, file {number + 1} of {len(every)}: {found}")
    assert found.failed == {}
    assert found.entries - len(found.failed_alone) > 150


@pytest.mark.parametrize("name", ["schedule", "forced", "mixed"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_as_without_the_preloaded_library(
    request: pytest.FixtureRequest,
    outcomes: dict[str, dict[Entry, str]],
    library: str,
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    launcher: Launcher = request.getfixturevalue(LIBRARIES[library])
    built = build(launcher)
    side = preloaded(preload_tables(launcher.version())[name], launcher, tmp_path)
    if library not in outcomes:
        outcomes[library] = run_alone(launcher, built)
    found = compare(launcher, built, side, outcomes[library])
    calls = calls_of_rules(side)
    used = sum(map(bool, calls.values()))
    with capsys.disabled():
        print(
            f"\n{launcher.version()}, preloaded, {name}: {found}\n"
            f"  {calls.total()} calls followed {used} of {len(calls)} rules"
        )
    assert found.failed == {}
    assert used > (150 if name == "schedule" else 50)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_tables_have_every_algorithm_at_every_band(
    request: pytest.FixtureRequest, library: str
) -> None:
    launcher: Launcher = request.getfixturevalue(LIBRARIES[library])
    bcast = [
        (rule.choice, rule.start_bytes)
        for table in tables(launcher.version())
        for rule in table.rules
        if rule.key.collective is Collective.BCAST and 1 < rule.key.p <= MAX_RANKS
    ]
    names = {choice for choice, _ in bcast}
    wanted = {(name, band) for name in names for band in BANDS[1:]}
    assert {choice.algorithm for choice in names} >= (
        {"split_binary", "chain"} if library == "openmpi" else {"binomial"}
    )
    assert wanted <= {*bcast}


def test_a_rule_that_ends_programs_is_noticed(launcher: Launcher, tmp_path: Path) -> None:
    """Intercommunicators of Open MPI call with a datatype of size 0."""
    rules, built = tmp_path / "openmpi.rules", build(launcher)
    (entry,) = (e for e in entries(built) if e.program == "icallgatherv")
    rules.write_text(f"1\n7\n1\n0\n1\n0 4 0 {SEGMENT}\n")
    ending = LaunchOptions(settings=activation(rules))
    assert "signal" in run_entry(launcher, built, ending, entry).lower()
    assert compare(launcher, built, ending, {entry: ""}).failed.keys() == {str(entry)}
