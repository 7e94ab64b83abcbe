"""What NCCL's log told of a process: its communicators, and calls that are yet to be explained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl.logged import PER_RANK

MOST_SHAPES = 1000  # of the communicators of one process
Shape = tuple[int, int]  # ranks and nodes


class TooManyCallsError(InputError):
    """More different calls and communicators than any program has."""


@dataclass
class Process:
    """The communicators of a process, and its calls of which no line has told yet what ran.

    known       rank and shape by the address that the log prints
    leading     how many of these have a shape, of those with several ranks where it is rank 0
    called      these calls, by collective, bytes as the log tells them, and shape
    shapes      all that any call had
    """

    known: dict[bytes, tuple[int, Shape]] = field(default_factory=dict)
    leading: Counter[Shape] = field(default_factory=Counter)
    called: Counter[tuple[Collective, int, Shape]] = field(default_factory=Counter)
    shapes: set[Shape] = field(default_factory=set)

    @property
    def entries(self) -> int:
        """How much is remembered."""
        return len(self.known) + len(self.called) + len(self.shapes)

    def know(self, comm: bytes, rank: int, shape: Shape) -> None:
        """Note a communicator that begins."""
        self.forget(comm)
        self.known[comm] = (rank, shape)
        if rank == 0 and shape[0] > 1:
            self.leading[shape] += 1
            _require_few_shapes(self.leading)

    def forget(self, comm: bytes) -> None:
        """Note that a communicator has ended."""
        rank, shape = self.known.pop(comm, (0, (0, 0)))
        if shape in self.leading and rank == 0:
            self.leading[shape] -= 1
            if not self.leading[shape]:
                del self.leading[shape]

    def call(self, collective: Collective, nbytes: int, shape: Shape) -> None:
        """Note a call of which a line will tell what ran."""
        self.called[collective, nbytes, shape] += 1
        self.shapes.add(shape)
        _require_few_shapes(self.shapes)

    def take(self, collective: Collective, nbytes: int, per_rank: bool) -> set[Shape]:
        """Return the shapes that a call may have had of which a line tells what ran."""
        if not self.shapes:
            return set(self.leading)
        found = set[Shape]()
        for shape in self.shapes:
            parts = 1 if per_rank or collective not in PER_RANK else shape[0]
            call = (collective, nbytes // parts, shape)
            if nbytes % parts == 0 and self.called[call] > 0:
                found.add(shape)
                self.called[call] -= 1
        return found


def _require_few_shapes(shapes: Collection[Shape]) -> None:
    """Refuse to look for a call among more than any program has; raise TooManyCallsError."""
    if len(shapes) > MOST_SHAPES:
        raise TooManyCallsError(
            f"a process has communicators of more than {MOST_SHAPES} shapes: no program has"
        )
