"""Output of nccl-tests."""

from __future__ import annotations

from typing import Any

TIMES = "     time   algbw   busbw #wrong"


COLUMNS = f"#       size         count      type   redop    root{TIMES}{TIMES}"


UNITS = "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"


ROW = (
    "        1024           256     float     sum      -1"
    "    20.50    0.05    0.09      0    21.50    0.05    0.09      0"
)


BEGIN = "# nThread 1 nGpus 1 minBytes 1024 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20"


FOOT = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0.09\n#\n"


def rank(number: int, host: str, group: str = "Group  0 ") -> str:
    return (
        f"#  Rank {number:2d} {group}Pid   6899 on {host:>10s} device  0 [0000:04:00] NVIDIA H100"
    )


FOUR = [rank(i, f"node{i // 2}") for i in range(4)]


def table(
    *rows: str, program: str = "all_reduce_perf", ranks: list[str] = FOUR, columns: str = COLUMNS
) -> str:
    head = [
        "# nccl-tests version 2.17 nccl-headers=22907 nccl-library=22907",
        f"# Collective test starting: {program}",
        BEGIN,
        "#",
        "# Using devices",
        *ranks,
        "#",
        columns,
        UNITS,
    ]
    return "\n".join([*head, *rows, FOOT])


def record(**other: Any) -> dict[str, Any]:
    place = {"time": 20.5, "alg_bw": 0.05, "bus_bw": 0.09, "nwrong": 0.0}
    result = {
        "size": 1024,
        "count": 256,
        "type": "float",
        "redop": "sum",
        "root": "    -1",
        "out_of_place": place,
        "in_place": {**place, "time": 21.5},
        "actual_iterations": 20,
        "experiment_name": "x",
    }
    devices = [{"rank": i, "group": 0, "hostname": f"node{i // 2}"} for i in range(4)]
    return {
        "version": 2,
        "args": ["./build/all_reduce_perf", "-J", "x"],
        "env": ["HOME=/root"],
        "nccl_version": 22907,
        "config": {"devices": devices},
        "results": [result],
        **other,
    }
