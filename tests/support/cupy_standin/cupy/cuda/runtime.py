"""See `cupy.cuda.runtime`: as much of it as is used here."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cupy import _driver

memoryTypeUnregistered, memoryTypeHost, memoryTypeDevice, memoryTypeManaged = range(4)
_KINDS = {"device": memoryTypeDevice, "managed": memoryTypeManaged, "pinned": memoryTypeHost}
_HANDLE = 64  # bytes
_current = 0
_pinned: dict[int, int] = {}  # bytes by address, of the host's memory that is registered
_opened: dict[int, Any] = {}


class CUDARuntimeError(RuntimeError):
    """An error of the runtime."""


def getDeviceCount() -> int:
    if not _driver.DEVICES:
        raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return int(_driver.DEVICES)


def getDevice() -> int:
    return _current


def setDevice(device: int) -> None:
    global _current
    if not 0 <= device < getDeviceCount():
        raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
    _current = device


def getDeviceProperties(device: int) -> dict[str, Any]:
    return {"name": f"stand-in {device}".encode()}


def memGetInfo() -> tuple[int, int]:
    getDeviceCount()
    return 1 << 30, 1 << 31


def driverGetVersion() -> int:
    return 12090


def runtimeGetVersion() -> int:
    return 12090


def deviceSynchronize() -> None:
    _driver.waits += 1
    _driver.wait_for_all()


def streamSynchronize(stream: int) -> None:
    _driver.waits += 1
    _driver.queue_at(stream).wait()


def eventQuery(event: int) -> int:
    """Whoever asks waits."""
    _driver.events[event].synchronize()
    return 0


def pointerGetAttributes(ptr: int) -> Any:
    _driver.queries += 1
    block = _driver.block_at(ptr)
    if block is not None:
        return SimpleNamespace(device=block.device, type=_KINDS[block.kind])
    registered = any(at <= ptr < at + nbytes for at, nbytes in _pinned.items())
    return SimpleNamespace(
        device=-1 + registered, type=memoryTypeHost if registered else memoryTypeUnregistered
    )


def hostRegister(ptr: int, size: int, flags: int) -> None:
    if ptr in _pinned:
        raise CUDARuntimeError("cudaErrorHostMemoryAlreadyRegistered")
    _pinned[ptr] = size


def hostUnregister(ptr: int) -> None:
    if _pinned.pop(ptr, None) is None:
        raise CUDARuntimeError("cudaErrorHostMemoryNotRegistered")


def ipcGetMemHandle(devPtr: int) -> bytes:
    block = _driver.block_at(devPtr)
    if block is None or block.kind != "device":
        raise CUDARuntimeError("cudaErrorInvalidValue: invalid argument")
    return f"{os.getpid()} {block.file} {block.nbytes} {block.device}".encode().ljust(_HANDLE)


def ipcOpenMemHandle(handle: bytes, flags: int = 1) -> int:
    process, file, nbytes, device = map(int, handle.split())
    if process == os.getpid():
        raise CUDARuntimeError("cudaErrorDeviceUninitialized: invalid device context")
    try:
        block = _driver.Block(nbytes, device, path=Path(f"/proc/{process}/fd/{file}"))
    except OSError as reason:
        raise CUDARuntimeError(f"cudaErrorMapBufferObjectFailed: {reason}") from None
    _opened[block.address] = block
    return int(block.address)


def ipcCloseMemHandle(devPtr: int) -> None:
    del _opened[devPtr]
