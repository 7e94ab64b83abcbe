"""The CUDA device through CuPy; only this module and nccl.py use a GPU.

Everything runs on CuPy's current device and stream, which the program sets.
"""

from __future__ import annotations

import math
import warnings
import weakref
from functools import cache
from typing import Any

import cupy
import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from tuner.base.arrays import AnyArray
from tuner.base.errors import InputError
from tuner.runtime.buffers import ByteArray
from tuner.runtime.compatibility import handle_of
from tuner.runtime.device_pointers import (
    NO_DEVICE,
    PointerCache,
    cuda_array_interface_of,
    find_device,
)
from tuner.runtime.device_protocol import DeviceArray, Kernel
from tuner.runtime.nvidia import driver_version, has_nvlink

_INTEGERS, _FLOATS, _COMPLEX, _BOOLEAN = "iu", "f", "c", "b"  # kinds of numpy's dtypes
# The kinds of elements for which MPI defines each operator. The complex product is left out: the
# compiler fuses its multiplications and additions, so the last bit would differ from the host's.
EXPRESSIONS = {
    handle_of(MPI.SUM): ("first + second", _INTEGERS + _FLOATS + _COMPLEX),
    handle_of(MPI.PROD): ("first * second", _INTEGERS + _FLOATS),
    handle_of(MPI.MIN): ("first < second ? first : second", _INTEGERS + _FLOATS),
    handle_of(MPI.MAX): ("first > second ? first : second", _INTEGERS + _FLOATS),
    handle_of(MPI.BAND): ("first & second", _INTEGERS),
    handle_of(MPI.BOR): ("first | second", _INTEGERS),
    handle_of(MPI.BXOR): ("first ^ second", _INTEGERS),
    handle_of(MPI.LAND): ("first && second", _INTEGERS + _BOOLEAN),
    handle_of(MPI.LOR): ("first || second", _INTEGERS + _BOOLEAN),
    handle_of(MPI.LXOR): ("!first != !second", _INTEGERS + _BOOLEAN),
}
_FIRST_VERSION_WITH_STREAM = 3  # of CUDA's array interface
_MAX_ITEM_BYTES = {"f": 8, "c": 16}  # bytes; wider types exist only on the host


class CupyDevice:
    """The CUDA device of this process, see DeviceInterface.

    Raises InputError where there is none.
    """

    def __init__(self) -> None:
        try:
            cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as reason:
            raise InputError(f"no NVIDIA GPU: {reason}") from None
        self.pointer_cache = PointerCache(_device_at)
        self._kernels: dict[int, Kernel] = {}

    @property
    def number(self) -> int:
        return int(cupy.cuda.runtime.getDevice())

    def select(self, number: int) -> None:
        cupy.cuda.Device(number % cupy.cuda.runtime.getDeviceCount()).use()

    @property
    def pci_bus_id(self) -> str:
        return str(cupy.cuda.Device().pci_bus_id)

    @property
    def nccl_version(self) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CuPy warns where the library is not installed
            from cupy.cuda import nccl  # not an attribute of cupy.cuda before it is imported
        return _nccl_version(nccl.get_version()) if nccl.available else ""

    def has_nvlink(self, one: str, other: str) -> bool:
        return has_nvlink(one, other)

    def provenance(self) -> dict[str, str]:
        runtime = cupy.cuda.runtime
        name = runtime.getDeviceProperties(runtime.getDevice())["name"]
        return {
            "name": name.decode() if isinstance(name, bytes) else str(name),
            "bus": self.pci_bus_id,
            "driver": driver_version(),
            "cuda_of_driver": _cuda_version(runtime.driverGetVersion()),
            "cuda": _cuda_version(runtime.runtimeGetVersion()),
            "cupy": str(cupy.__version__),
            "nccl": self.nccl_version or "none",
        }

    def device_array(self, elements: AnyArray) -> DeviceArray:
        return _wrap(elements.ctypes.data, elements.shape, elements.dtype, elements)

    def allocate(self, nbytes: int) -> ByteArray:
        return np.asarray(_AddressOnly(cupy.empty(nbytes, np.uint8)))

    def allocate_shared(self, nbytes: int) -> tuple[ByteArray, bytes]:
        """See DeviceInterface.

        Allocates outside CuPy's pool, whose blocks have no handles of their own.
        """
        memory = cupy.cuda.MemoryPointer(cupy.cuda.Memory(nbytes), 0)
        array = np.asarray(_AddressOnly(cupy.ndarray((nbytes,), np.uint8, memory)))
        try:
            return array, cupy.cuda.runtime.ipcGetMemHandle(memory.ptr)
        except cupy.cuda.runtime.CUDARuntimeError as reason:
            raise InputError(f"memory cannot be shared with other ranks: {reason}") from None

    def open_shared(self, handle: bytes, nbytes: int) -> ByteArray:
        try:
            pointer = cupy.cuda.runtime.ipcOpenMemHandle(handle)
        except cupy.cuda.runtime.CUDARuntimeError as reason:
            raise InputError(f"memory of another rank cannot be opened: {reason}") from None
        address = _AddressOnly(_wrap(pointer, (nbytes,), np.dtype(np.uint8), None))
        end = weakref.finalize(address, cupy.cuda.runtime.ipcCloseMemHandle, pointer)
        end.atexit = False  # the driver closes it and may be unloaded by then
        return np.asarray(address)

    def empty_like(self, like: DeviceArray) -> DeviceArray:
        return cupy.empty_like(like)

    def copy_async(self, source: DeviceArray, target: DeviceArray) -> None:
        target.data.copy_from_device_async(source.data, source.nbytes)

    def upload(self, array: AnyArray) -> DeviceArray:
        copy = cupy.array(array)
        self.synchronise()
        return copy

    def download(self, source: DeviceArray, target: AnyArray) -> None:
        self.synchronise()
        source.data.copy_to_host(target.ctypes.data, source.nbytes)

    def allocate_pinned(self, nbytes: int) -> NDArray[np.uint8]:
        # Outside CuPy's pool, which never frees memory.
        memory = cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(nbytes), 0)
        return np.frombuffer(memory, np.uint8, nbytes)

    def copy_to_host_async(self, source: DeviceArray, target: AnyArray) -> None:
        source.data.copy_to_host_async(target.ctypes.data, source.nbytes)

    def copy_to_device_async(self, source: AnyArray, target: DeviceArray) -> None:
        target.data.copy_from_host_async(source.ctypes.data, source.nbytes)

    def synchronise(self) -> None:
        cupy.cuda.get_current_stream().synchronize()

    def synchronise_buffers(self, *buffers: Any) -> None:
        # CuPy's own arrays are written on the current stream.
        self.synchronise()
        for buffer in buffers:
            number = find_device(buffer, self.pointer_cache.device)
            if number not in (NO_DEVICE, self.number):
                with cupy.cuda.Device(number):
                    cupy.cuda.runtime.deviceSynchronize()
            elif number != NO_DEVICE and type(buffer).__module__ != "cupy":
                _wait_for_producer(buffer)

    def kernel(self, op: MPI.Op, dtype: np.dtype[Any]) -> Kernel | None:
        expression, kinds = EXPRESSIONS.get(handle_of(op), ("", ""))
        if dtype.kind not in kinds or not expression:
            return None
        if dtype.itemsize > _MAX_ITEM_BYTES.get(dtype.kind, 8):
            return None
        if handle_of(op) not in self._kernels:
            self._kernels[handle_of(op)] = cupy.ElementwiseKernel(
                "T first", "T second", f"second = {expression}", "tuner_fold"
            )
        return self._kernels[handle_of(op)]


