"""The measured costs of a cluster (`Calibration`), independent of its topology.

Units: seconds, bytes, seconds per byte, bytes per second.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner.base.atomic_io import (
    dataclass_from_record,
    encode_infinities,
    load_json,
    write_atomically,
)
from tuner.base.errors import InputError, MissingCostError

BORROWED_KEY = "borrowed"  # provenance key that lists the costs that were not measured
REDUCTIONS_KEY = ""  # stands for the reduction costs where a path class is named


@dataclass(frozen=True)
class Estimate:
    """A fitted value and its 95 % interval; `low == high == value` for a given (not fitted) one."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Estimate:
        """Return an estimate for a value that was given, not fitted."""
        return cls(value, value, value)


@dataclass(frozen=True)
class CostSegment:
    """The cost line of messages of some sizes: alpha + (beta + latency_per_byte) * bytes.

    It is for messages of [start_bytes, stop_bytes). The ports are busy for beta * bytes of the
    time; Hockney's formula has no `latency_per_byte`.
    """

    start_bytes: float
    stop_bytes: float
    alpha: Estimate  # s, from first byte sent to last byte received, beyond the flow itself
    beta: Estimate  # s per byte
    staged: bool = False  # copied through host memory at both ends
    # s per byte of delay while the ports are free
    latency_per_byte: Estimate = Estimate(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class PathCost:
    """The cost of one message on one path class in one kind of memory.

    segments            contiguous from 0 to infinity
    eager_limit         messages of fewer bytes do not wait for the receiver
    overhead            seconds that both ports stay busy per message, beyond the flow
    early_push_limit    messages of fewer bytes start to travel before the receiver asks for them,
                        like eager ones, but their senders wait until it has; they share ports
    sync_ack_threshold  senders of this many bytes and more continue when they learn that the
                        message has arrived, one latency of the topology's links later
    """

    segments: tuple[CostSegment, ...]
    eager_limit: float = 0.0
    overhead: Estimate = field(default_factory=lambda: Estimate.exact(0.0))
    sync_ack_threshold: float = math.inf
    early_push_limit: float = 0.0

    def segment(self, nbytes: float) -> CostSegment:
        return next(s for s in self.segments if s.start_bytes <= nbytes < s.stop_bytes)

    def seconds(self, nbytes: float) -> float:
        """Return the end-to-end seconds of a message without contention."""
        segment = self.segment(nbytes)
        per_byte = segment.beta.value + segment.latency_per_byte.value
        return self.overhead.value + segment.alpha.value + per_byte * nbytes

    @classmethod
    def from_alpha_beta(cls, alpha: float, beta: float, eager_limit: float = 0.0) -> PathCost:
        """Return the cost given by one alpha-beta line for all sizes."""
        whole = CostSegment(0.0, math.inf, Estimate.exact(alpha), Estimate.exact(beta))
        return cls((whole,), eager_limit)


@dataclass(frozen=True)
class ReductionCost:
    """The cost of `dst = dst op arriving` on one device: launch + gamma * bytes."""

    launch: Estimate  # s
    gamma: Estimate  # s per byte


ZERO_REDUCTION_COST = ReductionCost(Estimate.exact(0.0), Estimate.exact(0.0))


@dataclass(frozen=True)
class Calibration:
    """The costs of a cluster that the simulator needs besides its topology.

    paths       (path class, memory kind) -> PathCost. `self` is the cost of local copies (zero if
                missing), `staging` that of copies between device and host memory. `exchange` and
                `ring`, if present, replace `network` for ranks that send and receive at the same
                time (tuner.sim.traffic_pattern)
    reduction   "host" -> ReductionCost; in device memory the cheaper of "cuda", a kernel, and
                "cuda_by_cpu", the CPU through a window
    capacities  name of a shared resource (a link class of the topology) -> bytes per second
    port_sharing_threshold
                messages of at least this many bytes share a port side by side (fluid);
                smaller ones queue for it, one at a time (FIFO)
    separate_network_port
                whether a rank has one port for messages inside its node and another one for the
                network, as GPUs have; otherwise one port serves both
    striping_threshold
                messages between nodes of at least this many bytes use all NICs in equal parts
    pointer_query_seconds
                seconds per call to find out that a buffer is in device memory; 0 with a cache
    header_bytes
                bytes added to every message
    nominal     whether nothing was measured: path classes that are not in `paths` then have the
                costs of the topology
    """

    cluster: str
    library: str
    paths: Mapping[tuple[str, str], PathCost]
    reduction: Mapping[str, ReductionCost] = field(default_factory=dict)
    capacities: Mapping[str, Estimate] = field(default_factory=dict)
    port_sharing_threshold: float = math.inf
    separate_network_port: bool = False
    striping_threshold: float = math.inf
    pointer_query_seconds: float = 0.0
    header_bytes: float = 0.0
    nominal: bool = False
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def early_push_from(self) -> float:
        """Return the bytes of the smallest messages that are sent ahead; infinite if none are."""
        ahead = (c.eager_limit for c in self.paths.values() if c.early_push_limit > c.eager_limit)
        return min(ahead, default=math.inf)

    @property
    def borrowed_costs(self) -> Mapping[str, str]:
        """Return a sentence for each path class whose cost was not measured but borrowed.

        The path classes are those of host memory; `REDUCTIONS_KEY` may be among them.
        """
        notes = self.provenance.get(BORROWED_KEY, ())
        sound = (one for one in notes if isinstance(one, dict)) if isinstance(notes, list) else ()
        return {str(one.get("path", "")): str(one.get("note", "")) for one in sound}

    def path_cost(self, path_class: str, memory: str = "host") -> PathCost:
        """Return the cost of a path class; raise MissingCostError if it was never measured."""
        try:
            return self.paths[path_class, memory]
        except KeyError:
            known = ", ".join(sorted(f"{c} ({m})" for c, m in self.paths))
            raise MissingCostError(
                f"calibration of {self.cluster} has no path class {path_class!r} in {memory}"
                f" memory (it has {known}): probe that path or choose another topology"
            ) from None


def calibration_record(calibration: Calibration) -> dict[str, Any]:
    """Return the calibration as a JSON record, with infinities as the string "inf"."""
    record = asdict(calibration)
    record["version"] = 1
    record["paths"] = [
        {"path_class": path_class, "memory": memory, **_path_cost_record(cost)}
        for (path_class, memory), cost in calibration.paths.items()
    ]
    return dict(encode_infinities(record))


def _path_cost_record(cost: PathCost) -> dict[str, Any]:
    """Return the record of a path without newer fields that have their default.

    Calibrations that were written before these fields existed keep their digests.
    """
    record, neutral = asdict(cost), PathCost(())
    for name in ("sync_ack_threshold", "early_push_limit"):
        if record[name] == getattr(neutral, name):
            del record[name]
    return record


def calibration_from_record(content: Mapping[str, Any]) -> Calibration:
    """Return the calibration of a record that `calibration_record` made.

    Raises ValueError, KeyError or TypeError for anything else.
    """
    fields = dict(content)
    if fields.pop("version") != 1:
        raise ValueError("another format version")
    paths = {
        (entry["path_class"], entry["memory"]): _parse_path_cost(entry) for entry in fields["paths"]
    }
    calibration = replace(dataclass_from_record(Calibration, {**fields, "paths": {}}), paths=paths)
    _validate(calibration)
    return calibration


def _parse_path_cost(entry: Mapping[str, Any]) -> PathCost:
    own = {name: entry[name] for name in entry if name not in ("path_class", "memory")}
    return dataclass_from_record(PathCost, own)


def _validate(calibration: Calibration) -> None:
    """Raise ValueError for negative or infinite figures and for segments with gaps or overlaps."""
    estimates = [*calibration.capacities.values()]
    if any(capacity.value == 0.0 for capacity in estimates):
        raise ValueError("a capacity of zero moves nothing")
    for cost in calibration.reduction.values():
        estimates += [cost.launch, cost.gamma]
    for path in calibration.paths.values():
        if not min(path.eager_limit, path.sync_ack_threshold, path.early_push_limit) >= 0.0:
            raise ValueError("eager_limit, sync_ack_threshold or early_push_limit is below 0")
        estimates.append(path.overhead)
        estimates += [
            estimate for s in path.segments for estimate in (s.alpha, s.beta, s.latency_per_byte)
        ]
        ends = [0.0, *(segment.stop_bytes for segment in path.segments)]
        if [s.start_bytes for s in path.segments] != ends[:-1] or ends != sorted({*ends, math.inf}):
            raise ValueError("segments must follow one another from 0 to inf")
    if not all(0.0 <= estimate.value < math.inf for estimate in estimates):
        raise ValueError("an estimate is negative or infinite")
    if not all(
        0.0 <= own < math.inf
        for own in (calibration.header_bytes, calibration.pointer_query_seconds)
    ):
        raise ValueError("header_bytes and pointer_query_seconds must be finite and not below 0")


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write the calibration to a JSON file; raise InputError when it cannot be written."""
    write_atomically(path, json.dumps(calibration_record(calibration), indent=1) + "\n")


def read_calibration(path: Path) -> Calibration:
    """Read a calibration file; raise InputError unless it is a version-1 calibration."""
    try:
        record = load_json(path.read_bytes())
        if not isinstance(record, dict):
            raise ValueError("a file of another kind")
        return calibration_from_record(record)
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except KeyError as lacking:
        why = f"it lacks {lacking}"
    except (ValueError, TypeError) as reason:
        why = str(reason)
    raise InputError(f"{path}: not a calibration ({why}); make one with `tuner calibrate`")
