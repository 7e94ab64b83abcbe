"""Schedules compiled once per call shape and bound once per buffer; both are kept."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from tuner.algorithms import build
from tuner.collective import Collective
from tuner.errors import ScheduleError
from tuner.runtime.buffers import Bytes
from tuner.runtime.executor import Bound
from tuner.runtime.memory import Memory
from tuner.runtime.part import Part
from tuner.table import Choice

KEPT = 64  # buffers that stay bound, per choice and communicator; the oldest are given up
SPACES = 4  # sizes for which a workspace stays
KNOWN = 1024  # argument lists of which the treatment is remembered


class Known(NamedTuple):
    """How a call was treated whose arguments have come again.

    source      what is copied to the bound buffer first; None for nothing
    """

    bound: Bound
    datatype: MPI.Datatype
    source: Bytes | None


class _Shape(NamedTuple):
    """A part, and what all buffers of its shape need beside them: only one is used at a time."""

    part: Part
    spare: Bytes


class Bindings:
    """One algorithm on one communicator and one kind of memory.

    known       calls by all that decides how they are treated, for as long as their buffers are
                bound; arrays are known by address, and so not kept alive
    """

    def __init__(
        self, comm: MPI.Intracomm, collective: Collective, choice: Choice, memory: Memory
    ) -> None:
        self._comm, self._collective, self._choice, self._memory = comm, collective, choice, memory
        self._shapes: dict[tuple[int, int, int], _Shape | None] = {}
        self._bounds: dict[tuple[int, int, int, int], Bound | None] = {}
        self._spaces: dict[int, Bytes] = {}
        self.known: dict[tuple[Any, ...], Known] = {}

    def release(self) -> None:
        """Free all requests."""
        for key in [*self._bounds]:
            self._forget(key)

    def workspace(self, nbytes: int) -> Bytes:
        """Memory for what is on its way through this rank; the same for the same size."""
        if nbytes not in self._spaces:
            if len(self._spaces) == SPACES:
                del self._spaces[next(iter(self._spaces))]
            self._spaces[nbytes] = self._memory.empty(nbytes)
        return self._spaces[nbytes]

    def bound(self, buffer: Bytes, count: int, itemsize: int, root: int | None) -> Bound | None:
        """The schedule on this buffer; None where it does not apply."""
        if root is None or not 0 <= root < self._comm.size:
            return None
        key = (address_of(buffer), count, itemsize, root)
        try:
            return self._bounds[key]
        except KeyError:
            if len(self._bounds) == KEPT:
                self._forget(next(iter(self._bounds)))
            self._bounds[key] = self._bind(*key)
            return self._bounds[key]

    def remember(self, call: tuple[Any, ...], known: Known) -> None:
        """Arguments that come again need not be looked at again."""
        if len(self.known) == KNOWN:
            self.known.clear()
        self.known[call] = known

    def _bind(self, address: int, count: int, itemsize: int, root: int) -> Bound | None:
        key = (count, itemsize, root)
        if key not in self._shapes:
            if len(self._shapes) == KEPT:
                del self._shapes[next(iter(self._shapes))]
            self._shapes[key] = self._compile(*key)
        shape = self._shapes[key]
        if shape is None:
            return None
        # By its address: a request that knew the array would keep it alive.
        buffer = memory_at(address, count * itemsize)
        return Bound(shape.part, self._comm, buffer, shape.spare, itemsize, self._memory)

    def _compile(self, count: int, itemsize: int, root: int) -> _Shape | None:
        made = build(
            self._collective, self._choice.algorithm, self._comm.size, root=root,
            nbytes=count * itemsize, params=self._choice.params,
        )  # fmt: skip
        if self._collective.divided and count % made.n_chunks:
            return None
        try:
            part = Part.of(made, self._comm.rank, count)
        except ScheduleError:  # a count that does not divide, for every rank alike
            return None
        return _Shape(part, self._memory.empty(part.beyond * itemsize))

    def _forget(self, key: tuple[int, int, int, int]) -> None:
        self.known.clear()
        bound = self._bounds.pop(key)
        if bound is not None:
            bound.free()


def address_of(content: Bytes) -> int:
    """Where it begins, on whatever kind of memory."""
    address: int = content.__array_interface__["data"][0]
    return address


def memory_at(address: int, nbytes: int) -> Bytes:
    """Memory whose owner is somebody else's affair."""
    memory: Any = MPI.buffer.fromaddress(address, nbytes)
    return np.ndarray((nbytes,), np.uint8, memory)
