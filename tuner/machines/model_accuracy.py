"""How far predictions were off measured results of a kind of machine."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import NAME, SIZE, Kind, parse_mapping, read_record, whole
from tuner.base.units import format_size, plural
from tuner.core.collective import Collective
from tuner.core.named_collectives import COLLECTIVES
from tuner.mpi_libraries.nccl.names import POINT_TO_POINT

SIMULATION, NCCL = PREDICTION_MODELS = ("simulation", "nccl")  # what predicts a time
NCCL_ALLTOALL = "nccl_alltoall"  # whose errors are apart, as NCCL's model has none of it
MODEL_NAMES = {
    SIMULATION: "simulated times",
    NCCL: "times of NCCL",
    NCCL_ALLTOALL: "times of NCCL's all-to-all",
}
NOT_COMPARED = "not compared with measurements"
MAX_ERROR = 100
MAX_RESULTS = 10**9


def _read_fraction(what: str, value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < MAX_ERROR:
        raise InputError(f"{what} must be a fraction such as 0.05, not {shortened_repr(value)}")
    return float(value)


FRACTION = Kind("fraction", _read_fraction)


class SizeError(NamedTuple):
    """Errors of calls on one node with at most this many bytes, and more than in the entry before.

    median, p95     fractions: the median and the 95th percentile
    """

    most: int
    median: float
    p95: float


def _read_size_errors(what: str, value: Any) -> tuple[SizeError, ...]:
    """Return the errors of a mapping such as `{64KiB: [0.05, 0.2], 512MiB: [0.04, 0.15]}`."""
    found = []
    for size, pair in parse_mapping(what, value).items():
        if not isinstance(pair, list) or len(pair) != 2:
            raise InputError(f"{what}: {size} must be the median and the 95th percentile")
        errors = (_read_fraction(f"{what}: {size}", one) for one in pair)
        found.append(SizeError(SIZE.read(what, size), *errors))
    return tuple(sorted(found))


SIZE_ERRORS = Kind("errors by size", _read_size_errors)


class SizedCall(NamedTuple):
    """A call whose time is predicted; bytes are of the whole buffer."""

    collective: Collective
    nodes: int
    nbytes: int


Calls = Collection[SizedCall]


@dataclass(frozen=True)
class ModelAccuracy:
    """The error of a model's times against measured ones, as fractions.

    results     number of measured results
    source      what was measured
    by_size     errors by size, if all results are of one node
    collectives what they are results of; empty where that is not said
    """

    median: Annotated[float, FRACTION]
    worst: Annotated[float, FRACTION]
    results: Annotated[int, whole(MAX_RESULTS)]
    source: Annotated[str, NAME]
    by_size: Annotated[tuple[SizeError, ...], SIZE_ERRORS] = ()
    collectives: Annotated[tuple[Collective, ...], COLLECTIVES] = ()

    def of_calls(self, calls: Calls) -> str:
        """Return how far times of some calls were off, of all sizes if there are none."""
        where = f"in {self.results} measurements ({self.source})"
        if not self.by_size:
            return f"off by {self.median:.1%} (median), at worst {self.worst:.0%}, {where}"
        compared = [call for call in calls if not any(self._unlike(call))]
        bands = self._bands(compared or calls)
        medians = ", ".join(f"{one.median:.1%} to {format_size(one.most)}" for one in bands)
        tails = ", ".join(f"{one.p95:.0%}" for one in bands)
        told = f"off by {medians} on one node (median; 95th percentile {tails}) {where}"
        unlike = ", ".join(
            dict.fromkeys(why for call in calls for why in self._unlike(call) if why)
        )
        if not unlike:
            return told
        if compared:
            return f"{told}, and not compared for {unlike}"
        return f"not compared for {unlike}; the nearest were {told}"

    def _bands(self, calls: Calls) -> list[SizeError]:
        """Return the errors of the sizes of some calls, of all sizes if there are none."""
        last = len(self.by_size) - 1
        most = [band.most for band in self.by_size]
        there = {min(last, bisect_left(most, one.nbytes)) for one in calls} or range(last + 1)
        return [self.by_size[number] for number in sorted(there)]

    def _unlike(self, call: SizedCall) -> tuple[str, str, str]:
        """Return in what a call is unlike those that were compared; "" where it is like them."""
        largest = self.by_size[-1].most
        other = self.collectives and call.collective not in self.collectives
        return (
            str(call.collective) if other else "",
            plural(call.nodes, "node") if call.nodes > 1 else "",
            f"more than {format_size(largest)}" if call.nbytes > largest else "",
        )


def parse_accuracy(record: Any) -> dict[str, ModelAccuracy]:
    """Return the accuracy of models by name; raise InputError for an invalid record."""
    return {
        model: read_record(ModelAccuracy, entry, f"accuracy: {model}")
        for model, entry in parse_mapping("accuracy", record, MODEL_NAMES).items()
    }


def entry_of(model: str, collective: Collective) -> str:
    """Return the entry with the errors of a model's times of a collective."""
    return NCCL_ALLTOALL if model == NCCL and collective in POINT_TO_POINT else model


def accuracy_sentence(
    name: str, accuracy: Mapping[str, ModelAccuracy], predicted: Mapping[str, Calls]
) -> str:
    """Return how far the models that predicted times of calls were off on the machine `name`.

    predicted   the calls that each of `PREDICTION_MODELS` predicted; none: any calls
    """
    known = [
        f"{MODEL_NAMES[entry]} were"
        f" {accuracy[entry].of_calls(own) if entry in accuracy else NOT_COMPARED}"
        for model in PREDICTION_MODELS
        if model in predicted
        for entry, own in _entries(model, predicted[model])
    ]
    return f"Accuracy on {name}: {'; '.join(known)}."


def _entries(model: str, calls: Calls) -> Iterator[tuple[str, Calls]]:
    """Yield the entries that say how far a model was off, with the calls that each is about."""
    of_entries = defaultdict[str, list[SizedCall]](list)
    for call in calls:
        of_entries[entry_of(model, call.collective)].append(call)
    yield from sorted(of_entries.items()) if calls else [(model, calls)]
