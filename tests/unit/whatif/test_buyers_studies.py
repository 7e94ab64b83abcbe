"""Questions of buyers: limit, ratio, break-even and verdict agree with hand arithmetic.

Rates are in GB/s. Four nodes of eight GPUs are 32 ranks; an allreduce of n bytes moves 2 n 31 / 32
through each rank. On H100, NVLSTree has a channel for each NIC, which NCCL caps at 45.5 from three
nodes on (2.30.7, src/tuning), and an NDR NIC of 400 Gb/s reaches 42.6.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.whatif.machine_resources import LATENCY, NCCL_RATES, NICS, NVLINKS, PCIE_LINKS
from tuner.whatif.study_result import StudyResult
from tuner.whatif.study_runner import run_study
from tuner.whatif.study_spec import FileResolver, study_from_record

GIB = 1 << 30
NVLS_TREE_CAP = 45.5  # per channel of H100 on four nodes
PCIE5 = 51.0  # of PCIe 5.0 x16, as the machine's file has it
NDR = 42.6  # reached of 50


def run(**keys: Any) -> StudyResult:
    """Run a study of an allreduce of 1 GiB, which leaves out what has to be configured."""
    record = {
        "name": "x",
        "topology": "preset:dgx-h100:4",
        "collectives": ["allreduce"],
        "sizes": [GIB],
        "without": ["configured"],
        "algorithms": ["nccl_ring", "nccl_tree", "nvls_tree"],
    }
    return run_study(study_from_record({**record, **keys}, FileResolver(Path())))


def transfer_seconds(rate: float, channels: int = 8, ranks: int = 32) -> float:
    """Return the seconds in which channels of some GB/s move an allreduce of 1 GiB."""
    return 2 * GIB * (ranks - 1) / ranks / (channels * rate * 1e9)


def busy_seconds(rate: float) -> float:
    """Return the same with what NVLSTree takes to fill the buffers of the eight GPUs of a node.

    That is as long as 4 MiB more take for each of them, at most 25 us.
    """
    of_bytes = transfer_seconds(rate)
    return of_bytes + 8 * min(25e-6, (4 << 20) / GIB * of_bytes)


def test_nic_rate() -> None:
    """Twice the NIC of 200 Gb/s gains its factor, twice that one only what NCCL's cap leaves."""
    result = run(vary={"nodes": [4], "bandwidth": ["200Gb/s", "400Gb/s", "800Gb/s"]})
    bounds = NDR / 2, NDR, NVLS_TREE_CAP
    for point, rate in zip(result.points, bounds, strict=True):
        assert point.best.algorithm == point.nccl_choice == "nvls_tree"
        share = busy_seconds(rate) / point.best.seconds
        assert point.shares[point.limits[0]] == pytest.approx(share, rel=1e-9)
        assert share > 0.95
        assert point.rates[PCIE_LINKS] == pytest.approx(PCIE5 * 1e9)
        assert point.rates[NCCL_RATES] == pytest.approx(
            1e9 * min(NVLS_TREE_CAP, 24.0 if rate == NDR / 2 else NVLS_TREE_CAP)
        )
    assert [point.limits for point in result.points] == [(NICS,), (NICS,), (NCCL_RATES,)]
    first, second = result.axis_steps
    assert first.max_speedup == pytest.approx(2.0, rel=0.05)
    assert first.break_even is None
    latencies = [
        point.best.seconds - busy_seconds(rate)
        for point, rate in zip(result.points, bounds, strict=True)
    ]
    assert latencies == pytest.approx([latencies[0]] * 3, rel=1e-6)
    assert second.max_speedup == pytest.approx(
        (busy_seconds(NDR) + latencies[0]) / (busy_seconds(NVLS_TREE_CAP) + latencies[0]), rel=1e-6
    )
    assert second.nccl_speedups == (second.max_speedup, second.max_speedup)
    assert second.break_even == pytest.approx(NVLS_TREE_CAP * 1e9, rel=2e-4)
    assert result.verdicts == (
        "allreduce: bandwidth 400Gb/s (42.6GB/s) gains 95% over 200Gb/s (21.3GB/s): bounded by NICs"
        " at 42.6GB/s, then by NCCL's channels at 45.5GB/s; what NCCL chooses by itself gains 95%.",
        "allreduce: bandwidth 800Gb/s (85.2GB/s) gains 7% over 400Gb/s (42.6GB/s): bounded by"
        " NCCL's channels at 45.5GB/s, then by PCIe at 51GB/s; above 45.5GB/s nothing is gained;"
        " what NCCL chooses by itself gains 7%.",
    )


def test_the_break_even_is_where_times_stop_to_fall() -> None:
    rates = [f"{rate}GB/s" for rate in (45.4, 45.5, 45.6, 85.2)]
    result = run(vary={"nodes": [4], "bandwidth": rates})
    slower, *same = [point.best.seconds for point in result.points]
    assert same == pytest.approx([same[0]] * 3, rel=1e-12)
    assert slower > same[0] * (1 + 1e-4)
    assert [step.break_even for step in result.axis_steps][-1] == pytest.approx(45.6e9, rel=1e-5)


def test_the_switches_of_the_network_do_not_carry_more_than_the_nics() -> None:
    """In CollNet each byte crosses one NIC in each direction: 8 NICs of 200 Gb/s carry 170.4."""
    (point,) = run(
        vary={"nodes": [4], "bandwidth": ["200Gb/s"]},
        without=["multicast"],
        algorithms=["collnet_chain"],
    ).points
    assert point.limits == (NICS,)
    assert point.best.seconds > GIB / (8 * NDR / 2 * 1e9)
    assert point.rates[NICS] == pytest.approx(NDR / 2 * 1e9)
    assert point.rates[NCCL_RATES] > point.rates[NICS]


def test_short_calls_are_limited_by_latency() -> None:
    result = run(sizes=[8], vary={"nodes": [4], "bandwidth": ["400Gb/s", "800Gb/s"]})
    assert [point.limits for point in result.points] == [(LATENCY,), (LATENCY,)]
    assert result.verdicts[0].startswith(
        "allreduce: bandwidth 800Gb/s (85.2GB/s) gains nothing over 400Gb/s (42.6GB/s): bounded by"
        " latency (100% of the time)"
    )


def test_nvlink_limits_one_node() -> None:
    (point,) = run(topology="preset:dgx-h100:1", algorithms=["nccl_ring"]).points
    assert point.limits in {(NCCL_RATES,), (NVLINKS,)}
    assert point.rates[NVLINKS] == pytest.approx(18 * 20.6e9)
    assert point.rates[NCCL_RATES] == pytest.approx(360e9)
