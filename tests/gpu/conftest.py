"""Every test here needs CuPy and an NVIDIA GPU, or the stand-in for both, and says so without."""

import os

import pytest

from tuner.base.errors import InputError
from tuner.runtime.cuda_support import cuda_device
from tuner.runtime.device_protocol import DeviceInterface
from tuner.runtime.staging import Staging

os.environ.setdefault("CUPY_STANDIN_DEVICES", "4")  # before CuPy is imported, here and by ranks


@pytest.fixture(scope="session")
def device() -> DeviceInterface:
    """The GPU; the reason for its absence otherwise."""
    try:
        return cuda_device()
    except InputError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def stands_in(device: DeviceInterface) -> bool:
    """Whether the GPU is the stand-in of tests/support, whose speed means nothing."""
    import cupy

    return hasattr(cupy, "_driver")


@pytest.fixture
def staging(device: DeviceInterface) -> Staging:
    return Staging(device)
