"""What carries out the choices of a table, for one communicator at a time.

A backend has private communicators of the ranks of a group, schedules that are bound to buffers,
and the memory they need. It knows no rules. Communicators of the same group can use it one after
the other (see `pool.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple

from mpi4py import MPI

from tuner import mpi_libraries
from tuner.algorithms import build
from tuner.base.errors import InputError, TunerError
from tuner.core.collective import Collective
from tuner.core.table import NCCL, SCHEDULE, Choice
from tuner.mpi_libraries.products import base_of
from tuner.runtime.accesses import buffers_of
from tuner.runtime.agreement import library_name
from tuner.runtime.algorithm_control import Forcing
from tuner.runtime.consensus import Consensus, attempt_all
from tuner.runtime.device_protocol import cuda_aware, cuda_messages
from tuner.runtime.dispatch_table import METHODS, Action
from tuner.runtime.library_algorithm import Forced
from tuner.runtime.memory import HOST_MEMORY, DeviceMemory
from tuner.runtime.nccl import Cannot, Nccl, action_of, connect
from tuner.runtime.private_comm import give_back, hold
from tuner.runtime.schedule_call import Scheduled
from tuner.runtime.scratch import Spaces
from tuner.runtime.tally import Tally

Prepare = Callable[..., Callable[[], None] | None]
MOST_IDLE = 1 << 20  # bytes that stay allocated between two communicators


class Runner(NamedTuple):
    """How calls under one choice are made.

    on_host     makes a call with buffers of the host
    on_device   makes one with buffers of a device; None where these go through the host
    prepare     for either kind: does all of a call that can fail on one rank alone, and returns
                what moves the data; None where the arguments are the library's affair
    """

    on_host: Action
    on_device: Action | None
    prepare: tuple[Prepare, Prepare]


class Backend:
    """The private part of one communicator at a time.

    comm        the communicator that uses it, plain
    shared      other communicators will use it afterwards
    runners     of choices that all ranks have agreed to carry out; None where they agreed to leave
                them to the library
    failed      whether a call has failed on this rank, so that messages of it may still arrive
    tally       counts calls, where anybody wants to know
    """

    def __init__(
        self, comm: MPI.Intracomm, tally: Tally | None = None, *, shared: bool = False
    ) -> None:
        self.comm, self.shared = comm, shared
        self.runners: dict[tuple[Collective, Choice], Runner | None] = {}
        self.failed, self.tally = False, tally
        self._given_up: set[tuple[Collective, Choice]] = set()
        self._private: MPI.Intracomm | None = None
        self._forcing: Forcing | None = None
        self._nccl: Nccl | Cannot | None = None
        self._releases: list[Callable[[], None]] = []  # of all that was made, also before `forget`

    @cached_property
    def device_memory(self) -> DeviceMemory:
        """Return what calls of this backend need on a device."""
        return DeviceMemory()

    @cached_property
    def _spaces(self) -> tuple[Spaces, Spaces]:
        """Return those of the host and of a device."""
        return Spaces(HOST_MEMORY), Spaces(self.device_memory)

    def begin(self, consensus: Consensus, collective: Collective, choice: Choice) -> Runner:
        """Make what a choice needs and return how it runs; collective.

        Raises an error where that is not possible: on all ranks, or on this one alone.
        """
        if choice.via == NCCL:
            return self._by_nccl(consensus, collective, choice)
        private = self._held(consensus)
        if choice.via == SCHEDULE:
            return self._by_schedule(private, collective, choice)
        library = library_name()
        if self._forcing is None:
            self._forcing = Forcing(base_of(library), private)
            self._releases.append(self._forcing.release)
        settings = mpi_libraries.named(library).settings(collective, choice)
        comm = self._forcing.communicator(settings, consensus.check)
        forced = Forced(comm, self._forcing.around(settings), collective)
        direct = forced.call if cuda_aware() else None
        return Runner(forced.call, direct, (forced.prepare, forced.prepare))

    def connected(self, consensus: Consensus) -> Nccl | Cannot:
        """Return NCCL's communicator, or why there is none; collective."""
        if self._nccl is None:
            private = self._held(consensus)
            consensus.check()
            self._nccl = connect(private)
            if isinstance(self._nccl, Nccl):
                self._releases.append(self._nccl.release)
        return self._nccl

    def watch(self, act: Callable[..., None], *arguments: Any) -> None:
        """Make a call; if it fails, messages of it may still be on their way to this rank."""
        try:
            act(*arguments)
        except BaseException:
            self.failed = True
            raise

    def rest(self) -> bool:
        """Make ready for another communicator: give up large memory, try once more what failed.

        Returns whether there is anything to try once more.
        """
        for spaces in self.__dict__.get("_spaces", ()):  # where there are any
            if spaces.nbytes > MOST_IDLE:
                spaces.release()
        if None not in self.runners.values():
            return False
        left = {key for key, runner in self.runners.items() if runner is None}
        again, self._given_up = left - self._given_up, self._given_up | left
        for key in again:
            del self.runners[key]
        return bool(again)

    def release(self) -> None:
        """Free requests, their memory and communicators; collective.

        Raises TunerError where some of that failed, after all else is freed.
        """
        memory = [spaces.release for spaces in self._spaces]
        failure = attempt_all([*memory, *reversed(self._releases)])
        self._releases.clear()
        self.forget()
        self.runners.clear()
        if failure:
            raise TunerError(failure)

    def forget(self) -> None:
        """Make communicators anew for the next choice.

        To be called on all ranks after a step that failed: some of them may have got further than
        others, and what only these have cannot be used. Choices that run keep what they have.
        """
        self._private = self._forcing = self._nccl = None

    def with_device_memory(self, collective: Collective, library: Action) -> Action:
        """Return what makes a call of the library with buffers of a device: through the host where
        it takes only that.
        """
        if cuda_aware():
            return library

        def call(*arguments: Any) -> None:
            buffers = buffers_of(collective, self.comm.rank, arguments)
            others = arguments[len(buffers) :]
            self.device_memory.staging(lambda *host: library(*host, *others), *buffers)

        return call

    def _held(self, consensus: Consensus) -> MPI.Intracomm:
        if self._private is None:
            self._private = hold(consensus)
            self._releases.append(partial(give_back, self._private))
        return self._private

    def _by_schedule(
        self, private: MPI.Intracomm, collective: Collective, choice: Choice
    ) -> Runner:
        staged = build(collective, choice.algorithm, private.size, params=choice.params).staged
        library = partial(self._library, collective, choice)
        ways: tuple[Action, Action] = library, self.with_device_memory(collective, library)
        host, device = (
            Scheduled(private, way, collective, choice, spaces)
            for way, spaces in zip(ways, self._spaces, strict=True)
        )
        # Staged algorithms go through the host on purpose, also where MPI takes device buffers.
        direct = device.call if cuda_messages() and not staged else None
        return Runner(host.call, direct, (host.prepare, device.prepare))

    def _by_nccl(self, consensus: Consensus, collective: Collective, choice: Choice) -> Runner:
        nccl = self.connected(consensus)
        if isinstance(nccl, Cannot):
            raise InputError(nccl.reason)
        act = action_of(nccl, collective, partial(self._library, collective, choice))
        return Runner(act, act, (partial(partial, act), partial(partial, act)))

    def _library(self, collective: Collective, choice: Choice, *arguments: Any) -> None:
        """Make a call that the choice cannot make, as the communicator that uses this would."""
        if self.tally is not None:
            self.tally.leave(collective, choice)
        getattr(self.comm, METHODS[collective])(*arguments)
