"""Settings of the service."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from tuner.db import KEEP_ALL, Retention
from tuner.jobs.kinds import JOB_KINDS, PROBE

MEASUREMENTS_LIMIT_BYTES = 1 << 30  # bytes of one upload of measurements
BODY_LIMIT_BYTES = 16 << 20  # bytes of any other request body
MAX_QUEUED_JOBS = 100  # queued jobs per client
# Requests per second and client, where other computers can reach the service.
RATE_LIMIT_PER_S = 200.0


@dataclass(frozen=True)
class Settings:
    """Settings of one service; picklable, as each of its processes gets a copy.

    measures            whether jobs may measure this computer
    require_tokens      whether tokens are required even on loopback
    rate_limit          requests per second and client in each process, 0 for no limit; None for no
                        limit on loopback and RATE_LIMIT_PER_S elsewhere
    max_queued_jobs     queued jobs per token, or per address without a token; 0 for no limit
    trusted_proxies     addresses and networks whose X-Forwarded-For header is trusted
    access_log          a file, or `-` for standard error; None for none
    retention           which jobs and tables are kept
    mpich_python        interpreter of an environment with MPICH, whose own rules complete the
                        tables in its format
    """

    database: str = "sqlite:///tuner.db"
    host: str = "127.0.0.1"
    port: int = 8765
    processes: int = 1
    runs_jobs: bool = True
    measures: bool = False
    require_tokens: bool = False
    rate_limit: float | None = None
    measurements_limit: int = MEASUREMENTS_LIMIT_BYTES
    body_limit: int = BODY_LIMIT_BYTES
    max_queued_jobs: int = MAX_QUEUED_JOBS
    trusted_proxies: tuple[str, ...] = ()
    access_log: str | None = None
    retention: Retention = KEEP_ALL
    mpich_python: Path | None = None

    @property
    def job_kinds(self) -> tuple[str, ...]:
        return (*JOB_KINDS, PROBE) if self.measures else JOB_KINDS

    @property
    def is_local(self) -> bool:
        """Return whether only this computer can reach the service, directly or through a proxy."""
        return is_loopback(self.host) and not self.trusted_proxies

    @property
    def is_open(self) -> bool:
        """Return whether everybody who can connect has all scopes."""
        return self.is_local and not self.require_tokens

    @property
    def rate(self) -> float:
        """Return the requests per second and client, 0 for no limit."""
        if self.rate_limit is not None:
            return self.rate_limit
        return 0.0 if self.is_local else RATE_LIMIT_PER_S


def is_loopback(host: str) -> bool:
    """Return whether a host name or address, in brackets or not, always means this computer."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
