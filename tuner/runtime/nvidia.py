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
DRIVER_VERSION_FILE = Path("/proc/driver/nvidia/version")
NVML_LIBRARY = "libnvidia-ml.so.1"  # NVML, part of the driver
NVML_SUCCESS = 0  # NVML_SUCCESS, and NVML_P2P_STATUS_OK
NVML_P2P_NVLINK = 2  # NVML_P2P_CAPS_INDEX_NVLINK


@cache
def has_driver(library: str = CUDA_LIBRARY) -> bool:
    """Whether this process can have NVIDIA's driver: without it no buffer lies on a GPU."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def is_gpu_possible() -> bool:
    """Return whether this process can have memory on any GPU whose arrays show CUDA's interface."""
    return has_driver() or AMD_DEVICE.exists()


def driver_version(path: Path = DRIVER_VERSION_FILE) -> str:
    """Such as 550.54.15; `unknown` where the kernel does not say it."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
    return found[1] if found else "unknown"


def has_nvlink(one: str, other: str, library: str = NVML_LIBRARY) -> bool:
    """Whether NVLink, or a switch of it, joins the GPUs at two addresses of the bus.

    No, where NVML is not there or does not see them.
    """
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return False
    if nvml.nvmlInit_v2() != NVML_SUCCESS:
        return False
    try:
        gpus = [ctypes.c_void_p(), ctypes.c_void_p()]
        for bus, gpu in zip((one, other), gpus, strict=True):
            if (
                nvml.nvmlDeviceGetHandleByPciBusId_v2(bus.encode(), ctypes.byref(gpu))
                != NVML_SUCCESS
            ):
                return False
        status = ctypes.c_int()
        asked = nvml.nvmlDeviceGetP2PStatus(gpus[0], gpus[1], NVML_P2P_NVLINK, ctypes.byref(status))
        return bool(asked == NVML_SUCCESS and status.value == NVML_SUCCESS)
    finally:
        nvml.nvmlShutdown()
