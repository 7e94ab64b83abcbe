"""What an operator decides about the service."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

MEASUREMENTS_LIMIT = 1 << 30  # bytes of one upload of measurements
BODY_LIMIT = 16 << 20  # bytes of any other request body
RATE = 200.0  # requests per second and client, where the service can be reached from outside


@dataclass(frozen=True)
class Settings:
    """One service; picklable, as every process of it gets a copy.

    require_tokens      also on loopback, for a service behind a proxy
    rate_limit          requests per second and client in each process, 0 for no limit; None: none
                        on loopback, RATE elsewhere
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
    measurements_limit: int = MEASUREMENTS_LIMIT
    body_limit: int = BODY_LIMIT
    mpich_python: Path | None = None

    @property
    def on_loopback(self) -> bool:
        """Nobody outside this computer can connect."""
        return is_loopback(self.host)

    @property
    def is_open(self) -> bool:
        """Whoever can connect may do everything."""
        return self.on_loopback and not self.require_tokens

    @property
    def rate(self) -> float:
        """Requests per second and client, 0 for no limit."""
        if self.rate_limit is not None:
            return self.rate_limit
        return 0.0 if self.on_loopback else RATE


def is_loopback(host: str) -> bool:
    """Whether a host name or address, in brackets or not, can only mean this computer."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
