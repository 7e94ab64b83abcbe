"""The tables of clusters, topologies, measurements and what is derived from them.

Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from tuner.core.path_classes import BLOCK
from tuner.db.models.base import Base, utc_now


class ClusterRow(Base):
    """A cluster; rows that are equal in every column but the id are the same cluster."""

    __tablename__ = "clusters"
    __table_args__ = (UniqueConstraint("name", "nodes", "cores", "cpu", "memory"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    nodes: Mapped[int]
    cores: Mapped[int]
    cpu: Mapped[str]
    memory: Mapped[int] = mapped_column(BigInteger)


class TopologyRow(Base):
    """A topology: the uploaded text, and the record that was read from it."""

    __tablename__ = "topologies"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    format: Mapped[str]
    source: Mapped[str] = mapped_column(Text)
    record: Mapped[dict[str, Any]]
    digest: Mapped[str] = mapped_column(unique=True)
    stored_at: Mapped[datetime] = mapped_column(default=utc_now)


class ProbeRow(Base):
    """A probe; `digest` is the SHA-256 of the measurements file.

    series_count    series stored so far
    author          who is storing it; NULL once it is complete, before which it is invisible
    written_at      when its author last stored series; NULL if stored in one transaction
    """

    __tablename__ = "probes"

    id: Mapped[int] = mapped_column(primary_key=True)
    cluster_id: Mapped[int] = mapped_column(ForeignKey("clusters.id"), index=True)
    library: Mapped[str]
    provenance: Mapped[dict[str, Any]]
    digest: Mapped[str] = mapped_column(unique=True)
    stored_at: Mapped[datetime] = mapped_column(default=utc_now)
    series_count: Mapped[int] = mapped_column(server_default="0")
    author: Mapped[str | None]
    written_at: Mapped[datetime | None]

    cluster: Mapped[ClusterRow] = relationship()


class SeriesRow(Base):
    """A measured series of a probe; `ordinal` is its place in the file, from 0."""

    __tablename__ = "series"
    __table_args__ = (
        UniqueConstraint("probe_id", "ordinal"),
        Index("ix_series_point", "probe_id", "subject", "p", "nbytes", "algorithm", "ordinal"),
        Index("ix_series_algorithm", "probe_id", "algorithm", "subject", "p", "nbytes", "ordinal"),
    )

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
    placement: Mapped[str] = mapped_column(server_default=BLOCK)
    samples: Mapped[list[float]]


class CalibrationRow(Base):
    """A calibration; `content` is the record of a calibration file."""

    __tablename__ = "calibrations"

    id: Mapped[int] = mapped_column(primary_key=True)
    probe_id: Mapped[int | None] = mapped_column(ForeignKey("probes.id"), index=True)
    cluster: Mapped[str]
    library: Mapped[str]
    content: Mapped[dict[str, Any]]
    digest: Mapped[str] = mapped_column(unique=True)
    stored_at: Mapped[datetime] = mapped_column(default=utc_now)
