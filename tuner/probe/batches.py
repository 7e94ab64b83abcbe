"""Batches of chosen points, to be measured beyond a plan after a look at the results.

A batch is a launch of its own in the same file. The header records what each batch was to measure,
so that a batch that was killed can be resumed without knowing why it was chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tuner.algorithms import describe
from tuner.base.atomic_io import dataclass_from_record
from tuner.base.errors import InputError
from tuner.base.units import plural
from tuner.core.collective import Collective
from tuner.core.measurement import MeasurementReader, unreadable_file_error
from tuner.core.path_classes import BLOCK, PlacementMixin, omit_default_placement
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.probe.collective_points import collective_point
from tuner.probe.probe_plan import ProbePoint
from tuner.probe.probe_spec import ProbeShape, ProbeSpec


@dataclass(frozen=True)
class ExperimentRequest(PlacementMixin):
    """A call to measure with these algorithm choices and, if `with_default`, the library default.

    placement       of its ranks
    with_default    True in files that do not say
    """

    collective: Collective
    nodes: int
    ppn: int
    nbytes: int
    choices: tuple[AlgorithmChoice, ...]
    placement: str = BLOCK
    with_default: bool = True


def experiment_points(
    spec: ProbeSpec, experiments: Sequence[ExperimentRequest], launch: int
) -> Iterator[ProbePoint]:
    """Yield a point for each call, with all requested choices of that call.

    Raises InputError for shapes that do not fit the hosts, odd sizes and unknown algorithms.
    """
    together: dict[tuple[Collective, ProbeShape, int], list[AlgorithmChoice]] = {}
    for one in experiments:
        shape = ProbeShape(one.nodes, one.ppn, one.placement)
        _check(spec, one, shape)
        choices = together.setdefault((one.collective, shape, one.nbytes), [])
        choices += [AlgorithmChoice()] * one.with_default + [*one.choices]
    for (collective, shape, nbytes), choices in together.items():
        yield replace(
            collective_point(spec.library, collective, shape, nbytes, dict.fromkeys(choices)),
            launch=launch,
        )


def request_record(request: ExperimentRequest) -> dict[str, Any]:
    """Return a request as stored in the header, without what is usual."""
    record = omit_default_placement(asdict(request))
    return {name: value for name, value in record.items() if name != "with_default" or not value}


def _check(spec: ProbeSpec, experiment: ExperimentRequest, shape: ProbeShape) -> None:
    if not experiment.choices and not experiment.with_default:
        raise InputError(f"{experiment.collective} on {shape} ranks: name what to measure")
    if (
        not (1 <= experiment.nodes <= spec.nodes and 1 <= experiment.ppn <= spec.ppn)
        or shape.ranks < 2
    ):
        raise InputError(
            f"shape {shape} does not fit {plural(spec.nodes, 'host')} with"
            f" {plural(spec.ppn, 'rank')} each"
        )
    if (
        experiment.nbytes < 4
        or experiment.nbytes % 4
        or experiment.collective.rounded_down(experiment.nbytes, shape.ranks) < 4
    ):
        raise InputError(
            f"{experiment.collective} of {experiment.nbytes} bytes: sizes are multiples of 4 bytes"
        )
    if experiment.collective.rounded_down(experiment.nbytes, shape.ranks) != experiment.nbytes:
        raise InputError(
            f"{experiment.collective} of {experiment.nbytes} bytes has no whole share for each of"
            f" {shape.ranks} ranks"
        )
    for choice in experiment.choices:
        if choice.runner == SCHEDULE:
            describe(experiment.collective, choice.algorithm)


def read_batches(path: Path) -> list[tuple[ExperimentRequest, ...]]:
    """Return the batches that a file records; none if the file does not exist.

    Raises InputError for a file without measurements.
    """
    try:
        return [_decode_batch(record) for record in read_provenance(path).get("rounds", [])]
    except (ValueError, TypeError) as reason:
        raise InputError(f"{path}: its rounds are damaged: {reason}; probe again") from None


def read_provenance(path: Path) -> Mapping[str, Any]:
    """Return the provenance in the first line of a file; empty if the file does not exist.

    Raises InputError for a file without measurements.
    """
    if not path.exists():
        return {}
    try:
        with path.open(encoding="utf-8") as lines:
            header = MeasurementReader(lines, str(path)).header
    except (OSError, UnicodeDecodeError) as reason:
        raise unreadable_file_error(path, reason) from None
    return header["provenance"] if header else {}


def _decode_batch(records: Sequence[Mapping[str, Any]]) -> tuple[ExperimentRequest, ...]:
    return tuple(dataclass_from_record(ExperimentRequest, record) for record in records)
