"""Queries of NVIDIA's driver that CuPy lacks: its presence, its version and NVLink between GPUs."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path

CUDA_LIBRARY = "libcuda.so.1"  # the driver's library, loaded by every program that uses a GPU
AMD_DEVICE = Path("/dev/kfd")  # arrays on AMD's GPUs have CUDA's array interface, too
DRIVER_VERSION_FILE = Path("/proc/driver/nvidia/version")
NVML_LIBRARY = "libnvidia-ml.so.1"  # NVML, part of the driver
NVML_SUCCESS = 0  # NVML_SUCCESS, and NVML_P2P_STATUS_OK
NVML_P2P_NVLINK = 2  # NVML_P2P_CAPS_INDEX_NVLINK


@cache
def has_driver(library: str = CUDA_LIBRARY) -> bool:
    """Return whether NVIDIA's driver can be loaded; without it no buffer is on a GPU."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def is_gpu_possible() -> bool:
    """Return whether this process can use a GPU whose arrays have CUDA's array interface."""
    return has_driver() or AMD_DEVICE.exists()


def driver_version(path: Path = DRIVER_VERSION_FILE) -> str:
    """Return the driver's version, such as 550.54.15; `unknown` where the kernel has none."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
    return found[1] if found else "unknown"


def has_nvlink(one: str, other: str, library: str = NVML_LIBRARY) -> bool:
    """Return whether NVLink, or an NVLink switch, connects the GPUs at two PCI bus addresses.

    False where NVML is missing or does not know them.
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
