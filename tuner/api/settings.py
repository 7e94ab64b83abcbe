"""What an operator decides about the service."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from tuner.db import KEEP_ALL, Retention

MEASUREMENTS_LIMIT_BYTES = 1 << 30  # bytes of one upload of measurements
BODY_LIMIT_BYTES = 16 << 20  # bytes of any other request body
MAX_QUEUED_JOBS = 100  # of one client
RATE_LIMIT_PER_S = (
    200.0  # requests per second and client, where the service can be reached from outside
)


@dataclass(frozen=True)
class Settings:
    """One service; picklable, as every process of it gets a copy.

    require_tokens      also on loopback, for a service behind a proxy
    rate_limit          requests per second and client in each process, 0 for no limit; None: none
                        on loopback, RATE elsewhere
    queued_jobs         jobs that one token, or one address without a token, may have queued; 0 for
                        any number
    trusted_proxies     addresses and networks whose X-Forwarded-For header is believed
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
    def is_local(self) -> bool:
        """Nobody outside this computer can ask anything, as no proxy passes it on."""
        return is_loopback(self.host) and not self.trusted_proxies

    @property
    def is_open(self) -> bool:
        """Whoever can connect may do everything."""
        return self.is_local and not self.require_tokens

    @property
    def rate(self) -> float:
        """Requests per second and client, 0 for no limit."""
        if self.rate_limit is not None:
            return self.rate_limit
        return 0.0 if self.is_local else RATE_LIMIT_PER_S


def is_loopback(host: str) -> bool:
    """Whether a host name or address, in brackets or not, can only mean this computer."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
