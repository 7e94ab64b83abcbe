"""Storing and reading back: what comes out equals what went in."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from tuner.collective import Collective
from tuner.cost import Calibration, calibration_from_record, calibration_record
from tuner.db.mapping import (
    CalibrationRow,
    ClusterRow,
    HeldoutRow,
    ProbeRow,
    ProofRow,
    RuleRow,
    SeriesRow,
    TableRow,
)
from tuner.errors import InputError
from tuner.measurement import Cluster, Measurement, Measurements
from tuner.table import Choice, Evidence, Key, Rule, TuningTable

_SERIES_FIELDS = ("kind", "subject", "nodes", "ppn", "p", "nbytes", "algorithm", "memory",
                  "launch")  # fmt: skip
_PROOF_FIELDS = ("collective", "p", "nbytes", "expected", "executed", "confirmed", "reason")
_HELDOUT_FIELDS = ("collective", "p", "nbytes", "algorithm", "default_s", "tuned_s", "ratio")


def store_measurements(session: Session, measurements: Measurements) -> int:
    """Id of the stored probe; content that is already there is not stored again."""
    digest = _digest(asdict(measurements))
    known = session.scalar(select(ProbeRow.id).where(ProbeRow.digest == digest))
    if known is not None:
        return known
    row = ProbeRow(
        cluster=_cluster_row(session, measurements.cluster), library=measurements.library,
        provenance=dict(measurements.provenance), digest=digest,
        series=[_series_row(*numbered) for numbered in enumerate(measurements.series)],
    )  # fmt: skip
    session.add(row)
    session.flush()
    return row.id


def load_measurements(session: Session, probe_id: int) -> Measurements:
    """Raises InputError when there is no such probe."""
    row = session.get(ProbeRow, probe_id)
    if row is None:
        raise InputError(f"the database has no measurements {probe_id}")
    series = tuple(
        Measurement(
            **{name: getattr(entry, name) for name in _SERIES_FIELDS},
            params=entry.params, samples=tuple(entry.samples),
        )
        for entry in row.series
    )  # fmt: skip
    return Measurements(_cluster(row.cluster), row.library, row.provenance, series)


def store_calibration(
    session: Session, calibration: Calibration, measurements_id: int | None = None
) -> int:
    """Id of the stored calibration, made from these measurements; stored once per content."""
    content = calibration_record(calibration)
    digest = _digest([content, measurements_id])
    known = session.scalar(select(CalibrationRow.id).where(CalibrationRow.digest == digest))
    if known is not None:
        return known
    row = CalibrationRow(
        probe_id=measurements_id, cluster=calibration.cluster, library=calibration.library,
        content=content, digest=digest,
    )  # fmt: skip
    session.add(row)
    session.flush()
    return row.id


def load_calibration(session: Session, calibration_id: int) -> Calibration:
    """Raises InputError when there is no such calibration."""
    row = session.get(CalibrationRow, calibration_id)
    if row is None:
        raise InputError(f"the database has no calibration {calibration_id}")
    return calibration_from_record(row.content)


def store_table(
    session: Session,
    table: TuningTable,
    measurements_id: int | None = None,
    calibration_id: int | None = None,
) -> int:
    """The new version. Every call makes one, so that the newest version is the newest decision."""
    row = TableRow(
        cluster=_cluster_row(session, table.cluster), library=table.library,
        provenance=dict(table.provenance), probe_id=measurements_id,
        calibration_id=calibration_id,
        rules=[_rule_row(*numbered) for numbered in enumerate(table.rules)],
    )  # fmt: skip
    session.add(row)
    session.flush()
    return row.version


def load_table(
    session: Session,
    version: int | Literal["latest"] = "latest",
    cluster: Cluster | None = None,
    library: str | None = None,
) -> TuningTable:
    """This version, or the latest one for `cluster` and `library` (None: whichever).

    Raises InputError when there is none.
    """
    query = select(TableRow).join(ClusterRow).order_by(TableRow.version.desc()).limit(1)
    if version != "latest":
        query = query.where(TableRow.version == version)
    if cluster is not None:
        query = query.where(*_equals(cluster))
    if library is not None:
        query = query.where(TableRow.library == library)
    row = session.scalar(query)
    if row is None:
        wanted = f"{cluster.name if cluster else 'any cluster'}, {library or 'any library'}"
        raise InputError(f"the database has no tuning table, version {version}, for {wanted}")
    rules = tuple(_rule(entry) for entry in row.rules)
    return TuningTable(_cluster(row.cluster), row.library, rules, row.provenance)


def store_proofs(session: Session, version: int, proofs: Sequence[Mapping[str, Any]]) -> None:
    """Records of collective, p, nbytes, expected, executed, confirmed (bool) and reason."""
    for proof in proofs:
        session.add(ProofRow(version=version, **{name: proof[name] for name in _PROOF_FIELDS}))
    session.flush()


def load_proofs(session: Session, version: int) -> list[dict[str, Any]]:
    """In the order stored; empty when nothing was proved."""
    rows = session.scalars(
        select(ProofRow).where(ProofRow.version == version).order_by(ProofRow.id)
    )
    return [{name: getattr(row, name) for name in _PROOF_FIELDS} for row in rows]


def store_heldout(session: Session, version: int, results: Sequence[Mapping[str, Any]]) -> None:
    """The `heldout` records of a report: collective, p, nbytes, algorithm, default_s, tuned_s
    (seconds), ratio and ci95 (a pair).
    """
    for result in results:
        low, high = result["ci95"]
        fields = {name: result[name] for name in _HELDOUT_FIELDS}
        session.add(HeldoutRow(version=version, **fields, ci95_low=low, ci95_high=high))
    session.flush()


def load_heldout(session: Session, version: int) -> list[dict[str, Any]]:
    """In the order stored; empty when nothing was compared."""
    rows = session.scalars(
        select(HeldoutRow).where(HeldoutRow.version == version).order_by(HeldoutRow.id)
    )
    return [
        {name: getattr(row, name) for name in _HELDOUT_FIELDS}
        | {"ci95": [row.ci95_low, row.ci95_high]}
        for row in rows
    ]


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _equals(cluster: Cluster) -> list[Any]:
    return [getattr(ClusterRow, name) == value for name, value in asdict(cluster).items()]


def _cluster_row(session: Session, cluster: Cluster) -> ClusterRow:
    known = session.scalar(select(ClusterRow).where(*_equals(cluster)))
    return known or ClusterRow(**asdict(cluster))


def _cluster(row: ClusterRow) -> Cluster:
    return Cluster(row.name, row.nodes, row.cores, row.cpu, row.memory)


def _series_row(ordinal: int, series: Measurement) -> SeriesRow:
    return SeriesRow(
        ordinal=ordinal, params=dict(series.params), samples=list(series.samples),
        **{name: getattr(series, name) for name in _SERIES_FIELDS},
    )  # fmt: skip


def _rule_row(ordinal: int, rule: Rule) -> RuleRow:
    return RuleRow(
        ordinal=ordinal, **asdict(rule.key), lo=rule.lo,
        hi=None if rule.hi == math.inf else int(rule.hi),
        algorithm=rule.choice.algorithm, params=dict(rule.choice.params),
        evidence=asdict(rule.evidence),
    )  # fmt: skip


def _rule(row: RuleRow) -> Rule:
    key = Key(Collective(row.collective), row.nodes, row.ppn, row.memory, row.operators)
    evidence: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in row.evidence.items()
    }
    hi = math.inf if row.hi is None else row.hi
    return Rule(key, row.lo, hi, Choice(row.algorithm, row.params), Evidence(**evidence))
