"""A stand-in for CuPy: as much of its surface as `tuner` and its tests use, on a CPU.

It shows copies and waits that are missing, wrong offsets and wrong sizes (`_driver.py`). It cannot
show CuPy's own errors, how real streams interleave, or speed. Names and signatures are held against
the real package by a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from cupy import _driver, cuda
from tests.support.tensors import Tensor

__version__ = "14.2.0"
_CONDITIONAL = re.compile(r"(.+) \? (.+) : (.+)")
_ON_CUDA = 2  # DLPack's device type


class ndarray:
    """An array in a device's memory; what is done with it is begun on the current stream."""

    def __init__(
        self,
        shape: Any,
        dtype: Any = float,
        memptr: Any = None,
        strides: Any = None,
        order: Any = "C",
    ) -> None:
        like = np.ndarray(shape, dtype, order=order) if strides is None else None
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = np.dtype(dtype)
        self.strides: tuple[int, ...] = like.strides if like is not None else tuple(strides)
        self.size = int(np.prod(self.shape))
        self.nbytes, self.ndim = self.size * self.dtype.itemsize, len(self.shape)
        self.data = memptr or cuda.MemoryPointer(cuda.Memory(self.nbytes), 0)
        self.itemsize = self.dtype.itemsize
        self.base: ndarray | None = None

    @property
    def device(self) -> cuda.Device:
        return cuda.Device(self.data.device_id)

    @property
    def flags(self) -> Any:
        return np.lib.stride_tricks.as_strided(
            np.empty(1, self.dtype), self.shape, self.strides
        ).flags

    @property
    def _content(self) -> Any:
        """The device's own view of it."""
        block = _driver.block_at(self.data.ptr)
        if block is None or not self.size:
            return np.empty(self.shape, self.dtype)
        start = self.data.ptr - block.address
        return np.ndarray(self.shape, self.dtype, block.content, start, self.strides)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        stream = cuda.get_current_stream().ptr
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "strides": None if self.flags.c_contiguous else self.strides,
            "data": (self.data.ptr, False),
            "stream": stream or 1,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return _ON_CUDA, int(self.data.device_id)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        shown = np.asarray(_Shown(self))
        if stream not in (None, -1):
            _wait_on(stream, cuda.get_current_stream())
        return Tensor(shown, _ON_CUDA).__dlpack__(max_version=max_version, copy=False)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, key: Any) -> ndarray:
        return self._view(self._content[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        target = self._content[key]
        source = value._content if isinstance(value, ndarray) else np.array(value)
        _begin(lambda: target.__setitem__(..., source))

    def __iadd__(self, other: Any) -> ndarray:
        content = self._content
        _begin(lambda: content.__iadd__(other))
        return self

    def reshape(self, *shape: Any, order: str = "C") -> ndarray:
        return self._view(self._content.reshape(*shape, order=order))

    def view(self, dtype: Any) -> ndarray:
        return self._view(self._content.view(dtype))

    def get(self) -> Any:
        """Wait for the current stream; return a copy on the host."""
        cuda.get_current_stream().synchronize()
        return self._content.copy()

    def _view(self, content: Any) -> ndarray:
        own = self._content
        offset = content.__array_interface__["data"][0] - own.__array_interface__["data"][0]
        offset += self.data.ptr - self.data.mem.ptr
        place = cuda.MemoryPointer(self.data.mem, offset if content.size else 0)
        made = ndarray(content.shape, content.dtype, place, content.strides)
        made.base = self if self.base is None else self.base
        return made


class _Shown:
    """What numpy takes for memory of the host."""

    def __init__(self, array: ndarray) -> None:
        self.owner = array
        self.__array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "strides": array.strides,
            "data": (array.data.ptr, False),
            "version": 3,
        }


class ElementwiseKernel:
    """`operation` assigns one expression of C to the output, for every element."""

    def __init__(
        self, in_params: str, out_params: str, operation: str, name: str = "kernel", **options: Any
    ) -> None:
        self._operand, self._result = (text.split()[1] for text in (in_params, out_params))
        target, _, expression = operation.partition(" = ")
        assert target == self._result
        self._compute = eval(f"lambda np, {self._operand}, {self._result}: {_of_numpy(expression)}")

    def __call__(self, first: ndarray, second: ndarray) -> None:
        one, two = first._content, second._content
        if one.dtype != two.dtype or one.shape != two.shape:
            raise TypeError("operands of different kinds")

        def fold() -> None:
            with np.errstate(all="ignore"):
                two[...] = self._compute(np, one, two)

        _begin(fold)


def _of_numpy(expression: str) -> str:
    chosen = _CONDITIONAL.fullmatch(expression)
    if chosen:
        return "np.where({}, {}, {})".format(*chosen.groups())
    for symbol, function in (("&&", "logical_and"), ("||", "logical_or")):
        one, found, two = expression.partition(f" {symbol} ")
        if found:
            return f"np.{function}({one}, {two})"
    return re.sub(r"!(\w+)", r"np.logical_not(\1)", expression)


def _begin(work: Callable[[], object]) -> None:
    _driver.queue_at(cuda.get_current_stream().ptr).put(work)


def _wait_on(stream: int, other: Any) -> None:
    """A stream waits for what is under way on another one."""
    queue, before = _driver.queue_at(other.ptr), _driver.queue_at(other.ptr).last
    if _driver.queue_at(stream) is not queue:
        _driver.queue_at(stream).put(lambda: queue.wait(before))


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return ndarray(shape, dtype, order=order)


def empty_like(prototype: ndarray) -> ndarray:
    return ndarray(prototype.shape, prototype.dtype)


def full(shape: Any, fill_value: Any, dtype: Any = None) -> ndarray:
    made = ndarray(shape, np.asarray(fill_value).dtype if dtype is None else dtype)
    made[...] = fill_value
    return made


def zeros(shape: Any, dtype: Any = float) -> ndarray:
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: Any = float) -> ndarray:
    return full(shape, 1, dtype)


def arange(*arguments: Any, dtype: Any = None) -> ndarray:
    return array(np.arange(*arguments, dtype=dtype))


def array(obj: Any, dtype: Any = None, copy: bool = True, order: Any = "K") -> ndarray:
    """A copy on the current device."""
    if isinstance(obj, ndarray):
        made = ndarray(obj.shape, dtype or obj.dtype)
        made[...] = obj
        return made
    content = np.array(obj, dtype, order=order)
    made = ndarray(content.shape, content.dtype, strides=content.strides)
    target = made._content
    _begin(lambda: target.__setitem__(..., content))
    return made


def asarray(a: Any, dtype: Any = None) -> ndarray:
    """Nothing is copied within the current device, but what other devices have is."""
    if isinstance(a, ndarray):
        return a if a.data.device_id == cuda.runtime.getDevice() else array(a)
    return array(a, dtype)


def asfortranarray(a: ndarray) -> ndarray:
    made = ndarray(a.shape, a.dtype, order="F")
    made[...] = a
    return made


def asnumpy(a: Any) -> Any:
    return a.get() if isinstance(a, ndarray) else np.asarray(a)


def get_default_memory_pool() -> Any:
    return _Pool()


class _Pool:
    def free_all_blocks(self) -> None:
        """Nothing is kept here."""


ndarray.__module__ = "cupy"
