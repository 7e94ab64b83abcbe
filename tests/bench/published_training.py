"""Published results of training against what workload files predict.

    python -m tests.bench.published_training [PART OF A ROW'S NAME]

Every row is a file of docs/examples/training, which `tuner training run` takes, too. Constants hold
for all rows of a machine and framework; docs/experiments/0004-published-training-results.md says on
which rows they are calibrated. A tolerance in points is of the scaling efficiency, in percent of
the published number. Rows without a tolerance are compared by their direction alone: what they lack
is in their last column.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.cli.terminal.output import print_table
from tuner.training.frameworks.parameter_server import ParameterServer
from tuner.training.iteration import PredictedIteration, predict_iteration
from tuner.training.workload import Workload, read_workload

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "training"
EFFICIENCY, RATE, SPEEDUP, GAIN = "efficiency", "samples/s", "speedup", "gain"


@dataclass(frozen=True)
class Row:
    """A published result.

    file        workload without its suffix
    measure     EFFICIENCY (a share), RATE (samples per second), SPEEDUP over `base` ranks, or GAIN:
                the rate over that of the workload `other`
    tolerance   of an efficiency the difference, of others the share of the published number; 0:
                only the direction must be right
    calibrated  whether a constant was calibrated on this row
    servers     number of parameter servers, if it differs from the file
    missing     input that is not published
    """

    file: str
    ranks: int
    measure: str
    published: float
    tolerance: float
    calibrated: bool = False
    base: int = 1
    other: str = ""
    servers: int = 0
    missing: str = ""

    @property
    def name(self) -> str:
        """The file and the number of ranks."""
        return f"{self.file} {self.ranks}"


POINTS = 0.03
PS = 0.08
DIRECTION = 0.0
SIZE = 0.15
PIZ_DAINT = (264.57, 523.38, 1018.18, 2001.00, 3840.35, 7118.31, 9219.70)
SERVERS = "number of servers, batch"
ONE_PROCESS = "cost of eight GPUs in one process"
CPU_RATE = "rate of a process, batch"
ROWS = (
    Row("horovod-64-p100", 64, EFFICIENCY, 0.90, POINTS),
    Row("horovod-512-inception_v3", 512, EFFICIENCY, 0.90, POINTS, calibrated=True),
    Row("horovod-512-resnet101", 512, EFFICIENCY, 0.90, POINTS, calibrated=True),
    Row("horovod-512-vgg16", 512, EFFICIENCY, 0.68, POINTS),
    Row("horovod-dgx-1-fp32", 8, EFFICIENCY, 7.69 / 8, POINTS, calibrated=True),
    Row("horovod-dgx-1-amp", 8, EFFICIENCY, 7.48 / 8, POINTS),
    Row("horovod-dgx-2-fp32", 16, EFFICIENCY, 15.05 / 16, POINTS),
    Row("horovod-dgx-2-amp", 16, EFFICIENCY, 13.27 / 16, DIRECTION, missing="input pipeline"),
    Row("horovod-summit", 192, EFFICIENCY, 0.897, POINTS),
    *(
        Row("parameter-server-piz-daint", 2 << at, RATE, rate, PS, calibrated=at > 4)
        for at, rate in enumerate(PIZ_DAINT)
    ),
    Row("parameter-server-ec2-inception_v3", 64, RATE, 1783, SIZE),
    Row("parameter-server-ec2-resnet50", 64, RATE, 2744, SIZE),
    Row("parameter-server-ec2-resnet152", 64, RATE, 981, SIZE),
    *(
        Row(
            "parameter-server-rdma-grpc-edr",
            ranks,
            GAIN,
            gain,
            SIZE,
            other="parameter-server-grpc-edr",
            servers=ranks // 4,
            missing=SERVERS,
        )
        for ranks, gain in ((8, 1.20), (16, 1.34), (24, 1.37))
    ),
    Row("spark-rdma-grpc", 16, GAIN, 2.7, SIZE, other="spark-grpc", missing="sizes"),
    Row("tensorflow-dgx-1p-resnet50", 8, RATE, 1734, SIZE),
    Row("tensorflow-dgx-1p-vgg16", 8, RATE, 1081, SIZE),
    Row("tensorflow-dgx-1p-alexnet", 8, EFFICIENCY, 0.746, DIRECTION, missing=ONE_PROCESS),
    Row("cntk-cpu-xpmem", 28, GAIN, 1.20, SIZE, other="cntk-cpu-two-copies", missing=CPU_RATE),
    Row("cntk-cpu-salar", 448, GAIN, 1.15, SIZE, other="cntk-cpu-flat", missing=CPU_RATE),
    Row("cntk-cpu-salar", 896, GAIN, 1.35, DIRECTION, other="cntk-cpu-flat", missing=CPU_RATE),
    Row("shm-learn-dist", 2, RATE, 307200 / 138.44, SIZE, missing="network"),
    Row("shm-learn-dist", 4, RATE, 307200 / 84.2, SIZE, calibrated=True, missing="network"),
    Row("s-caffe-kesch", 160, SPEEDUP, 2.5, DIRECTION, base=32, missing="batch"),
    Row(
        "oc-caffe-optimized",
        1,
        GAIN,
        1.9,
        DIRECTION,
        other="oc-caffe-naive",
        missing="batch, rate of page faults",
    ),
)


def predicted(row: Row) -> float:
    """Return what the workload of a row predicts, in the unit of its measure."""
    here = _prediction(row, row.file, row.ranks)
    if row.measure == EFFICIENCY:
        return here.efficiency
    if row.measure == SPEEDUP:
        return here.rate / _prediction(row, row.file, row.base).rate
    if row.measure == GAIN:
        return here.rate / _prediction(row, row.other, row.ranks).rate
    return here.rate


def is_within(row: Row, value: float) -> bool:
    """Return whether a prediction is within the tolerance, or has the right direction."""
    if row.measure == EFFICIENCY:
        return abs(value - row.published) <= row.tolerance if row.tolerance else value < 1
    if row.tolerance:
        return abs(value / row.published - 1) <= row.tolerance
    return value > 1


def _prediction(row: Row, file: str, ranks: int) -> PredictedIteration:
    return predict_iteration(_workload(row, file), ranks)


def _workload(row: Row, file: str) -> Workload:
    workload = read_workload(EXAMPLES / f"{file}.yaml")
    if not row.servers or not isinstance(workload.framework, ParameterServer):
        return workload
    return replace(workload, framework=replace(workload.framework, servers=row.servers))


def _cells(row: Row, value: float) -> Iterator[str]:
    yield row.file
    yield str(row.ranks)
    yield row.measure
    yield _format(row, row.published)
    yield _format(row, value)
    if row.measure == EFFICIENCY:
        yield f"{100 * (value - row.published):+.1f} points"
        yield f"{100 * row.tolerance:.0f} points" if row.tolerance else "direction"
    else:
        yield f"{100 * (value / row.published - 1):+.1f} %"
        yield f"{100 * row.tolerance:.0f} %" if row.tolerance else "direction"
    yield "yes" if is_within(row, value) else "no"
    yield "calibrated" if row.calibrated else ""
    yield row.missing


def _format(row: Row, value: float) -> str:
    if row.measure == EFFICIENCY:
        return f"{100 * value:.1f} %"
    return f"{value:.0f}" if row.measure == RATE else f"{value:.2f}"


def bench(part: str = "") -> None:
    """Print a line for each row whose name has a part."""
    rows = [tuple(_cells(row, predicted(row))) for row in ROWS if part in row.name]
    head = (
        "workload",
        "ranks",
        "measure",
        "published",
        "predicted",
        "error",
        "tolerance",
        "within",
    )
    right = ("ranks", "published", "predicted", "error")
    print_table("published training results", (*head, "", "missing input"), rows, right=right)


if __name__ == "__main__":
    bench(*sys.argv[1:2])
