"""The state of one process in NCCL's log: its communicators and calls not yet attributed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from tuner.base.errors import InputError
from tuner.core.collective import Collective

MAX_SHAPES = 1000  # shapes of the communicators of one process
CommunicatorShape = tuple[int, int]  # ranks, nodes


class TooManyCallsError(InputError):
    """An error raised for more different calls and communicators than any program has."""


@dataclass
class LoggedProcess:
    """The communicators of a process, and its calls whose algorithm no line has given yet.

    communicators   rank and shape by the address that the log prints
    rank0_shapes    number of communicators by shape, of those with several ranks where the process
                    is rank 0
    pending_calls   number of these calls by collective, bytes as logged, and shape
    call_shapes     shapes of all calls so far
    """

    communicators: dict[bytes, tuple[int, CommunicatorShape]] = field(default_factory=dict)
    rank0_shapes: Counter[CommunicatorShape] = field(default_factory=Counter)
    pending_calls: Counter[tuple[Collective, int, CommunicatorShape]] = field(
        default_factory=Counter
    )
    call_shapes: set[CommunicatorShape] = field(default_factory=set)

    @property
    def n_entries(self) -> int:
        return len(self.communicators) + len(self.pending_calls) + len(self.call_shapes)

    def add_communicator(self, comm: bytes, rank: int, shape: CommunicatorShape) -> None:
        self.remove_communicator(comm)
        self.communicators[comm] = (rank, shape)
        if rank == 0 and shape[0] > 1:
            self.rank0_shapes[shape] += 1
            _require_within_limit(self.rank0_shapes)

    def remove_communicator(self, comm: bytes) -> None:
        """Record the end of a communicator."""
        rank, shape = self.communicators.pop(comm, (0, (0, 0)))
        if shape in self.rank0_shapes and rank == 0:
            self.rank0_shapes[shape] -= 1
            if not self.rank0_shapes[shape]:
                del self.rank0_shapes[shape]

    def add_call(self, collective: Collective, nbytes: int, shape: CommunicatorShape) -> None:
        """Record a call whose algorithm a later line will give."""
        self.pending_calls[collective, nbytes, shape] += 1
        self.call_shapes.add(shape)
        _require_within_limit(self.call_shapes)

    def take_shapes(
        self, collective: Collective, nbytes: int, per_rank: bool
    ) -> set[CommunicatorShape]:
        """Return the possible shapes of a call whose algorithm a line gives.

        Where such calls were recorded, one for each of these shapes is removed.
        """
        if not self.call_shapes:
            return set(self.rank0_shapes)
        found = set[CommunicatorShape]()
        for shape in self.call_shapes:
            parts = 1 if per_rank or not collective.has_blocks else shape[0]
            call = (collective, nbytes // parts, shape)
            if nbytes % parts == 0 and self.pending_calls[call] > 0:
                found.add(shape)
                self.pending_calls[call] -= 1
        return found


def _require_within_limit(shapes: Collection[CommunicatorShape]) -> None:
    """Raise TooManyCallsError for more shapes than any program has."""
    if len(shapes) > MAX_SHAPES:
        raise TooManyCallsError(
            f"a process has communicators of more than {MAX_SHAPES} shapes: no program has"
        )
