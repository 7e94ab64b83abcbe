"""The times of each transfer of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TransferSpan:
    """The times of one transfer, in seconds, as for a Gantt chart.

    started         both ports were free and both ranks ready
    released        the ports were free again
    arrived         the last byte had arrived
    send_completed  the sender went on
    """

    src: int
    dst: int
    round: int
    nbytes: float
    started: float
    released: float
    arrived: float
    send_completed: float
