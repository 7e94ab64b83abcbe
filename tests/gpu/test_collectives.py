"""Real ranks with buffers on real devices; on one GPU they share it."""

import pytest

from tests.support.programs import printed
from tuner.runtime.devices import Device
from tuner.runtime.launch import Launcher

pytestmark = pytest.mark.xdist_group("mpi")  # one queue with the other tests that launch ranks


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_collectives_on_device_buffers_are_the_librarys(
    device: Device, launcher: Launcher, ranks: int
) -> None:
    """Staged, or given to MPI as they are where it is CUDA-aware."""
    said = printed(launcher, ranks, "collectives_program.py", "cuda")
    assert said.endswith(": all equal\n")


def test_collectives_on_device_buffers_under_mpich(
    device: Device, mpich_launcher: Launcher
) -> None:
    said = printed(mpich_launcher, 2, "collectives_program.py", "cuda")
    assert said.endswith(": all equal\n")


@pytest.mark.parametrize("ranks", [2, 3])
def test_schedules_run_on_device_memory(device: Device, launcher: Launcher, ranks: int) -> None:
    """Messages from and to the device, kernels for what is reduced."""
    said = printed(launcher, ranks, "collectives_program.py", "cuda")
    if "staged" in said:
        pytest.skip("this MPI library is not CUDA-aware: it takes the host's memory alone")
    assert said.endswith("calls, direct: all equal\n")


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_nccl_gives_what_mpi_gives(device: Device, launcher: Launcher, ranks: int) -> None:
    import cupy

    present = cupy.cuda.runtime.getDeviceCount()
    if present < ranks:
        pytest.skip(f"NCCL wants a GPU for each of {ranks} ranks, and there are {present}")
    said = printed(launcher, ranks, "nccl_program.py", "own")
    if "no NCCL" in said:
        pytest.skip(said.strip())
    assert said == "all equal\n"


def test_ranks_that_share_a_gpu_object_to_nccl(device: Device, launcher: Launcher) -> None:
    said = printed(launcher, 2, "nccl_program.py", "shared")
    assert said.startswith(("cannot: ranks 0 and 1 share the GPU", "cannot: rank 0: CuPy finds no"))
