"""The collectives of PyTorch on the tensors of one communicator.

Each method blocks until its call is complete on this rank. The collectives that a table can have
rules for follow the table of the communicator; calls with other amounts for each rank are the
library's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from mpi4py import MPI

from tuner.runtime.cuda_support import cuda_device_or_none, is_cuda_aware
from tuner.runtime.methods import CollectiveMethods
from tuner.torch.reductions import Reduction, reduction_of
from tuner.torch.tensors import (
    array_of,
    dense_copy,
    empty_for,
    empty_on_host,
    flattened,
    memory_overlaps,
    readable,
    store,
    unflatten,
    writable,
)

Tensors = Sequence[torch.Tensor]


class TensorCollectives:
    """The collectives of the ranks of a communicator, which may follow a table.

    comm        communicator of mpi4py; all calls on it come from one thread at a time
    """

    def __init__(self, comm: Any) -> None:
        self.comm, self.rank, self.size = comm, comm.Get_rank(), comm.Get_size()

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        memory = self._readable(tensor) if self.rank == root else self._writable(tensor)
        self.comm.Bcast(array_of(memory), root)
        store(memory, tensor)

    def allreduce(self, tensor: torch.Tensor, op: Any) -> None:
        """Reduce the tensor over all ranks, in place; a sparse one by its sum."""
        if tensor.layout != torch.strided:
            return self._allreduce_sparse(tensor, op)
        how = reduction_of(op, tensor.dtype)
        memory = self._reducible(tensor, how)
        how.scale_input(memory)
        self.comm.Allreduce(MPI.IN_PLACE, array_of(memory), how.operator)
        how.finish(memory, self.size)
        return store(memory, tensor)

    def allreduce_coalesced(self, tensors: Tensors, op: Any) -> None:
        """Reduce several tensors over all ranks, those of one type in one call."""
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            same = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = flattened(same)
            self.allreduce(flat, op)
            unflatten(flat, same)

    def reduce(self, tensor: torch.Tensor, op: Any, root: int) -> None:
        """Reduce the tensor over all ranks into that of the root."""
        how = reduction_of(op, tensor.dtype)
        if self.rank != root:
            given = tensor if how.factor is None else dense_copy(tensor)
            given = self._reducible(given, how)
            how.scale_input(given)
            self.comm.Reduce(array_of(given), None, how.operator, root)
            return
        memory = self._reducible(tensor, how)
        how.scale_input(memory)
        self.comm.Reduce(MPI.IN_PLACE, array_of(memory), how.operator, root)
        how.finish(memory, self.size)
        store(memory, tensor)

    def allgather_single(self, output: torch.Tensor, own: torch.Tensor) -> None:
        """Gather the tensors of all ranks into one, in the order of the ranks."""
        result, given = self._writable(output), self._readable(own)
        begin = result.data_ptr() + self.rank * given.nbytes
        if given.nbytes and given.data_ptr() == begin:
            self.comm.Allgather(MPI.IN_PLACE, array_of(result))
        else:
            given = dense_copy(given) if memory_overlaps(given, result) else given
            self.comm.Allgather(array_of(given), array_of(result))
        store(result, output)

    def allgather(self, outputs: Tensors, own: torch.Tensor) -> None:
        """Gather the tensors of all ranks into one each; they may have different sizes."""
        flat, given = empty_for(outputs), flattened([own])
        counts = [output.numel() for output in outputs]
        if len(set(counts)) == 1:
            self.comm.Allgather(array_of(given), array_of(flat))
        else:
            self.comm.Allgatherv(array_of(given), [array_of(flat), counts])
        unflatten(flat, outputs)

    def gather(self, outputs: Tensors, own: torch.Tensor, root: int) -> None:
        """Gather the tensors of all ranks at the root, into one each."""
        given = flattened([own])
        if self.rank != root:
            self.comm.Gather(array_of(given), None, root)
            return
        flat = empty_for(outputs)
        self.comm.Gather(array_of(given), array_of(flat), root)
        unflatten(flat, outputs)

    def scatter(self, output: torch.Tensor, parts: Tensors, root: int) -> None:
        result = self._writable(output)
        given = array_of(flattened(parts)) if self.rank == root else None
        self.comm.Scatter(given, array_of(result), root)
        store(result, output)

    def reduce_scatter_single(self, output: torch.Tensor, parts: torch.Tensor, op: Any) -> None:
        """Reduce a tensor over all ranks and give each rank its part of it."""
        how = reduction_of(op, parts.dtype)
        given = self._readable(parts) if how.factor is None else dense_copy(parts)
        result = self._reducible(output, how)
        if memory_overlaps(given, result):
            given = dense_copy(given)
        how.scale_input(given)
        self.comm.Reduce_scatter_block(array_of(given), array_of(result), how.operator)
        how.finish(result, self.size)
        store(result, output)

    def reduce_scatter(self, output: torch.Tensor, parts: Tensors, op: Any) -> None:
        """Reduce a list of tensors over all ranks and give each rank its own of them."""
        counts = [part.numel() for part in parts]
        flat = flattened(parts)
        if len(set(counts)) == 1:
            return self.reduce_scatter_single(output, flat, op)
        how = reduction_of(op, output.dtype)
        result = empty_on_host((counts[self.rank],), output.dtype)
        how.scale_input(flat)
        self.comm.Reduce_scatter(array_of(flat), array_of(result), counts, how.operator)
        how.finish(result, self.size)
        return store(result, output)

    def alltoall(self, outputs: Tensors, inputs: Tensors) -> None:
        """Send one tensor to each rank and receive one from each."""
        flat = empty_for(outputs)
        counts = [[tensor.numel() for tensor in tensors] for tensors in (inputs, outputs)]
        self._exchange(flat, flattened(inputs), *counts)
        unflatten(flat, outputs)

    def alltoall_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
    ) -> None:
        """Send parts of a tensor along its first dimension to the ranks and receive theirs.

        output_splits   rows from each rank; empty for the same number from each
        input_splits    rows to each rank; empty for the same number to each
        """
        if not output_splits and not input_splits:
            result, source = self._writable(output), self._readable(given)
            source = dense_copy(source) if memory_overlaps(source, result) else source
            self.comm.Alltoall(array_of(source), array_of(result))
            return store(result, output)
        takes_device = is_cuda_aware()  # the call is the library's
        result = writable(output, on_device=takes_device)
        source = readable(given, on_device=takes_device)
        source = dense_copy(source) if memory_overlaps(source, result) else source
        counts = [
            self._counts_of(tensor, splits)
            for tensor, splits in ((source, input_splits), (result, output_splits))
        ]
        self._exchange(result, source, *counts)
        return store(result, output)

    def barrier(self) -> None:
        self.comm.Barrier()

    def _exchange(
        self,
        result: torch.Tensor,
        given: torch.Tensor,
        input_counts: list[int],
        output_counts: list[int],
    ) -> None:
        self.comm.Alltoallv(
            [array_of(given), (input_counts, _displacements(input_counts))],
            [array_of(result), (output_counts, _displacements(output_counts))],
        )

    def _counts_of(self, tensor: torch.Tensor, splits: Sequence[int]) -> list[int]:
        """Return the elements for each rank."""
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            return [tensor.numel() // self.size] * self.size
        width = tensor.numel() // rows if rows else 0
        return [part * width for part in splits]

    def _reducible(self, tensor: torch.Tensor, how: Reduction) -> torch.Tensor:
        """Return memory for a reduction: on the host where the operator is ours."""
        predefined = how.operator.is_predefined
        return self._readable(tensor) if tensor.is_cpu or predefined else dense_copy(tensor)

    @cached_property
    def _takes_device(self) -> bool:
        """Whether calls that follow the table take tensors in the memory of a GPU."""
        copies = isinstance(self.comm, CollectiveMethods) and cuda_device_or_none() is not None
        return copies or is_cuda_aware()

    def _readable(self, tensor: torch.Tensor) -> torch.Tensor:
        return readable(tensor, on_device=tensor.is_cuda and self._takes_device)

    def _writable(self, tensor: torch.Tensor) -> torch.Tensor:
        return writable(tensor, on_device=tensor.is_cuda and self._takes_device)

    def _allreduce_sparse(self, tensor: torch.Tensor, op: Any) -> None:
        """Gather the entries of all ranks and add those of one place."""
        how = reduction_of(op, tensor.dtype)
        if how.operator != MPI.SUM or how.averages:
            raise TypeError("sparse tensors can only be summed")
        own = tensor.detach().cpu().coalesce()
        indices, values = own.indices().contiguous(), own.values().contiguous()
        width = math.prod(values.shape[1:])
        shapes = empty_on_host((2 * self.size,), torch.int64)
        self.allgather_single(shapes, torch.tensor([len(values), width], device="cpu"))
        entries, widths = shapes[0::2].tolist(), int(shapes[1::2].max())
        every_index = [empty_on_host((len(indices), n), torch.int64) for n in entries]
        every_value = [empty_on_host((n, widths), values.dtype) for n in entries]
        self.allgather(every_index, indices)
        self.allgather(every_value, values.reshape(len(values), width))
        joined = torch.cat(every_value).reshape(-1, *values.shape[1:])
        total = torch.sparse_coo_tensor(torch.cat(every_index, 1), joined, tensor.shape)
        with torch.no_grad():
            tensor.copy_(total.coalesce())


def _displacements(counts: Sequence[int]) -> list[int]:
    return [0, *accumulate(counts)][:-1]
