"""Published throughput of model-parallel training compared with predictions.

    python -m tests.bench.megatron [table|llama|figures|orders]

`table` is table 1 of D. Narayanan et al. (arXiv 2104.04473): teraFLOP/s of a GPU for ten GPT models
of up to 1 trillion parameters on up to 3,072 GPUs. `figures` are the comparisons of its figures 11
to 14, of which only the direction counts. `orders` are all orders of the dimensions over the ranks.
The degrees of parallelism, microbatches and schedules are those of the scripts in examples/sc21 of
Megatron-LM. `llama` is table 4 of the Llama team (arXiv 2407.21783): Llama 3 405B on H100 GPUs,
whose 126 blocks make uneven stages.

One constant of each GPU is calibrated: the share of its peak that its computation reaches, which
makes the mean error of its table zero. It is the default of `tuner training` (rates.yaml), so that
no case has a rate of its own.

The operations of an iteration are counted as in the paper, with a second forward pass for
activations that are computed again (equation 3 there).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

import numpy as np

from tuner.cli.terminal.output import print_table
from tuner.training.iteration import predict_iteration
from tuner.training.workload import Workload, workload_from_record

SEQUENCE = 2048
VOCABULARY = 51200


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
        """Return the workload on as many nodes as the paper had at most."""
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
            "precision": "amp",
            "topology": "preset:dgx-a100:384",
            "model": model,
            "batch": self.samples,
            "passes": self.passes,
            "framework": framework,
            "ranks": self.gpus,
        }
        return workload_from_record(record, Path())

    def teraflops(self) -> float:
        """Return the predicted teraFLOP/s of a GPU."""
        return _teraflops(self.workload(), again=1)


@dataclass(frozen=True)
class LlamaCase:
    """Llama 3 405B on some number of GPUs: 8 x 16 x the rest, a sequence in a microbatch.

    A chunk of a stage has one block, the first one the embedding alone and the last one the head.

    passes      microbatches of a replica
    """

    gpus: int
    passes: int

    def teraflops(self) -> float:
        """Return the predicted teraFLOP/s of a GPU."""
        framework = {
            "name": "megatron",
            "tensor": 8,
            "pipeline": 16,
            "interleaved": 8,
            "sequence_parallel": True,
            "distributed": True,
            "overlapped": True,
        }
        record = {
            "precision": "amp",
            "topology": "preset:dgx-h100:2048",
            "model": "llama3_405b",
            "batch": 1,
            "passes": self.passes,
            "framework": framework,
            "ranks": self.gpus,
        }
        return _teraflops(workload_from_record(record, Path()), again=0)


def _teraflops(workload: Workload, again: int) -> float:
    """Return the predicted teraFLOP/s of a GPU.

    again       how often the forward pass is computed again, which counts as work
    """
    ranks = workload.ranks[-1]
    found = predict_iteration(workload, ranks)
    work = (1 + again) * workload.model.forward + workload.model.backward
    return found.samples * work / (found.seconds * ranks) / 1e12


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


LLAMA = ((8192, 430, LlamaCase(8192, 32)), (16384, 400, LlamaCase(16384, 16)))


def bench_table() -> None:
    """Print a line for each row of the table of Megatron-LM."""
    rows, ratios = [], []
    for billions, published, case in TABLE:
        predicted = case.teraflops()
        ratios.append(predicted / published)
        shape = f"{case.tensor} x {case.pipeline} x {case.gpus // (case.tensor * case.pipeline)}"
        cells = (f"{billions:g}", str(case.gpus), shape, str(published), f"{predicted:.0f}")
        rows.append((*cells, f"{ratios[-1] - 1:+.1%}"))
    head = ("parameters (10^9)", "GPUs", "t x p x d", "published", "predicted", "error")
    print_table("teraFLOP/s of a GPU", head, rows, right=head)
    _print_errors(ratios)


def bench_llama() -> None:
    """Print a line for each row of Llama 3 405B."""
    found = [(gpus, published, case.teraflops()) for gpus, published, case in LLAMA]
    rows = [
        (str(gpus), str(published), f"{predicted:.0f}", f"{predicted / published - 1:+.1%}")
        for gpus, published, predicted in found
    ]
    head = ("GPUs", "published", "predicted", "error")
    print_table("Llama 3 405B, teraFLOP/s of a GPU", head, rows, right=head)
    _print_errors([predicted / published for _, published, predicted in found])


def _print_errors(ratios: Sequence[float]) -> None:
    errors = np.abs(np.array(ratios) - 1)
    print(f"error: median {np.median(errors):.1%}, worst {errors.max():.1%}")
    print(f"the share of the peak is too large by {np.mean(ratios) - 1:+.1%} on average")


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
    parts = {
        "table": bench_table,
        "llama": bench_llama,
        "figures": bench_figures,
        "orders": bench_orders,
    }
    for name in sys.argv[1:] or list(parts):
        parts[name]()
