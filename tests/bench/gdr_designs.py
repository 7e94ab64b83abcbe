"""Published gains of MVAPICH2-GDR over NCCL compared with what studies predict.

    python -m tests.bench.gdr_designs

Published ratios are the largest of a range of sizes, mostly without the sizes; the prediction is
the largest ratio at the sizes of that range, of NCCL's own choice over the best schedule that needs
no switch or NVSwitch that reduces and no multicast. NCCL is predicted as of today; the papers
had older ones (with NCCL 1, which ends at one node, as a part of broadcasts by MPI). The direction
is right where the same side wins or, where the papers say "comparable", from 0.8 to 1.25.

Sources: arXiv 1707.09414 (broadcast); NV-Group, ICS 2020 (allreduce on 1,536 GPUs of Summit);
arXiv 1810.11112 (allreduce; its abstract names no machine, 16 nodes of RI2 with one GPU each are
assumed). The figures of slides, for Summit and DGX-2, are given from memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner import algorithms
from tuner.cli.terminal.output import print_table
from tuner.core.collective import Collective
from tuner.prediction.call_candidates import NCCL_ALGORITHMS, is_in_network
from tuner.whatif.checked_study import Study
from tuner.whatif.study_runner import run_study
from tuner.whatif.study_spec import FileResolver, study_from_record

KIB = 1 << 10
MIB = 1 << 20
SMALL = (8, KIB, 8 * KIB)
MEDIUM = (16 * KIB, 64 * KIB, 256 * KIB)
LARGE = (16 * MIB, 128 * MIB)
EVEN = (0.8, 1.25)  # ratios that are comparable


@dataclass(frozen=True)
class Row:
    """A published ratio of NCCL's time over that of MVAPICH2-GDR.

    ppn     ranks per node; 0 for one on each GPU
    """

    machine: str
    nodes: int
    collective: Collective
    sizes: Sequence[int]
    published: float
    certainty: str
    ppn: int = 0


ROWS = (
    Row("kesch", 1, Collective.BCAST, SMALL, 14.0, "published"),
    Row("kesch", 8, Collective.BCAST, SMALL, 16.6, "published"),
    Row("kesch", 8, Collective.BCAST, MEDIUM, 10.0, "published"),
    Row("kesch", 8, Collective.BCAST, LARGE, 1.0, "published"),
    Row("summit", 256, Collective.ALLREDUCE, (*SMALL, *MEDIUM, *LARGE), 1.8, "published"),
    Row("summit", 256, Collective.ALLREDUCE, LARGE, 1.7, "remembered"),
    Row("dgx-2", 1, Collective.ALLREDUCE, SMALL, 2.5, "remembered"),
    Row("dgx-2", 1, Collective.ALLREDUCE, LARGE, 1.7, "remembered"),
    Row("ri2", 16, Collective.ALLREDUCE, SMALL, 5.0, "published", ppn=1),
    Row("ri2", 16, Collective.ALLREDUCE, MEDIUM, 17.0, "published", ppn=1),
    Row("ri2", 16, Collective.ALLREDUCE, LARGE, 1.29, "published", ppn=1),
)


def predicted(row: Row) -> tuple[float, str]:
    """Return the largest ratio at the sizes of a row, and the algorithm that reaches it."""
    found = []
    for point in run_study(_study(row)).points:
        ours = [one for one in point.candidates if _is_plain(row, one.algorithm)]
        best = min(ours, key=lambda one: one.seconds)
        if point.nccl_seconds is None:
            raise SystemExit(f"{row.machine}: NCCL's choice is not known")
        found.append((point.nccl_seconds / best.seconds, str(best)))
    return max(found)


def _is_plain(row: Row, algorithm: str) -> bool:
    """Return whether MPI runs the algorithm, without anything of the network's."""
    in_network = is_in_network(algorithms.describe(row.collective, algorithm))
    return algorithm not in NCCL_ALGORITHMS and not in_network


def _study(row: Row) -> Study:
    record = {
        "name": row.machine,
        "topology": f"preset:{row.machine}",
        "vary": {"nodes": [row.nodes], **({"ppn": [row.ppn]} if row.ppn else {})},
        "collectives": [str(row.collective)],
        "sizes": list(row.sizes),
        "limits": False,
    }
    return study_from_record(record, FileResolver(Path()))


def _is_right(published: float, ratio: float) -> bool:
    comparable = EVEN[0] <= ratio <= EVEN[1]
    return comparable if published == 1.0 else (ratio > 1.0) == (published > 1.0)


def bench() -> None:
    """Print a line for each row."""
    rows = []
    for row in ROWS:
        ratio, algorithm = predicted(row)
        right = _is_right(row.published, ratio)
        where = f"{row.machine}, {row.nodes} nodes"
        sizes = "small" if row.sizes == SMALL else "medium" if row.sizes == MEDIUM else "large"
        rows.append(
            (
                where,
                str(row.collective),
                sizes if len(row.sizes) < 4 else "all",
                f"{row.published:.3g} ({row.certainty})",
                f"{ratio:.2f}",
                algorithm,
                "right" if right else "wrong",
            )
        )
    head = ("machine", "call", "sizes", "published", "predicted", "of", "direction")
    print_table("times as fast as NCCL", head, rows, right=("predicted",))


if __name__ == "__main__":
    bench()