class _AddressOnly:
    """An object with numpy's array interface for a device address; numpy only passes it on."""

    def __init__(self, array: Any) -> None:
        self.owner = array
        self.__array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.data.ptr, False),
            "version": 3,
        }


def _cuda_version(number: int) -> str:
    """Return the version for CUDA's number, 12.4 for 12040."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _nccl_version(number: int) -> str:
    """Return the version for NCCL's number, 2.29.7 for 22907."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _wait_for_producer(buffer: Any) -> None:
    """Wait for the stream that another library names; without one (PyTorch), for all streams.

    From version 3 on the array interface names the stream, or None where no wait is needed.
    """
    interface = cuda_array_interface_of(buffer) or {}
    if interface.get("version", 0) < _FIRST_VERSION_WITH_STREAM:
        cupy.cuda.runtime.deviceSynchronize()
    elif interface.get("stream"):  # a number; 1 and 2 are the default streams, as for the runtime
        cupy.cuda.runtime.streamSynchronize(interface["stream"])


@cache
def _create_context(_device: int) -> None:
    """Create the context of the current device, without which the driver knows no pointer.

    It is created late: it takes some hundred MB, which a process that selects another device does
    not need.
    """
    cupy.cuda.runtime.memGetInfo()


def _device_at(pointer: int) -> int:
    """Return the number of the device of a pointer, NO_DEVICE for the host, from the driver.

    Managed memory counts as device memory, registered host memory does not. A pointer that the
    driver does not know counts as the current device's, as its owner says.
    """
    runtime = cupy.cuda.runtime
    try:
        _create_context(runtime.getDevice())
        found = runtime.pointerGetAttributes(pointer)
    except runtime.CUDARuntimeError:
        return int(runtime.getDevice())
    on_device = found.type in (runtime.memoryTypeDevice, runtime.memoryTypeManaged)
    return int(found.device) if on_device else NO_DEVICE


def _wrap(pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: Any) -> DeviceArray:
    """Return a device array at an address, which is valid as long as its owner lives."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes == 0:
        return cupy.empty(shape, dtype)
    # Pass the device, else CuPy would query the driver.
    memory = cupy.cuda.UnownedMemory(pointer, nbytes, owner, cupy.cuda.device.get_device_id())
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))
