"""The resources that run the algorithm choices of a table for one communicator.

A backend has private communicators of its ranks, schedules that are bound to buffers, and the
memory they need. It does not know the rules.
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
from tuner.core.table import NCCL, SCHEDULE, AlgorithmChoice
from tuner.mpi_libraries.products import base_of
from tuner.runtime.accesses import accessed_buffers
from tuner.runtime.agreement import library_name
from tuner.runtime.algorithm_control import AlgorithmControl
from tuner.runtime.consensus import Consensus, attempt_all
from tuner.runtime.cuda_support import has_cuda_messages, is_cuda_aware
from tuner.runtime.dispatch_table import Action
from tuner.runtime.library_algorithm import LibraryCall
from tuner.runtime.memory import HOST_MEMORY, DeviceMemory
from tuner.runtime.nccl import NcclComm, Unavailable, connect, nccl_action
from tuner.runtime.private_comm import acquire_comm, release_comm
from tuner.runtime.schedule_call import ScheduleCall
from tuner.runtime.scratch import ScratchPool
from tuner.runtime.tally import CallTally

Prepare = Callable[..., Callable[[], None] | None]


class AlgorithmActions(NamedTuple):
    """The functions that make calls with one algorithm choice.

    on_host     makes a call with host buffers
    on_device   makes a call with device buffers; None where these go through the host
    prepare     for host and for device buffers: a function that does the part of a call that can
                fail on one rank alone, and returns a function that moves the data, or None where
                the library must make the call
    """

    on_host: Action
    on_device: Action | None
    prepare: tuple[Prepare, Prepare]


class Backend:
    """The private communicators, schedules and memory behind one communicator.

    comm                the plain communicator that uses it
    algorithm_actions   the actions of each algorithm choice that all ranks have set up; None for
                        one that they agreed to leave to the library
    tally               counts the calls; None where they are not counted
    """

    def __init__(self, comm: MPI.Intracomm, tally: CallTally | None = None) -> None:
        self.comm, self.tally = comm, tally
        self.algorithm_actions: dict[
            tuple[Collective, AlgorithmChoice], AlgorithmActions | None
        ] = {}
        self._private_comm: MPI.Intracomm | None = None
        self._algorithm_control: AlgorithmControl | None = None
        self._nccl: NcclComm | Unavailable | None = None
        self._releases: list[Callable[[], None]] = []  # kept by `discard_comms`

    @cached_property
    def device_memory(self) -> DeviceMemory:
        return DeviceMemory()

    @cached_property
    def _spaces(self) -> tuple[ScratchPool, ScratchPool]:
        return ScratchPool(HOST_MEMORY), ScratchPool(self.device_memory)

    def set_up_algorithm(
        self, consensus: Consensus, collective: Collective, choice: AlgorithmChoice
    ) -> AlgorithmActions:
        """Set up an algorithm choice and return its actions; collective.

        Raises an error, on all ranks or on this one alone, where that is not possible.
        """
        if choice.runner == NCCL:
            return self._set_up_nccl(consensus, collective, choice)
        private = self._ensure_private_comm(consensus)
        if choice.runner == SCHEDULE:
            return self._set_up_schedule(private, collective, choice)
        library = library_name()
        if self._algorithm_control is None:
            self._algorithm_control = AlgorithmControl(base_of(library), private)
            self._releases.append(self._algorithm_control.release)
        settings = mpi_libraries.library_module(library).settings(collective, choice)
        comm = self._algorithm_control.communicator(settings, consensus.check)
        forced = LibraryCall(comm, self._algorithm_control.hooks(settings), collective)
        direct = forced.call if is_cuda_aware() else None
        return AlgorithmActions(forced.call, direct, (forced.prepare, forced.prepare))

    def connect_nccl(self, consensus: Consensus) -> NcclComm | Unavailable:
        """Return NCCL's communicator, or the reason why there is none; collective."""
        if self._nccl is None:
            private = self._ensure_private_comm(consensus)
            consensus.check()
            self._nccl = connect(private)
            if isinstance(self._nccl, NcclComm):
                self._releases.append(self._nccl.release)
        return self._nccl

    def release(self) -> None:
        """Free requests, their memory and communicators; collective.

        Raises TunerError where a release failed, after all others are done.
        """
        spaces = self.__dict__.get("_spaces", ())  # empty where no schedule was set up
        memory = [space.release for space in spaces]
        failure = attempt_all([*memory, *reversed(self._releases)])
        self._releases.clear()
        self.discard_comms()
        self.algorithm_actions.clear()
        if failure:
            raise TunerError(failure)

    def discard_comms(self) -> None:
        """Discard the private communicators, so that the next set-up creates new ones.

        It is called on all ranks after a step that failed: communicators that only some ranks
        created cannot be used. Algorithm choices that are set up keep their communicators.
        """
        self._private_comm = self._algorithm_control = self._nccl = None

    def stage_if_needed(self, collective: Collective, library: Action) -> Action:
        """Return an action that calls the library with device buffers.

        It stages them through the host where the library does not take device memory.
        """
        if is_cuda_aware():
            return library

        def call(*arguments: Any) -> None:
            buffers = accessed_buffers(collective, self.comm.rank, arguments)
            others = arguments[len(buffers) :]
            self.device_memory.staging(lambda *host: library(*host, *others), *buffers)

        return call

    def _ensure_private_comm(self, consensus: Consensus) -> MPI.Intracomm:
        if self._private_comm is None:
            self._private_comm = acquire_comm(consensus)
            self._releases.append(partial(release_comm, self._private_comm))
        return self._private_comm

    def _set_up_schedule(
        self, private: MPI.Intracomm, collective: Collective, choice: AlgorithmChoice
    ) -> AlgorithmActions:
        staged = build(collective, choice.algorithm, private.size, params=choice.params).staged
        library = partial(self._call_library, collective, choice)
        ways: tuple[Action, Action] = library, self.stage_if_needed(collective, library)
        host, device = (
            ScheduleCall(private, way, collective, choice, spaces)
            for way, spaces in zip(ways, self._spaces, strict=True)
        )
        # Staged algorithms go through the host on purpose, even where MPI takes device buffers.
        direct = device.call if has_cuda_messages() and not staged else None
        return AlgorithmActions(host.call, direct, (host.prepare, device.prepare))

    def _set_up_nccl(
        self, consensus: Consensus, collective: Collective, choice: AlgorithmChoice
    ) -> AlgorithmActions:
        nccl = self.connect_nccl(consensus)
        if isinstance(nccl, Unavailable):
            raise InputError(nccl.reason)
        act = nccl_action(nccl, collective, partial(self._call_library, collective, choice))
        return AlgorithmActions(act, act, (partial(partial, act), partial(partial, act)))

    def _call_library(
        self, collective: Collective, choice: AlgorithmChoice, *arguments: Any
    ) -> None:
        """Make a call that the algorithm choice cannot make with the library's method."""
        if self.tally is not None:
            self.tally.count_as_library(collective, choice)
        getattr(self.comm, collective.spec.mpi)(*arguments)
