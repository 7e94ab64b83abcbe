"""The memory of tensors as mpi4py takes it.

A dense, contiguous tensor on the host is given as it is, one with gaps through a contiguous copy. A
tensor in the memory of a GPU is given as it is where the call takes GPU memory, else through a copy
on the host. Memory on the host is asked for by name, as a program may have another default device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

# Types that numpy and MPI know; all others are moved as integers of the same size.
_NUMBERS = frozenset(
    (
        torch.float32,
        torch.float64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.bool,
        torch.complex64,
        torch.complex128,
    )
)
_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def array_of(tensor: torch.Tensor) -> Any:
    """Return the memory of a contiguous tensor for mpi4py.

    On the host it is a numpy array; a tensor on a GPU is returned itself.
    """
    if tensor.dtype not in _NUMBERS:
        tensor = tensor.detach().view(_CARRIERS[tensor.dtype.itemsize])
    return tensor.detach().numpy() if tensor.is_cpu else tensor.detach()


def is_direct(tensor: torch.Tensor, *, on_device: bool) -> bool:
    """Return whether a call takes the memory of a tensor as it is.

    on_device   whether the call takes the memory of a GPU
    """
    if tensor.is_conj() or tensor.is_neg() or not tensor.is_contiguous():
        return False
    return tensor.is_cpu or (on_device and tensor.is_cuda and tensor.dtype in _NUMBERS)


def empty_on_host(
    shape: Sequence[int], dtype: torch.dtype, *, pinned: bool = False
) -> torch.Tensor:
    """Return a new tensor on the host.

    pinned      whether it is copied from or to a GPU, which is faster with pinned memory
    """
    return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=pinned)


def dense_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values as a new contiguous tensor on the host."""
    copy = empty_on_host(tensor.shape, tensor.dtype, pinned=tensor.is_cuda)
    return copy.copy_(tensor.detach())


def readable(tensor: torch.Tensor, *, on_device: bool = False) -> torch.Tensor:
    """Return a tensor with the same values that a call can read; see `is_direct`."""
    return tensor if is_direct(tensor, on_device=on_device) else dense_copy(tensor)


def writable(tensor: torch.Tensor, *, on_device: bool = False) -> torch.Tensor:
    """Return a tensor for the result, the tensor itself where possible; see `is_direct`."""
    if is_direct(tensor, on_device=on_device):
        return tensor
    return empty_on_host(tensor.shape, tensor.dtype, pinned=tensor.is_cuda)


def store(result: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copy a result into the tensor that it is for, unless it is the same."""
    if result is not tensor:
        tensor.detach().copy_(result.view(tensor.shape))


def flattened(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the values of tensors of one type, one after the other, on the host."""
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    return readable(flat)


def empty_for(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a flat tensor on the host with room for the values of tensors of one type."""
    numbers = sum(tensor.numel() for tensor in tensors)
    return empty_on_host((numbers,), tensors[0].dtype, pinned=tensors[0].is_cuda)


def unflatten(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Copy the values of `flat` into tensors, one after the other."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    for part, tensor in zip(parts, tensors, strict=True):
        store(part, tensor)


def memory_overlaps(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two contiguous tensors share memory."""
    first, second = one.data_ptr(), other.data_ptr()
    return one.device == other.device and bool(
        first < second + other.nbytes and second < first + one.nbytes
    )
