"""Real ranks with buffers on real devices; on one GPU they share it."""

import pytest

from tests.support.programs import printed
from tuner.launch import Launcher
from tuner.runtime.cuda_support import is_cuda_aware
from tuner.runtime.device_protocol import DeviceInterface


@pytest.mark.representative("1", "3")
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_collectives_on_device_buffers_are_the_librarys(
    device: DeviceInterface, launcher: Launcher, ranks: int
) -> None:
    """Staged, or given to MPI as they are where it is CUDA-aware."""
    said = printed(launcher, ranks, "collectives_program.py", "cuda")
    assert said.endswith(": all equal\n")


def test_collectives_on_device_buffers_under_mpich(
    device: DeviceInterface, mpich_launcher: Launcher
) -> None:
    said = printed(mpich_launcher, 2, "collectives_program.py", "cuda")
    assert said.endswith(": all equal\n")


@pytest.mark.representative("1-2")
@pytest.mark.parametrize(("aware", "ranks"), [("1", 2), ("1", 3), ("messages", 3)])
def test_schedules_run_on_device_memory(
    stands_in: bool, launcher: Launcher, ranks: int, aware: str
) -> None:
    """Messages from and to the device, kernels for what is reduced."""
    if not (stands_in or is_cuda_aware()):
        pytest.skip("this MPI library is not CUDA-aware: it takes the host's memory alone")
    said = printed(
        launcher,
        ranks,
        "collectives_program.py",
        "cuda",
        TUNER_CUDA_AWARE=aware,
        CUPY_STANDIN_ADDRESSES="open" if aware == "1" else "messages",
    )
    assert said.endswith(f"calls, {'direct' if aware == '1' else 'staged'}: all equal\n")


@pytest.mark.representative("2-", "2-1", "3-messages")
@pytest.mark.parametrize("aware", ["", "1", "messages"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_describe_device_memory_each_in_its_own_way(
    stands_in: bool, launcher: Launcher, ranks: int, aware: str
) -> None:
    if aware and not stands_in:
        pytest.skip("whether the library takes device memory is not for a test to say")
    addresses = {"": "", "1": "open", "messages": "messages"}[aware]
    environment = {"TUNER_CUDA_AWARE": aware, "CUPY_STANDIN_ADDRESSES": addresses}
    said = printed(
        launcher, ranks, "../mpi/mixed_memory_program.py", "1", "20", "device", **environment
    )
    assert said == "160 calls\n"


def test_rounds_wait_and_ask_no_more_than_they_must(stands_in: bool, launcher: Launcher) -> None:
    """Counted on the stand-in: waits for a stream, and questions about pointers."""
    if not stands_in:
        pytest.skip("a real driver does not count")
    said = printed(launcher, 3, "rounds_program.py", CUPY_STANDIN_ADDRESSES="open")
    assert said == "allgather ring: 1 waits, 0 queries\nallreduce ring: 3 waits, 0 queries\n"


@pytest.mark.representative("2")
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_nccl_gives_what_mpi_gives(device: DeviceInterface, launcher: Launcher, ranks: int) -> None:
    import cupy

    present = cupy.cuda.runtime.getDeviceCount()
    if present < ranks:
        pytest.skip(f"NCCL wants a GPU for each of {ranks} ranks, and there are {present}")
    said = printed(launcher, ranks, "nccl_program.py", "own")
    if "no NCCL" in said:
        pytest.skip(said.strip())
    assert said == "all equal\n"


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_rank_that_fails_in_nccl_leaves_nobody_waiting(
    stands_in: bool, launcher: Launcher, rank: str
) -> None:
    if not stands_in:
        pytest.skip("a real NCCL does not fail on demand")
    said = printed(
        launcher, 2, "nccl_program.py", "own", CUPY_STANDIN_NCCL_FAILS=rank, TUNER_NCCL_TIMEOUT="3s"
    )
    assert said.startswith("cannot: ")
    assert "NCCL_ERROR_SYSTEM_ERROR" in said or "no answer within 3 s" in said


def test_ranks_with_several_versions_of_nccl_object(stands_in: bool, launcher: Launcher) -> None:
    if not stands_in:
        pytest.skip("there is one version")
    said = printed(launcher, 2, "nccl_program.py", "versions")
    assert said == "cannot: rank 1 has NCCL 2.18.1, rank 0 has 2.32.3\n"


def test_ranks_share_a_gpu_where_nccl_is_told_to(stands_in: bool, launcher: Launcher) -> None:
    said = printed(launcher, 2, "nccl_program.py", "shared", NCCL_MULTI_RANK_GPU_ENABLE="1")
    if "cannot" in said:
        pytest.skip(said.strip())
    assert said == "all equal\n"


def test_ranks_that_share_a_gpu_object_to_nccl(device: DeviceInterface, launcher: Launcher) -> None:
    said = printed(launcher, 2, "nccl_program.py", "shared")
    assert said.startswith(("cannot: ranks 0 and 1 share the GPU", "cannot: rank 0: CuPy finds no"))
