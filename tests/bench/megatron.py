"""Published throughput of Megatron-LM on A100 GPUs compared with predictions.

    python -m tests.bench.megatron [table|figures|orders]

`table` is table 1 of D. Narayanan et al. (arXiv 2104.04473): teraFLOP/s of a GPU for ten GPT models
of up to 1 trillion parameters on up to 3,072 GPUs. `figures` are the comparisons of its figures 11
to 14, of which only the direction counts. `orders` are all orders of the dimensions over the ranks.
The degrees of parallelism, microbatches and schedules are those of the scripts in examples/sc21 of
Megatron-LM.

One constant is calibrated: SHARE, the share of a GPU's peak that its matrix products reach, which
makes the mean error of the table zero. It holds for all rows and figures.

The operations of an iteration are counted as in the paper, with a second forward pass for
activations that are computed again (equation 3 there).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from tuner.cli.output import print_table
from tuner.training.iteration import PredictedIteration, predict_iteration
from tuner.training.workload import Workload, workload_from_record

PEAK = 312e12  # FLOP/s of an A100 in 16-bit matrix products (NVIDIA data sheet)
SHARE = 0.58
SEQUENCE, VOCABULARY = 2048, 51200
TEMPLATE: dict[str, Any] = {"precision": "amp", "topology": "preset:dgx-a100:384"}


@dataclass(frozen=True)
class Case:
    """A training job of the paper.

    batch       samples of an iteration, over all replicas
    samples     samples of a microbatch
    """

    layers: int
    width: int
    heads: int
    gpus: int
    tensor: int
    pipeline: int
    batch: int
    samples: int
    interleaved: int = 1
    rank_order: str = "tensor-data-pipeline"

    @property
    def passes(self) -> int:
        """Number of microbatches of a replica."""
        return self.batch * self.tensor * self.pipeline // (self.gpus * self.samples)

    def workload(self) -> Workload:
        """Return the workload, which computes at SHARE of the peak."""
        model = {
            "kind": "gpt",
            "layers": self.layers,
            "width": self.width,
            "heads": self.heads,
            "sequence": SEQUENCE,
            "vocabulary": VOCABULARY,
        }
        framework = {
            "name": "megatron",
            "tensor": self.tensor,
            "pipeline": self.pipeline,
            "interleaved": self.interleaved,
            "rank_order": self.rank_order,
            "recompute": True,
        }
        record = {
            **TEMPLATE,
            "model": model,
            "batch": self.samples,
            "passes": self.passes,
            "framework": framework,
            "ranks": self.gpus,
            "rate": 1.0,
        }
        read = workload_from_record(record, Path())
        work = read.model.forward + read.model.backward
        return replace(read, rate=replace(read.rate, rate=SHARE * PEAK / work))

    def teraflops(self) -> float:
        """Return the predicted teraFLOP/s of a GPU."""
        workload = self.workload()
        found = predict_iteration(workload, self.gpus)
        return _operations(workload, found) / (found.seconds * self.gpus) / 1e12


def _operations(workload: Workload, found: PredictedIteration) -> float:
    """Return the floating-point operations of an iteration, with the second forward pass."""
    return found.samples * (2 * workload.model.forward + workload.model.backward)


TABLE = (  # billions of parameters, published teraFLOP/s of a GPU, case
    (1.7, 137, Case(24, 2304, 24, 32, 1, 1, 512, 16)),
    (3.6, 138, Case(30, 3072, 32, 64, 2, 1, 512, 16)),
    (7.5, 142, Case(36, 4096, 32, 128, 4, 1, 512, 16)),
    (18.4, 135, Case(40, 6144, 48, 256, 8, 1, 1024, 8)),
    (39.1, 138, Case(48, 8192, 64, 512, 8, 2, 1536, 4)),
    (76.1, 140, Case(60, 10240, 80, 1024, 8, 4, 1792, 2, interleaved=3)),
    (145.6, 148, Case(80, 12288, 96, 1536, 8, 8, 2304, 2, interleaved=2)),
    (310.1, 155, Case(96, 16384, 128, 1920, 8, 16, 2160, 1, interleaved=2)),
    (529.6, 163, Case(105, 20480, 128, 2520, 8, 35, 2520, 1, interleaved=3)),
    (1008.0, 163, Case(128, 25600, 160, 3072, 8, 64, 3072, 1)),
)


def bench_table() -> None:
    """Print a line for each row of the table, and the share without any error on average."""
    rows, ratios = [], []
    for billions, published, case in TABLE:
        predicted = case.teraflops()
        ratios.append(predicted / published)
        shape = f"{case.tensor} x {case.pipeline} x {case.gpus // (case.tensor * case.pipeline)}"
        cells = (f"{billions:g}", str(case.gpus), shape, str(published), f"{predicted:.0f}")
        rows.append((*cells, f"{ratios[-1] - 1:+.1%}"))
    head = ("parameters (10^9)", "GPUs", "t x p x d", "published", "predicted", "error")
    print_table("teraFLOP/s of a GPU", head, rows, right=head)
    errors = np.abs(np.array(ratios) - 1)
    print(f"error: median {np.median(errors):.1%}, worst {errors.max():.1%}; SHARE {SHARE}")
    print(f"SHARE without a mean error: about {SHARE / np.mean(ratios):.3f}")


def bench_figures() -> None:
    """Print the throughput over each figure's axis, and whether it goes as in the paper."""
    for title, series, expected in _figures():
        found = {label: case.teraflops() for label, case in series}
        best = max(found, key=lambda label: found[label])
        cells = ", ".join(f"{label}: {value:.0f}" for label, value in found.items())
        print(f"{title}\n  {cells}\n  best {best}; in the paper {expected}")


def _figures() -> list[tuple[str, list[tuple[str, Case]], str]]:
    """Return the title, the labelled cases and the best label of each comparison."""
    gpt_162 = Case(32, 20480, 128, 64, 8, 8, 128, 1)
    gpt_6 = Case(32, 3840, 32, 64, 1, 2, 512, 1)
    gpt_175 = Case(96, 12288, 96, 96, 8, 12, 24, 1)
    powers = (2, 4, 8, 16, 32)
    stages = [(f"p={p}", Case(3 * p, 20480, 128, 8 * p, 8, p, 8, 1)) for p in (1, 2, 4, 8)]
    return [
        ("figure 11, batch 8", stages, "p=1"),
        *(
            (
                f"figure 13, batch {batch}",
                [
                    (f"t={64 // p}", replace(gpt_162, tensor=64 // p, pipeline=p, batch=batch))
                    for p in powers
                ],
                "t=8",
            )
            for batch in (32, 128)
        ),
        (
            "figure 14, batch 512",
            [(f"d={64 // p}", replace(gpt_6, pipeline=p)) for p in powers],
            "d=32",
        ),
        (
            "figure 12, batch 24",
            [("1f1b", gpt_175), ("interleaved", replace(gpt_175, interleaved=4))],
            "interleaved",
        ),
    ]


def bench_orders() -> None:
    """Print the throughput of a model on 512 GPUs for all orders of the dimensions."""
    _, _, case = TABLE[4]
    rows = []
    for dimensions in permutations(("tensor", "data", "pipeline")):
        order = "-".join(dimensions)
        rows.append((order, f"{replace(case, rank_order=order).teraflops():.0f}"))
    head = ("order, from neighbours on", "teraFLOP/s")
    print_table("39.1 billion parameters on 512 GPUs", head, rows, right=head[1:])


if __name__ == "__main__":
    parts = {"table": bench_table, "figures": bench_figures, "orders": bench_orders}
    for name in sys.argv[1:] or list(parts):
        parts[name]()
