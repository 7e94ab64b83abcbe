"""The tables of the database, as SQLAlchemy classes. Times in seconds, sizes in bytes.

The schema itself is made by the migrations in `db/versions`; a test holds the two equal.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Double,
    ForeignKey,
    MetaData,
    UniqueConstraint,
    event,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from tuner.errors import InputError


class Base(DeclarativeBase):
    """Named constraints, so that a later migration can drop one on any database."""

    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ix": "ix_%(table_name)s_%(column_0_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        dict[str, Any]: JSON,
        list[float]: JSON,
        datetime: DateTime(timezone=True),
        float: Double,
    }


def _now() -> datetime:
    return datetime.now(UTC)


class ClusterRow(Base):
    """One machine; equal in every column means the same cluster."""

    __tablename__ = "clusters"
    __table_args__ = (UniqueConstraint("name", "nodes", "cores", "cpu", "memory"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    nodes: Mapped[int]
    cores: Mapped[int]
    cpu: Mapped[str]
    memory: Mapped[int] = mapped_column(BigInteger)


class ProbeRow(Base):
    """One complete probe; `digest` is the SHA-256 of its content."""

    __tablename__ = "probes"

    id: Mapped[int] = mapped_column(primary_key=True)
    cluster_id: Mapped[int] = mapped_column(ForeignKey("clusters.id"), index=True)
    library: Mapped[str]
    provenance: Mapped[dict[str, Any]]
    digest: Mapped[str] = mapped_column(unique=True)
    stored_at: Mapped[datetime] = mapped_column(default=_now)

    cluster: Mapped[ClusterRow] = relationship()
    series: Mapped[list[SeriesRow]] = relationship(order_by="SeriesRow.ordinal")


class SeriesRow(Base):
    """One measured series of a probe, in the order in which the probe wrote them."""

    __tablename__ = "series"
    __table_args__ = (UniqueConstraint("probe_id", "ordinal"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    probe_id: Mapped[int] = mapped_column(ForeignKey("probes.id"))
    ordinal: Mapped[int]
    kind: Mapped[str]
    subject: Mapped[str]
    nodes: Mapped[int]
    ppn: Mapped[int]
    p: Mapped[int]
    nbytes: Mapped[int] = mapped_column(BigInteger)
    algorithm: Mapped[str]
    params: Mapped[dict[str, Any]]
    memory: Mapped[str]
    launch: Mapped[int]
    samples: Mapped[list[float]]


class CalibrationRow(Base):
    """One calibration; `content` is the record that a calibration file holds."""

    __tablename__ = "calibrations"

    id: Mapped[int] = mapped_column(primary_key=True)
    probe_id: Mapped[int | None] = mapped_column(ForeignKey("probes.id"), index=True)
    cluster: Mapped[str]
    library: Mapped[str]
    content: Mapped[dict[str, Any]]
    digest: Mapped[str] = mapped_column(unique=True)
    stored_at: Mapped[datetime] = mapped_column(default=_now)


class TableRow(Base):
    """One version of a tuning table and what it was made from. Never changed once stored."""

    __tablename__ = "tuning_tables"

    version: Mapped[int] = mapped_column(primary_key=True)
    cluster_id: Mapped[int] = mapped_column(ForeignKey("clusters.id"), index=True)
    probe_id: Mapped[int | None] = mapped_column(ForeignKey("probes.id"), index=True)
    calibration_id: Mapped[int | None] = mapped_column(ForeignKey("calibrations.id"), index=True)
    library: Mapped[str]
    provenance: Mapped[dict[str, Any]]
    stored_at: Mapped[datetime] = mapped_column(default=_now)

    cluster: Mapped[ClusterRow] = relationship()
    rules: Mapped[list[RuleRow]] = relationship(order_by="RuleRow.ordinal")


class RuleRow(Base):
    """One rule of a table: [lo, hi) bytes, `hi` NULL for infinity."""

    __tablename__ = "rules"
    __table_args__ = (UniqueConstraint("version", "ordinal"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(ForeignKey("tuning_tables.version"))
    ordinal: Mapped[int]
    collective: Mapped[str]
    nodes: Mapped[int]
    ppn: Mapped[int]
    memory: Mapped[str]
    operators: Mapped[str]
    lo: Mapped[int] = mapped_column(BigInteger)
    hi: Mapped[int | None] = mapped_column(BigInteger)
    algorithm: Mapped[str]
    params: Mapped[dict[str, Any]]
    evidence: Mapped[dict[str, Any]]


class ProofRow(Base):
    """Which algorithm the library ran where a rule of this table applied."""

    __tablename__ = "proofs"

    id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(ForeignKey("tuning_tables.version"), index=True)
    collective: Mapped[str]
    p: Mapped[int]
    nbytes: Mapped[int] = mapped_column(BigInteger)
    expected: Mapped[str]
    executed: Mapped[str]
    confirmed: Mapped[bool]
    reason: Mapped[str]


class HeldoutRow(Base):
    """The table against the library's default at a size that was not probed."""

    __tablename__ = "heldout"

    id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(ForeignKey("tuning_tables.version"), index=True)
    collective: Mapped[str]
    p: Mapped[int]
    nbytes: Mapped[int] = mapped_column(BigInteger)
    algorithm: Mapped[str]
    default_s: Mapped[float]
    tuned_s: Mapped[float]
    ratio: Mapped[float]
    ci95_low: Mapped[float]
    ci95_high: Mapped[float]


@event.listens_for(TableRow, "before_update")
@event.listens_for(TableRow, "before_delete")
@event.listens_for(RuleRow, "before_update")
@event.listens_for(RuleRow, "before_delete")
def _refuse(_mapper: object, _connection: object, row: TableRow | RuleRow) -> None:
    raise InputError(
        f"version {row.version} of the tuning table is immutable; store a new version instead"
    )
