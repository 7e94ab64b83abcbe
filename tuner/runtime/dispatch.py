"""What one communicator does with its calls under the rules that its ranks follow."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from tuner.algorithms import build
from tuner.base.errors import TunerError
from tuner.core.collective import Collective
from tuner.core.table import NCCL, SCHEDULE, Choice
from tuner.runtime.backend import Backend, Runner
from tuner.runtime.consensus import (
    AbandonedError,
    Consensus,
    ObjectionError,
    reason_of,
    run_together,
)
from tuner.runtime.device_protocol import cuda_aware, cuda_messages
from tuner.runtime.dispatch_table import METHODS, Action, CountingLadder, Ladder, RecordingLadder
from tuner.runtime.feedback import Ring
from tuner.runtime.log import warn_once
from tuner.runtime.staging import Staging
from tuner.runtime.table_binding import Policy, Steps
from tuner.runtime.tally import Tally

DEFAULT_STEPS = Steps([0], [Choice()], [0], ())


class Dispatch:
    """Ladders of one communicator, made when they are asked for.

    comm        plain, the user's: its own methods are the library's collectives
    backend     what carries out choices
    ring        for the times of calls, and
    tally       for their numbers, where anybody wants these
    lent        communicators of the same ranks use it one after the other, with its backend
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        policy: Policy,
        backend: Backend,
        ring: Ring | None,
        tally: Tally | None,
        *,
        lent: bool = False,
    ) -> None:
        self._comm, self.policy, self.backend = comm, policy, backend
        self._ring, self._tally = ring, tally
        self._ladders: dict[tuple[Collective, str], _Made] = {}
        self._stand_ins: dict[str, Action] | None = {} if lent else None
        self._ready = 0  # runners of the backend when the communicator last changed

    @cached_property
    def staging(self) -> Staging:
        """For buffers that must go through the host."""
        return self.backend.device_memory.staging

    def ladder(self, collective: Collective, operators: str = "any") -> Ladder:
        """Return the rules for these calls; where there are none, the library decides."""
        key = collective, operators
        if key not in self._ladders:
            steps = self.policy.steps_of(collective, operators) or DEFAULT_STEPS
            self._ladders[key] = self._made(collective, steps)
        return self._ladders[key].ladder

    def take(self, comm: MPI.Intracomm) -> None:
        """Make the calls of another communicator of the same ranks from now on."""
        self._comm = self.backend.comm = comm

    def rest(self) -> None:
        """Make ready for another communicator."""
        again = self.backend.rest()
        if again or len(self.backend.runners) != self._ready:
            self._ladders.clear()  # calls may go elsewhere by now than these say
            self._ready = len(self.backend.runners)

    def library(self, method: str) -> Action:
        """Return what makes a call of this method as the library would by itself."""
        if self._stand_ins is None:
            own: Action = getattr(self._comm, method)
            return own
        return self._stand_ins.setdefault(method, partial(self._of_present, method))

    def release(self) -> None:
        """Leave all calls to the library, for programs that have kept a method."""
        for (collective, _), made in self._ladders.items():
            made.ladder.leave(*self._by_library(collective))

    def _made(self, collective: Collective, steps: Steps) -> _Made:
        acts = [self._actions(collective, choice) for choice in steps.choices]
        ladder = Ladder(
            steps.bounds.copy(),
            [acts[place][0] for place in steps.places],
            [acts[place][1] for place in steps.places],
        )
        entries = None
        if self._tally is not None:
            counts = [self._tally.entry(collective, choice) for choice in steps.choices]
            entries = [counts[place] for place in steps.places]
            ladder = CountingLadder(ladder, entries)
        if self._ring is not None and steps.rules:
            ladder = RecordingLadder(ladder, steps.rules, self._ring)
        return _Made(ladder, steps, entries)

    def _actions(self, collective: Collective, choice: Choice) -> tuple[Action, Action | None]:
        """What a choice means for buffers of the host, and for buffers of a device."""
        if choice.is_default:
            return self._by_library(collective)
        if (collective, choice) in self.backend.runners:
            return self._by(self.backend.runners[collective, choice], collective)
        first = partial(self._first_call, collective, choice, 0)
        if choice.via == NCCL:
            return first, first
        if choice.via != SCHEDULE:
            return first, first if cuda_aware() else None
        if not cuda_messages():
            return first, None
        staged = build(collective, choice.algorithm, self._comm.size, params=choice.params).staged
        return first, None if staged else partial(self._first_call, collective, choice, 1)

    def _by_library(self, collective: Collective) -> tuple[Action, Action | None]:
        method = self.library(METHODS[collective])
        return method, method if cuda_aware() else None

    def _of_present(self, method: str, *arguments: Any) -> None:
        """Make a call of the communicator that uses this at the time."""
        getattr(self._comm, method)(*arguments)

    def _by(self, runner: Runner | None, collective: Collective) -> tuple[Action, Action | None]:
        if runner is None:
            return self._by_library(collective)
        if not self.backend.shared:
            return runner.on_host, runner.on_device
        host = partial(self.backend.watch, runner.on_host)
        if runner.on_device is None or runner.on_device is runner.on_host:
            return host, runner.on_device and host
        return host, partial(self.backend.watch, runner.on_device)

    def _first_call(
        self, collective: Collective, choice: Choice, kind: int, *arguments: Any
    ) -> None:
        """Make a call under a choice that nobody has followed yet, if all ranks can.

        kind        of this rank's buffers: 0 for the host's, 1 for a device's
        """
        backend, library = self.backend, self._by_library(collective)[0]
        if kind:
            library = backend.with_device_memory(collective, library)
        made, failure = run_together(
            self._comm, partial(self._prepared, collective, choice, kind, arguments)
        )
        if made is None:
            backend.forget()
        backend.runners[collective, choice] = made and made[0]
        self._replace(collective, choice)
        if made is None and self._comm.rank == 0:
            warn_once(f"tuner: {self._comm.size} ranks leave calls to the library: {failure}")
        move = made and made[1]
        suited = np.array([move is not None])
        MPI.Intracomm(self._comm).Allreduce(MPI.IN_PLACE, suited, MPI.LAND)
        if move is not None and suited[0]:
            return backend.watch(move) if backend.shared else move()
        if self._tally is not None:
            self._tally.leave(collective, choice)
        return library(*arguments)

    def _prepared(
        self,
        collective: Collective,
        choice: Choice,
        kind: int,
        arguments: tuple[Any, ...],
        consensus: Consensus,
    ) -> tuple[Runner, Callable[[], None] | None]:
        try:
            runner = self.backend.begin(consensus, collective, choice)
            return runner, runner.prepare[kind](*arguments)
        except (ObjectionError, AbandonedError):
            raise
        except Exception as failure:
            raise TunerError(f"{collective} {choice}: {reason_of(failure)}") from failure

    def _replace(self, collective: Collective, choice: Choice) -> None:
        """From now on calls under a choice take the direct way."""
        host, device = self._actions(collective, choice)
        left = self.backend.runners[collective, choice] is None
        for (other, _), (ladder, steps, entries) in self._ladders.items():
            if other is not collective or choice not in steps.choices:
                continue
            number = steps.choices.index(choice)
            for place in (place for place, one in enumerate(steps.places) if one == number):
                ladder.actions[place], ladder.on_device[place] = host, device
                if left and entries is not None and self._tally is not None:
                    entries[place] = self._tally.entry(collective, Choice())


class _Made(NamedTuple):
    """A ladder, the rules that it was made of, and the counts of its calls where they are kept."""

    ladder: Ladder
    steps: Steps
    entries: list[list[int]] | None
