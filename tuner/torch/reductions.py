"""The reductions of PyTorch by operators of MPI, also of types that MPI does not know.

bfloat16 and float16 are reduced by an operator of ours, which adds with PyTorch in the type itself,
so that messages stay at two bytes per element. A reduction of booleans is a logical one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch.distributed import ReduceOp

from tuner.base.errors import InputError

KINDS = ReduceOp.RedOpType
_HALF_TYPES = (torch.bfloat16, torch.float16)
_HALF_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    KINDS.SUM: torch.add,
    KINDS.PRODUCT: torch.mul,
    KINDS.MIN: torch.minimum,
    KINDS.MAX: torch.maximum,
}
_NAMES = {
    KINDS.SUM: "SUM",
    KINDS.PRODUCT: "PROD",
    KINDS.MIN: "MIN",
    KINDS.MAX: "MAX",
    KINDS.BAND: "BAND",
    KINDS.BOR: "BOR",
    KINDS.BXOR: "BXOR",
}
_LOGICAL_NAMES = {
    KINDS.SUM: "LOR",
    KINDS.MAX: "LOR",
    KINDS.BOR: "LOR",
    KINDS.PRODUCT: "LAND",
    KINDS.MIN: "LAND",
    KINDS.BAND: "LAND",
    KINDS.BXOR: "LXOR",
}
_BITWISE = (KINDS.BAND, KINDS.BOR, KINDS.BXOR)
_KNOWN: dict[tuple[int, torch.dtype], Reduction] = {}


@dataclass(frozen=True)
class Reduction:
    """A reduction of PyTorch as MPI makes it.

    operator    operator of MPI
    averages    whether the sum is to be divided by the number of ranks
    factor      what each rank multiplies its values by first; None for nothing
    """

    operator: Any
    averages: bool = False
    factor: Any = None

    def scale_input(self, tensor: torch.Tensor) -> None:
        """Multiply the values of this rank in place, for PREMUL_SUM."""
        if self.factor is not None:
            tensor.detach().mul_(self.factor)

    def finish(self, tensor: torch.Tensor, ranks: int) -> None:
        """Divide the sum in place, for AVG; integers are rounded towards zero."""
        if self.averages:
            whole = not (tensor.is_floating_point() or tensor.is_complex())
            tensor.detach().div_(ranks, rounding_mode="trunc" if whole else None)


def reduction_of(op: Any, dtype: torch.dtype) -> Reduction:
    """Return how an operator of PyTorch reduces values of a type.

    Raises InputError where it has no meaning for the type.
    """
    key = hash(op), dtype  # the hash is the number of the kind, which is slower to get
    if key in _KNOWN:
        return _KNOWN[key]
    kind = op.op if hasattr(op, "op") else op
    if kind == KINDS.PREMUL_SUM:
        _, factor = op.__getstate__()  # `op.factor` from PyTorch 2.13 on
        return Reduction(_operator(KINDS.SUM, dtype), factor=factor)
    averages = kind == KINDS.AVG
    _KNOWN[key] = Reduction(_operator(KINDS.SUM if averages else kind, dtype), averages)
    return _KNOWN[key]


@cache
def _operator(kind: Any, dtype: torch.dtype) -> Any:
    from mpi4py import MPI

    if dtype == torch.bool:
        return getattr(MPI, _LOGICAL_NAMES[kind])
    if (kind in _BITWISE and dtype.is_floating_point) or (
        dtype.is_complex and kind not in (KINDS.SUM, KINDS.PRODUCT)
    ):
        raise InputError(f"ReduceOp.{kind.name} has no meaning for tensors of {dtype}")
    if dtype in _HALF_TYPES:
        return MPI.Op.Create(partial(_reduce_half, _HALF_FUNCTIONS[kind], dtype), commute=True)
    if dtype.itemsize == 1 and dtype.is_floating_point:
        raise InputError(f"tensors of {dtype} cannot be reduced: convert them to bfloat16 first")
    return getattr(MPI, _NAMES[kind])


def _reduce_half(
    function: Callable[..., Any], dtype: torch.dtype, arriving: Any, present: Any, _: Any
) -> None:
    """Reduce elements in the memory that MPI gives, called by MPI."""
    if not arriving.nbytes:
        return
    other, result = (torch.frombuffer(memory, dtype=dtype) for memory in (arriving, present))
    function(other, result, out=result)
