"""Programs of Debian have the results under a table that they have without one."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from tests.programs.programs import PROGRAMS, Program
from tests.programs.results import largest_difference
from tests.support.mpich_suite import preload_tables
from tests.support.site import ROOT, WORK, Site, install
from tests.support.waiting import patience
from tuner.core.table import table_record
from tuner.preload.flat_table import write_flat_table
from tuner.preload.report import flat_rules, read_counts

INPUTS = ROOT / "tests" / "programs" / "inputs"
PACKAGE = "openmpi-bin"
TIMED_OUT = 124  # status of timeout(1)
TABLES = ("schedule", "forced", "mixed")
RANKS = max(program.ranks for program in PROGRAMS)
LIMIT_S = patience(30)


@dataclass(frozen=True)
class Run:
    """Keep the output of a run of a program and the seconds that it took."""

    output: str
    seconds: float


@dataclass(frozen=True)
class Table:
    """A table in a file of the site, and here the flat file that is made of it."""

    file: str
    flat: Path


@pytest.fixture(scope="session")
def tables(site: Site, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    """Return tables for the site's Open MPI, by name."""
    version = site.run("dpkg-query", "--show", "--showformat=${source:Upstream-Version}", PACKAGE)
    folder, found = tmp_path_factory.mktemp("tables"), {}
    for name, table in preload_tables(f"openmpi {version.stdout}", RANKS).items():
        found[name] = Table(f"{WORK}/{name}.json", folder / name)
        site.overlay.write(found[name].file, json.dumps(table_record(table)))
        assert write_flat_table(table, found[name].flat) == []
    return found


@pytest.fixture(scope="session")
def alone(site: Site) -> Callable[[Program], tuple[Run, Run]]:
    """Return a function that prepares a program and runs it twice without a table, once for all."""

    @cache
    def run_alone(program: Program) -> tuple[Run, Run]:
        install(site.overlay, program.packages)
        folder = f"{folder_of(program)}.prepared"
        commands = [
            f"mkdir -p {folder} && cd {folder}",
            f"cp {INPUTS / program.inputs}/* ." if program.inputs else "true",
            program.prepare or "true",
        ]
        prepared = site.run("sh", "-c", " && ".join(commands), timeout=LIMIT_S)
        assert prepared.returncode == 0, prepared.stderr
        return run(site, program), run(site, program)

    return run_alone


def folder_of(program: Program) -> str:
    return f"{WORK}/{program.name}"


def run(site: Site, program: Program, *tuner: str) -> Run:
    """Run a program, after the words of `tuner`, and have it find its results right."""
    launch = ["time", "-p", "mpirun", "-n", str(program.ranks), *program.command]
    words = [*tuner, "timeout", str(LIMIT_S), *launch]
    folder = folder_of(program)
    renewed = site.run("sh", "-c", f"rm -rf {folder} && cp -r {folder}.prepared {folder}")
    assert renewed.returncode == 0, renewed.stderr
    ended = site.run(*words, timeout=2 * LIMIT_S, folder=folder)
    output = ended.stdout
    if program.output:
        output = site.run("cat", program.output, folder=folder).stdout
    said = f"status {ended.returncode}: {(output + ended.stderr)[-3000:]}"
    assert ended.returncode != TIMED_OUT, f"no end within {LIMIT_S:.0f} s: {said}"
    assert ended.returncode == 0, said
    assert re.search(program.passes, output, re.MULTILINE), said
    time = re.search(r"^real ([\d.]+)$", ended.stderr, re.MULTILINE)
    assert time, said
    return Run(output, float(time[1]))


def calls_of_each_rank(table: Table, report: str, program: Program) -> dict[str, float]:
    """Return how many calls of each rank followed a rule of a table, by collective."""
    here, found = table.flat.with_suffix(".report"), Counter[str]()
    here.write_text(report)
    counts = read_counts(here)
    for rule in flat_rules(table.flat.read_bytes()):
        found[rule.key.collective.value] += counts[rule.number]
    return {name: calls / program.ranks for name, calls in found.most_common() if calls}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_results_are_those_without_a_table(
    site: Site,
    tables: dict[str, Table],
    alone: Callable[[Program], tuple[Run, Run]],
    program: Program,
    name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain, again = alone(program)
    own = largest_difference(plain.output, again.output, program.compared)
    assert own <= program.tolerance
    report = f"{folder_of(program)}/report"
    reporting = replace(site, environment={**site.environment, "TUNER_REPORT": report})
    tuner = (site.python, "-m", "tuner.cli.main", "run", "--table", tables[name].file, "--")
    followed = run(reporting, program, *tuner)
    calls = calls_of_each_rank(tables[name], site.run("cat", report).stdout, program)
    difference = largest_difference(plain.output, followed.output, program.compared)
    with capsys.disabled():
        print(
            f"\n{program.name}, {name}: {plain.seconds:.1f} and {again.seconds:.1f} s alone,"
            f" {followed.seconds:.1f} s under the table;"
            f" {', '.join(f'{c} {n:,.10g}' for c, n in calls.items())} calls followed;"
            f" results {f'within {difference:.0e}' if difference else 'identical'}"
            f"{f' ({own:.0e} alone)' if own else ''}"
        )
    assert difference <= program.tolerance
    assert calls
    assert name == "mixed" or calls.keys() >= program.follows
