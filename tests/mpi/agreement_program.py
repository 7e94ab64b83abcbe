"""Run by mpirun: agrees on tables, one case of the JSON list in the first argument after another.

A case holds what all ranks are asked for (`all`) and what the last rank alone is asked for
(`last`): arguments of `resolve_request`, `environment`, `version` to pretend another one of the
library, and `otherwise` to understand the table in another way. For each case rank 0 prints what
every rank came to.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from mpi4py import MPI

from tuner.core.table import read_table
from tuner.runtime import agreement
from tuner.runtime.agreement import TableAgreement, agree_on_table, library_name
from tuner.runtime.consensus import run_together
from tuner.runtime.table_source import resolve_request

WORLD = MPI.COMM_WORLD


def outcome(agreed: TableAgreement) -> dict[str, Any]:
    rules = agreed.table.rules if agreed.table else ()
    return {
        "algorithms": sorted({rule.choice.algorithm for rule in rules}),
        "reason": agreed.reason,
        "version": agreed.version,
        "origin": agreed.origin,
    }


def play(case: dict[str, Any], comm: MPI.Intracomm) -> TableAgreement:
    """One agreement under the circumstances of this rank."""
    mine = case.get("all", {})
    if comm.rank == comm.size - 1:
        mine = case.get("last", mine)
    elif comm.rank == 0:
        mine = case.get("first", mine)
    asked = {name: mine[name] for name in ("table", "service", "cluster") if name in mine}
    if mine.get("as_object"):
        asked["table"] = read_table(Path(asked["table"]))
    usual, said = dict(os.environ), MPI.Get_library_version
    os.environ.update(mine.get("environment", {}))
    if "version" in mine:
        version = library_name().partition(" ")[2]
        vars(MPI)["Get_library_version"] = lambda: said().replace(version, mine["version"])
    understood = vars(agreement)["table_record"]
    if mine.get("otherwise"):
        vars(agreement)["table_record"] = lambda table: {}
    agreed, failure = run_together(
        comm, lambda ranks: agree_on_table(ranks, lambda: resolve_request(library_name(), **asked))
    )
    assert agreed is not None, failure
    vars(agreement)["table_record"] = understood
    os.environ.clear()
    os.environ.update(usual)
    vars(MPI)["Get_library_version"] = said
    return agreed


def main() -> None:
    reverse = MPI.Intracomm(WORLD.Split(0, -WORLD.rank))
    for case in json.loads(sys.argv[1]):
        comm = reverse if case.get("reverse") else WORLD
        outcomes = comm.allgather(outcome(play(case, comm)))
        if WORLD.rank == 0:  # always the same one: lines of two ranks may overtake each other
            print(json.dumps({"library": library_name(), "outcomes": outcomes}), flush=True)
    reverse.Free()


main()
