"""The counters of the running switch, read from the file that it shares."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from tuner.base.errors import InputError
from tuner.topology import Link

N_BINS = 16  # of the histogram of lags; as in switch.c
_HEAD = struct.Struct(f"=5Q{N_BINS}Q")
_LINK = struct.Struct("=3Q")


@dataclass(frozen=True)
class LinkCount:
    """The traffic that one directed link has carried since the cluster came up."""

    source: str
    target: str
    nbytes: int  # with the headers of Ethernet, IP and TCP
    frames: int
    max_queue_time: float  # s of a frame in the link's queue


@dataclass(frozen=True)
class Counters:
    """The counters of the whole switch.

    real_time           whether the switch has real-time priority
    dropped_frames      frames dropped for want of space
    frames              frames handed over
    max_lateness        longest time in seconds by which a frame was handed over later than due
    lead_time           seconds by which the switch at present wakes up early
    lateness_histogram  frames late by less than 1, 2, 4 ... us; the last: by more
    """

    real_time: bool
    dropped_frames: int
    frames: int
    max_lateness: float
    lead_time: float
    lateness_histogram: tuple[int, ...]
    links: tuple[LinkCount, ...]

    def lateness_quantile(self, share: float) -> float:
        """Return by how many seconds this share of frames was late at most, in powers of two."""
        seen = 0
        for number, count in enumerate(self.lateness_histogram):
            seen += count
            if seen >= share * self.frames:
                return min(1e-6 * (1 << number), self.max_lateness)
        return self.max_lateness

    def nbytes(self, source: str, target: str) -> int:
        """Return the bytes that crossed one link; raises KeyError for an unknown link."""
        return {(link.source, link.target): link.nbytes for link in self.links}[source, target]


def read_counters(path: Path, links: tuple[Link, ...]) -> Counters:
    """Read the counters; raises InputError when the file is not that of these links."""
    data = path.read_bytes()
    if len(data) != _HEAD.size + len(links) * _LINK.size:
        raise InputError(f"{path}: not the counters of this cluster; take it down and up again")
    real_time, lost, frames, worst, ahead, *lags = _HEAD.unpack_from(data)
    counts = tuple(
        LinkCount(link.source, link.target, nbytes, carried, 1e-9 * waited)
        for link, (nbytes, carried, waited) in zip(
            links, _LINK.iter_unpack(data[_HEAD.size :]), strict=True
        )
    )
    return Counters(bool(real_time), lost, frames, 1e-9 * worst, 1e-9 * ahead, tuple(lags), counts)
