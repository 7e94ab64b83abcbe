"""Signs of life of every host (rank side).

A rank that waits quietly would wait for ever for a host whose link is down. So the lowest rank of
each host sends rank 0 an empty message now and then, whatever it is doing, and rank 0 notices who
has not been heard of.
"""

from __future__ import annotations

import time

import numpy as np
from mpi4py import MPI

from tuner.probe.places import Layout

EVERY = 10.0  # seconds between messages: so few disturb nobody
SILENCE = 40.0  # seconds after which a host counts as lost
TAG = 12


class Heartbeats:
    """Of the hosts of `layout`, over `mail`, whose messages with `TAG` are its own."""

    def __init__(self, mail: MPI.Intracomm, layout: Layout) -> None:
        self._mail = mail
        self._names = dict(zip((ranks[0] for ranks in layout.ranks), layout.hosts, strict=True))
        self._names.pop(0, None)
        now = time.monotonic()
        self._heard = dict.fromkeys(self._names, now)
        self._told = now
        self._nothing = np.zeros(0, np.uint8)
        self._sent: list[MPI.Request] = []

    def beat(self) -> None:
        """Tell rank 0 that this host is alive, if it is time to."""
        now = time.monotonic()
        if self._mail.rank in self._names and now > self._told + EVERY:
            self._told = now
            self._sent = [one for one in self._sent if not one.Test()]
            self._sent.append(self._mail.Isend(self._nothing, 0, TAG))

    def lost(self) -> str:
        """The name of a host that has not been heard of for too long; empty if there is none.

        On rank 0.
        """
        status = MPI.Status()
        while self._mail.Iprobe(MPI.ANY_SOURCE, TAG, status):
            self._mail.Recv(self._nothing, status.source, TAG)
            self._heard[status.source] = time.monotonic()
        first = min(self._heard, key=lambda rank: self._heard[rank], default=0)
        silent = first != 0 and time.monotonic() > self._heard[first] + SILENCE
        return self._names[first] if silent else ""
