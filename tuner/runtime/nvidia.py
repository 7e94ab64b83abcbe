"""What NVIDIA's driver says and CuPy does not.

Whether it is there, its version, and which GPUs NVLink joins.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path

CUDA_LIBRARY = "libcuda.so.1"  # the driver's own, which whatever uses a GPU loads
AMD_DEVICE = Path("/dev/kfd")  # of whose GPUs arrays show CUDA's interface, too
DRIVER = Path("/proc/driver/nvidia/version")
LIBRARY = "libnvidia-ml.so.1"  # NVML, part of the driver
DONE = 0  # NVML_SUCCESS, and NVML_P2P_STATUS_OK
NVLINK = 2  # NVML_P2P_CAPS_INDEX_NVLINK


@cache
def driver_loads(library: str = CUDA_LIBRARY) -> bool:
    """Whether this process can have NVIDIA's driver: without it no buffer lies on a GPU."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def gpu_possible() -> bool:
    """Return whether this process can have memory on any GPU whose arrays show CUDA's interface."""
    return driver_loads() or AMD_DEVICE.exists()


def driver(path: Path = DRIVER) -> str:
    """Such as 550.54.15; `unknown` where the kernel does not say it."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
    return found[1] if found else "unknown"


def nvlink_between(one: str, other: str, library: str = LIBRARY) -> bool:
    """Whether NVLink, or a switch of it, joins the GPUs at two addresses of the bus.

    No, where NVML is not there or does not see them.
    """
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return False
    if nvml.nvmlInit_v2() != DONE:
        return False
    try:
        gpus = [ctypes.c_void_p(), ctypes.c_void_p()]
        for bus, gpu in zip((one, other), gpus, strict=True):
            if nvml.nvmlDeviceGetHandleByPciBusId_v2(bus.encode(), ctypes.byref(gpu)) != DONE:
                return False
        status = ctypes.c_int()
        asked = nvml.nvmlDeviceGetP2PStatus(gpus[0], gpus[1], NVLINK, ctypes.byref(status))
        return bool(asked == DONE and status.value == DONE)
    finally:
        nvml.nvmlShutdown()
