"""Every test here needs an NVIDIA GPU and CuPy, and says so where there is none."""

import pytest

from tuner.errors import InputError
from tuner.runtime.devices import Device, cuda
from tuner.runtime.staging import Staging


@pytest.fixture(scope="session")
def device() -> Device:
    """The GPU; the reason for its absence otherwise."""
    try:
        return cuda()
    except InputError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def staging(device: Device) -> Staging:
    return Staging(device)
