"""The tables of jobs and tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from tuner.db.models.base import Base, utc_now


class JobRow(Base):
    """A job.

    attempt     how often it was claimed; only writes that name the current attempt are accepted
    lost        how many of its runners died
    leased_to   when a silent runner counts as dead
    """

    __tablename__ = "jobs"
    __table_args__ = (Index("ix_jobs_state", "state", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    spec: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(default="queued")
    progress: Mapped[float] = mapped_column(default=0.0)
    text: Mapped[str] = mapped_column(default="")
    attempt: Mapped[int] = mapped_column(default=0)
    lost: Mapped[int] = mapped_column(default=0)
    runner: Mapped[str] = mapped_column(default="")
    leased_to: Mapped[datetime | None]
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    result: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    error: Mapped[str | None]
    asked_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class JobLogRow(Base):
    """An entry of a job's log, which goes with the job.

    data    what it says, for programs
    """

    __tablename__ = "job_log"

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    attempt: Mapped[int]
    at: Mapped[datetime] = mapped_column(default=utc_now)
    text: Mapped[str]
    data: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))


class TokenRow(Base):
    """An access token, of which only the SHA-256 is stored.

    expires_at  from when on the token is refused; NULL for never
    """

    __tablename__ = "tokens"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[str]]
    digest: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
