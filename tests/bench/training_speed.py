"""Time predictions of training.

    python -m tests.bench.training_speed

ResNet-50 on 1,536 GPUs of Summit with the fastest algorithms, and 112 configurations of it: seven
numbers of GPUs, four bandwidths and four fusion thresholds. Compiled code is loaded before.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from tuner.training.frameworks.fusion import Horovod
from tuner.training.iteration import predict_iteration
from tuner.training.workload import Workload, workload_from_record

RANKS = (24, 48, 96, 192, 384, 768, 1536)
BANDWIDTHS = (6e9, 11.5e9, 23e9, 46e9)
THRESHOLDS = (16 << 20, 32 << 20, 64 << 20, 128 << 20)


def workload() -> Workload:
    """Return the workload; nothing of it is predicted yet."""
    record = {
        "model": "resnet50",
        "batch": 64,
        "framework": "horovod",
        "topology": "preset:summit",
        "ranks": max(RANKS),
        "algorithms": "best",
    }
    return workload_from_record(record, Path())


def bench() -> None:
    """Print the seconds of one iteration and of the configurations."""
    predict_iteration(workload(), 48)
    began, used = time.perf_counter(), time.process_time()
    predict_iteration(workload(), max(RANKS))
    print(f"one iteration: {time.perf_counter() - began:.1f} s", end=", ")
    print(f"of the processor {time.process_time() - used:.1f} s")
    began, used = time.perf_counter(), time.process_time()
    for bandwidth in BANDWIDTHS:
        one = replace(workload(), link_values={"bandwidth": bandwidth})
        for ranks in RANKS:
            for threshold in THRESHOLDS:
                framework = Horovod(fusion_threshold=threshold)
                predict_iteration(replace(one, framework=framework), ranks)
    count = len(BANDWIDTHS) * len(RANKS) * len(THRESHOLDS)
    print(f"{count} configurations: {time.perf_counter() - began:.0f} s", end=", ")
    print(f"of the processor {time.process_time() - used:.0f} s, one process")


if __name__ == "__main__":
    bench()
