"""The process group of the backend `tuner`, and its registration with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import (
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)

from tuner.base.errors import InputError
from tuner.torch.calls import CallQueue
from tuner.torch.options import Options
from tuner.torch.ranks import check_started, start_with_store

BACKEND_NAME = "tuner"


def _base_class() -> Any:
    """Return what a backend in Python derives from in this version of PyTorch."""
    backend = torch._C._distributed_c10d.Backend
    if hasattr(dist, "BackendBase"):
        return dist.BackendBase
    return backend if hasattr(backend, "register_abort_hook") else dist.ProcessGroup


_BASE: Any = _base_class()

Tensors = Sequence[torch.Tensor]


class TunedProcessGroup(_BASE):
    """A process group whose collectives follow a tuning table.

    comm        communicator of the group's ranks
    name        for messages
    timeout     seconds that a call may take unless it has a limit of its own
    """

    def __init__(self, comm: Any, name: str, timeout: float) -> None:
        from tuner.torch.tensor_collectives import TensorCollectives

        super().__init__(comm.Get_rank(), comm.Get_size())
        self._comm, self._calls = comm, CallQueue(name, timeout)
        self._on = TensorCollectives(comm)
        self._size, self._closed = self._on.size, False

    # What PyTorch asks about a group

    def getBackendName(self) -> str:
        return BACKEND_NAME

    def getGroupName(self) -> str:
        """Return the name by which PyTorch knows the group."""
        return self._calls.name

    @property
    def group_name(self) -> str:
        return self._calls.name

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(name) for name in _device_names()]

    @property
    def supports_splitting(self) -> bool:
        """Return whether a group can be split without its parent: no."""
        return False

    @property
    def supports_coalescing(self) -> bool:
        """Return whether calls may be collected before they are issued: no."""
        return False

    def set_timeout(self, timeout: timedelta) -> None:
        self._calls.timeout = timeout.total_seconds()

    _set_default_timeout = set_timeout

    # Collectives

    def broadcast(self, tensors: Tensors, opts: Any = None) -> Any:
        opts = opts or BroadcastOptions()
        act = partial(self._on.broadcast, tensors[0], opts.rootRank)
        return self._make("broadcast", act, opts, list(tensors))

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Any:
        opts = opts or AllreduceOptions()
        act = partial(self._on.allreduce, tensors[0], opts.reduceOp)
        return self._make("all_reduce", act, opts, list(tensors))

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        """Reduce several tensors over all ranks, in place."""
        opts = opts or AllreduceOptions()
        act = partial(self._on.allreduce_coalesced, tensors, opts.reduceOp)
        return self._make("all_reduce_coalesced", act, opts, list(tensors))

    def reduce(self, tensors: Tensors, opts: Any = None) -> Any:
        """Reduce the tensor over all ranks into that of the root."""
        opts = opts or ReduceOptions()
        act = partial(self._on.reduce, tensors[0], opts.reduceOp, opts.rootRank)
        return self._make("reduce", act, opts, list(tensors))

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        act = partial(self._on.allgather, outputs[0], inputs[0])
        return self._make("all_gather", act, opts, list(outputs[0]))

    def all_gather_single(self, output: torch.Tensor, own: torch.Tensor, opts: Any = None) -> Any:
        self._check_amount("all_gather", output, own)
        act = partial(self._on.allgather_single, output, own)
        return self._make("all_gather_into_tensor", act, opts, [output])

    def allgather_coalesced(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None
    ) -> Any:
        """Gather several tensors of all ranks; `outputs` has a list for each rank."""

        def act() -> None:
            for place, own in enumerate(inputs):
                self._on.allgather([of_rank[place] for of_rank in outputs], own)

        return self._make("all_gather_coalesced", act, opts, [t for some in outputs for t in some])

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Any:
        """Gather several tensors of all ranks, each into one."""

        def act() -> None:
            for output, own in zip(outputs, inputs, strict=True):
                self._on.allgather_single(output, own)

        return self._make("all_gather_into_tensor", act, opts, list(outputs))

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        opts = opts or GatherOptions()
        results = list(outputs[0]) if outputs else []
        act = partial(self._on.gather, results, inputs[0], opts.rootRank)
        return self._make("gather", act, opts, results, inputs)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Any:
        opts = opts or ScatterOptions()
        parts = list(inputs[0]) if inputs else []
        act = partial(self._on.scatter, outputs[0], parts, opts.rootRank)
        return self._make("scatter", act, opts, list(outputs))

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Any:
        """Reduce a list of tensors over all ranks and give each rank its own of them."""
        opts = opts or ReduceScatterOptions()
        act = partial(self._on.reduce_scatter, outputs[0], inputs[0], opts.reduceOp)
        return self._make("reduce_scatter", act, opts, list(outputs))

    def reduce_scatter_single(
        self, output: torch.Tensor, parts: torch.Tensor, opts: Any = None
    ) -> Any:
        """Reduce a tensor over all ranks and give each rank its part of it."""
        opts = opts or ReduceScatterOptions()
        self._check_amount("reduce_scatter", parts, output)
        act = partial(self._on.reduce_scatter_single, output, parts, opts.reduceOp)
        return self._make("reduce_scatter_tensor", act, opts, [output])

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Any:
        """Reduce several tensors over all ranks and give each rank its parts of them."""
        opts = opts or ReduceScatterOptions()
        op = opts.reduceOp

        def act() -> None:
            for output, parts in zip(outputs, inputs, strict=True):
                self._on.reduce_scatter_single(output, parts, op)

        return self._make("reduce_scatter_tensor", act, opts, list(outputs))

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """Send one tensor to each rank and receive one from each."""
        act = partial(self._on.alltoall, outputs, inputs)
        return self._make("all_to_all", act, opts or AllToAllOptions(), list(outputs))

    def all_to_all_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Any:
        """Send parts of a tensor to the ranks and receive theirs."""
        self._check_splits(output, output_splits)
        self._check_splits(given, input_splits)
        act = partial(self._on.alltoall_single, output, given, output_splits, input_splits)
        return self._make("all_to_all_single", act, opts or AllToAllOptions(), [output])

    def barrier(self, opts: Any = None) -> Any:
        return self._make("barrier", self._on.barrier, opts or BarrierOptions(), [])

    # The names of the same methods in versions of PyTorch before 2.13

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # Messages

    def send(self, tensors: Tensors, target: int, tag: int) -> Any:
        from tuner.torch.messages import send

        return send(self._comm, tensors[0], target, tag, self._calls.timeout)

    def recv(self, tensors: Tensors, source: int, tag: int) -> Any:
        from tuner.torch.messages import receive

        return receive(self._comm, tensors[0], source, tag, self._calls.timeout)

    def recv_anysource(self, tensors: Tensors, tag: int) -> Any:
        """Receive a tensor from whichever rank sends one."""
        from tuner.torch.messages import receive

        return receive(self._comm, tensors[0], None, tag, self._calls.timeout)

    # The end

    def shutdown(self) -> None:
        """End all calls, post their times and free the communicator; collective."""
        if self._closed:
            return
        from tuner.torch.communicators import release_comm_of_group

        self._closed = True
        self._calls.close(partial(release_comm_of_group, self._comm))

    def abort(self) -> None:
        """Let all calls fail that are not complete, without waiting for other ranks."""
        self._closed = True
        self._calls.abort(dist.DistBackendError(f"process group {self._calls.name} was aborted"))

    def _make(
        self,
        name: str,
        act: Callable[[], None],
        opts: Any,
        results: list[torch.Tensor],
        inputs: Tensors = (),
    ) -> Any:
        """Make a call at once where the program waits for it anyway, else issue it.

        inputs      of a call that may have no results on this rank
        """
        first = next(iter((*results, *inputs)), None)
        if first is not None and first.is_cuda:
            device = first.device
            given = torch.cuda.current_stream(device).record_event()
            act = partial(_act_on_device, device, given, act)
        asked = opts.timeout.total_seconds() if opts is not None else -1.0
        limit = asked if asked > 0 else None
        if opts is not None and not getattr(opts, "asyncOp", True):
            self._calls.run(name, act, limit)
            return None
        return self._calls.issue(name, act, results, limit)

    def _check_amount(self, name: str, whole: torch.Tensor, part: torch.Tensor) -> None:
        if whole.numel() != part.numel() * self._size:
            raise ValueError(
                f"{name}: the tensor of all ranks has {whole.numel()} elements where"
                f" {self._size} ranks have {part.numel()} each"
            )

    def _check_splits(self, tensor: torch.Tensor, splits: Sequence[int]) -> None:
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits and rows % self._size:
            raise ValueError(f"all_to_all: {rows} rows cannot be divided among {self._size} ranks")
        if splits and (len(splits) != self._size or sum(splits) != rows):
            raise ValueError(
                f"all_to_all: splits {list(splits)} do not divide {rows} rows among"
                f" {self._size} ranks"
            )


def _act_on_device(device: torch.device, given: Any, act: Callable[[], None]) -> None:
    """Make a call on the tensors of a GPU, and wait for what the call gives to the GPU.

    Whoever waits for the call may then use its result on any stream.

    given       event after what the program has given to its stream
    """
    with torch.cuda.device(device):
        given.synchronize()
        act()
        torch.cuda.current_stream().synchronize()


def create_process_group(settings: Any, options: Any) -> TunedProcessGroup:
    """Create a process group for PyTorch, which calls this on all ranks of the group; collective.

    Raises InputError where the processes are not ranks of one MPI.
    """
    if options is not None and not isinstance(options, Options):
        raise InputError(f"pg_options is a tuner.torch.Options, not a {type(options).__name__}")
    ranks, name = settings.global_ranks_in_group, settings.group_id
    timeout = settings.timeout.total_seconds()
    if not ranks:
        start_with_store(settings.store, settings.group_rank, settings.group_size)
    elif len(ranks) == dist.get_world_size():
        start_with_store(settings.store, dist.get_rank(), dist.get_world_size())
    else:
        check_started(dist.get_rank(), dist.get_world_size())
    from tuner.torch.communicators import group_comm, world_comm  # they need MPI's ranks

    if ranks:
        return TunedProcessGroup(group_comm(ranks, name, options), name, timeout)
    return TunedProcessGroup(world_comm(options or Options()), name, timeout)


def _device_names() -> list[str]:
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def register() -> None:
    """Make the backend known to PyTorch by its name."""
    if not hasattr(dist.Backend, BACKEND_NAME.upper()):
        dist.Backend.register_backend(
            BACKEND_NAME, create_process_group, extended_api=True, devices=_device_names()
        )
