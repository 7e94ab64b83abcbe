"""Running the real library under a table: what it executes, and what that gains."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tuner.cli import native
from tuner.cli.environments import libmpi
from tuner.cli.progress import Report, counted
from tuner.errors import InputError
from tuner.export import intelmpi, mpich
from tuner.export.formats import Wish
from tuner.export.heldout import heldout
from tuner.export.intelmpi import proof as intelmpi_proof
from tuner.export.mpich import proof as mpich_proof
from tuner.export.openmpi import proof as openmpi_proof
from tuner.export.prove import RuleProof
from tuner.export.variables import ranks_of
from tuner.measurement import Cluster
from tuner.probe.machine import local_cluster
from tuner.runtime.launch import Launcher, available_cores
from tuner.table import TuningTable
from tuner.units import format_size

COLUMNS = ("call", "ranks", "operators", "sizes", "tried at", "table", "executed", "confirmed")
ACTIVATION = {"openmpi": openmpi_proof.activation, "mpich": mpich_proof.activation}


PROVABLE = ("openmpi", "mpich", "intelmpi")


def prove(
    table: TuningTable, python: Path, native_file: Path, report: Report
) -> list[dict[str, Any]]:
    """One record per rule, of a file for Open MPI or MPICH.

    Raises InputError for a table of another computer or library.
    """
    starter = launcher(table, python)
    progress = counted(report)
    with tempfile.TemporaryDirectory(prefix="tuner-prove-") as place:
        if starter.library == "openmpi":
            proofs = openmpi_proof.prove(
                table, native_file, starter, Path(place), progress=progress
            )
        else:
            kept, _ = mpich.portable(table)
            generic = mpich.generic_tuning(libmpi("mpich", python))
            proofs = mpich_proof.prove(
                kept, native_file, generic, starter, Path(place), progress=progress
            )
    return [_record(proof) for proof in proofs]


def _prove_intelmpi(
    table: TuningTable, python: Path, wish: Wish, report: Report
) -> list[dict[str, Any]]:
    """One record per rule; variables are for one number of ranks, so each has its own file."""
    starter, otherwise = launcher(table, python), intelmpi.otherwise_of(wish.otherwise)
    proofs = list[RuleProof]()
    with tempfile.TemporaryDirectory(prefix="tuner-prove-") as place:
        file = Path(place, "adjust.sh")
        for ranks in ranks_of(table) if wish.ranks is None else (wish.ranks,):
            file.write_text(
                intelmpi.DIALECT.emit(
                    table, ranks, otherwise=otherwise, commutative_only=wish.commutative_only
                )
            )
            proofs += intelmpi_proof.prove(
                table, file, starter, Path(place), ranks=ranks, otherwise=otherwise,
                commutative_only=wish.commutative_only, progress=counted(report),
            )  # fmt: skip
    return [_record(proof) for proof in proofs]


def compare(
    table: TuningTable, python: Path, native_file: Path, seconds: float, report: Report
) -> list[dict[str, Any]]:
    """Tuned against default on sizes that were not probed; one record per size."""
    starter = launcher(table, python)
    # MPICH's file tells operators apart, Open MPI's cannot: there every operator gets safe rules.
    operators = "any" if starter.library == "openmpi" else "commutative"
    kept = table if starter.library == "openmpi" else mpich.portable(table)[0]
    with tempfile.TemporaryDirectory(prefix="tuner-heldout-") as place:
        points = heldout(
            kept, starter, Path(place), ACTIVATION[starter.library](native_file),
            operators=operators, seconds=seconds, cores=available_cores(),
            progress=counted(report),
        )  # fmt: skip
    return [{**asdict(point), "ci95": list(point.ci95)} for point in points]


def prove_exported(
    table: TuningTable, python: Path, wish: Wish, report: Report
) -> list[dict[str, Any]]:
    """Export to a temporary file and prove that. Raises InputError for a library that cannot be."""
    library = table.library.partition(" ")[0]
    if library not in PROVABLE:
        raise InputError(
            f"{library} is not started here: only {', '.join(PROVABLE)} are; `tuner table check`"
            " reads the file as it does"
        )
    if library == "intelmpi":
        return _prove_intelmpi(table, python, wish, report)
    text, _ = native.export(table, library, python)
    with tempfile.TemporaryDirectory(prefix="tuner-export-") as place:
        path = Path(place, "exported")
        path.write_text(text, encoding="utf-8")
        return prove(table, python, path, report)


def launcher(table: TuningTable, python: Path) -> Launcher:
    """For the library of the table; raises InputError when this is not where it was made."""
    starter = Launcher.find(table.library.partition(" ")[0], python)
    here = local_cluster()
    if table.cluster != here:
        raise InputError(
            f"the table is for {_place(table.cluster)}, but this is {_place(here)}: make a table"
            " here with `tuner quickstart`"
        )
    if table.library != starter.version():
        raise InputError(
            f"the table is for {table.library}, but {python} runs {starter.version()}: give"
            " --python of an environment with that version, or make a new table"
        )
    return starter


def _place(cluster: Cluster) -> str:
    return f"{cluster.name} ({cluster.nodes} x {cluster.cores} cores, {cluster.cpu})"


def _record(proof: RuleProof) -> dict[str, Any]:
    rule = proof.rule
    return {
        "collective": rule.key.collective.value, "p": rule.key.p, "operators": rule.key.operators,
        "lo": rule.lo, "hi": "inf" if rule.hi == math.inf else rule.hi,
        "nbytes": proof.sizes[0] if proof.sizes else rule.lo, "sizes": list(proof.sizes),
        "expected": str(rule.choice),
        "executed": ", ".join(dict.fromkeys(map(str, proof.executed))),
        "confirmed": proof.confirmed, "reason": proof.reason,
    }  # fmt: skip


def rows(proofs: Iterable[Mapping[str, Any]]) -> list[Sequence[str]]:
    """Table rows for people."""
    return [
        (
            proof["collective"], str(proof["p"]), proof["operators"],
            f"[{format_size(proof['lo'])}, {format_size(float(proof['hi']))})",
            _span(proof["sizes"]), proof["expected"], proof["executed"],
            "yes" if proof["confirmed"] else f"no: {proof['reason']}",
        )
        for proof in proofs
    ]  # fmt: skip


def _span(sizes: Sequence[int]) -> str:
    if len(sizes) < 3:
        return ", ".join(map(format_size, sizes))
    return f"{len(sizes)} sizes, {format_size(sizes[0])} .. {format_size(sizes[-1])}"
