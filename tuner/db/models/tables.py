"""The tables of versions, publications, validations, held-out timings and feedback."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, UniqueConstraint, event, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from tuner.base.errors import InputError
from tuner.core.path_classes import BLOCK
from tuner.db.models.base import Base, utc_now
from tuner.db.models.measurements import ClusterRow


class TableRow(Base):
    """A version of a tuning table, which never changes once stored.

    digest      SHA-256 of the record of a table file
    copy        0, except in databases that once stored equal tables as several versions
    """

    __tablename__ = "tuning_tables"
    __table_args__ = (Index("uq_tuning_tables_digest", "digest", "copy", unique=True),)

    version: Mapped[int] = mapped_column(primary_key=True)
    cluster_id: Mapped[int] = mapped_column(ForeignKey("clusters.id"), index=True)
    probe_id: Mapped[int | None] = mapped_column(ForeignKey("probes.id"), index=True)
    calibration_id: Mapped[int | None] = mapped_column(ForeignKey("calibrations.id"), index=True)
    library: Mapped[str]
    provenance: Mapped[dict[str, Any]]
    digest: Mapped[str] = mapped_column(server_default=text("''"))
    copy: Mapped[int] = mapped_column(server_default="0")
    stored_at: Mapped[datetime] = mapped_column(default=utc_now)

    cluster: Mapped[ClusterRow] = relationship()


class RuleRow(Base):
    """A rule for sizes of [start_bytes, stop_bytes); `stop_bytes` is NULL for infinity."""

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
    placement: Mapped[str] = mapped_column(server_default=BLOCK)
    start_bytes: Mapped[int] = mapped_column(BigInteger)
    stop_bytes: Mapped[int | None] = mapped_column(BigInteger)
    algorithm: Mapped[str]
    params: Mapped[dict[str, Any]]
    runner: Mapped[str] = mapped_column(server_default="library")
    evidence: Mapped[dict[str, Any]]


class ValidationRow(Base):
    """The algorithm that the library executed where a rule of this table applied."""

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
    """A comparison of the table with the library default at a held-out size."""

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


class PublicationRow(Base):
    """An entry of the log of publications; the last one of a cluster and library is in force.

    restores    the earlier entry that a rollback restored, or NULL
    """

    __tablename__ = "publications"
    __table_args__ = (Index("ix_publications_target", "cluster", "library", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(ForeignKey("tuning_tables.version"), index=True)
    cluster: Mapped[str]
    library: Mapped[str]
    published_at: Mapped[datetime] = mapped_column(default=utc_now)
    published_by: Mapped[str]
    restores: Mapped[int | None] = mapped_column(ForeignKey("publications.id"))


class FeedbackRow(Base):
    """A report of one program whose ranks followed this version."""

    __tablename__ = "feedback"

    id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(ForeignKey("tuning_tables.version"), index=True)
    cluster: Mapped[str]
    library: Mapped[str]
    ranks: Mapped[int]
    items: Mapped[list[dict[str, Any]]]
    digest: Mapped[str] = mapped_column(unique=True)
    stored_at: Mapped[datetime] = mapped_column(default=utc_now)


@event.listens_for(TableRow, "before_update")
@event.listens_for(TableRow, "before_delete")
@event.listens_for(RuleRow, "before_update")
@event.listens_for(RuleRow, "before_delete")
def _refuse(_mapper: object, _connection: object, row: TableRow | RuleRow) -> None:
    raise InputError(
        f"version {row.version} of the tuning table is immutable; store a new version instead"
    )


@event.listens_for(PublicationRow, "before_update")
@event.listens_for(PublicationRow, "before_delete")
def _append_only(_mapper: object, _connection: object, row: PublicationRow) -> None:
    raise InputError(f"publication {row.id} is history; publish another version instead")
