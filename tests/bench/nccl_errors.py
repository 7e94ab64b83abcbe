"""Measured times of NCCL on one node against predictions, by size, machine and collective.

    python -m tests.bench.nccl_errors [CSV...]

CSV has a row for each time (columns system, collective, gpus, size_bytes, time_us). The default is
that of the reference data (TUNER_SHARED, else ../shared): times of nccl-tests out of place, from
ai-dynamo/aiconfigurator. Rows of other machines and collectives than those known here are counted
and left out. Each call counts in what NCCL would choose by itself.
"""

from __future__ import annotations

import csv
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median, quantiles

from tuner.cli.terminal.output import print_table, print_text
from tuner.core.collective import Collective
from tuner.machines import Machine, preset, with_gpu
from tuner.mpi_libraries import nccl
from tuner.topology import Placement

SHARED = Path(os.environ.get("TUNER_SHARED", Path(__file__).parents[3] / "shared"))
DEFAULT_DATA = SHARED / "data/aiconfigurator/nccl_one_node.csv"
MACHINES: dict[str, Callable[[], Machine]] = {
    "a100_sxm": lambda: preset("dgx-a100", 1),
    "h100_sxm": lambda: preset("dgx-h100", 1),
    "h200_sxm": lambda: preset("hgx-h200", 1),
    "b200_sxm": lambda: with_gpu(preset("dgx-h100", 1), "B200"),
    "gb200": lambda: preset("gb200-nvl72", 1),
}
COLLECTIVES = {
    "all_reduce": Collective.ALLREDUCE,
    "all_gather": Collective.ALLGATHER,
    "reduce_scatter": Collective.REDUCE_SCATTER,
}
BANDS = {"to 64 KiB": 1 << 16, "to 1 MiB": 1 << 20, "to 16 MiB": 1 << 24, "above": sys.maxsize}


@dataclass(frozen=True)
class Row:
    """A measured time in seconds of a call of `nbytes` of the whole buffer."""

    system: str
    collective: str
    gpus: int
    nbytes: int
    seconds: float

    @property
    def band(self) -> str:
        return next(name for name, most in BANDS.items() if self.nbytes <= most)


def read_rows(paths: Iterable[Path]) -> tuple[list[Row], Counter[str]]:
    """The rows of known machines and collectives, and how many others there are of each kind."""
    found, others = list[Row](), Counter[str]()
    for path in paths:
        with path.open(encoding="utf-8") as file:
            for one in csv.DictReader(file):
                if one["system"] not in MACHINES or one["collective"] not in COLLECTIVES:
                    others[f"{one['system']} {one['collective']}"] += 1
                    continue
                size, time = int(one["size_bytes"]), float(one["time_us"]) * 1e-6
                row = Row(one["system"], one["collective"], int(one["gpus"]), size, time)
                found.append(row)
    return found, others


@cache
def predictor_of(system: str, gpus: int) -> nccl.NcclPredictor:
    """NCCL on some GPUs of one node of a machine."""
    return nccl.NcclPredictor(Placement.block(MACHINES[system]().topology, gpus))


@cache
def predicted_seconds(system: str, gpus: int, collective: str, nbytes: int) -> float:
    """Seconds of what NCCL would choose."""
    predictor, of = predictor_of(system, gpus), COLLECTIVES[collective]
    expected = predictor.expected_seconds(of, nbytes)
    return predictor.predicted_seconds(of, nbytes)[min(expected, key=expected.__getitem__)]


def error(row: Row) -> float:
    """Relative error of a prediction, negative where it is too fast."""
    return predicted_seconds(row.system, row.gpus, row.collective, row.nbytes) / row.seconds - 1


def formatted(errors: Sequence[float]) -> str:
    """Median and 95th percentile of absolute errors in percent."""
    if len(errors) < 2:
        return ""
    sizes = list(map(abs, errors))
    return f"{100 * median(sizes):.1f} / {100 * quantiles(sizes, n=20)[-1]:.1f}"


def print_errors(title: str, rows: Sequence[Row], error_of: Callable[[Row], float]) -> None:
    """A line for each machine, and one for each collective on it, with a column for each band."""
    lines = list[tuple[str, ...]]()
    systems = dict.fromkeys(row.system for row in rows)
    groups = [(system, name) for system in systems for name in ("", *COLLECTIVES)]
    for system, name in [*groups, ("all", "")]:
        own = [
            (row.band, error_of(row))
            for row in rows
            if system in ("all", row.system) and name in ("", row.collective)
        ]
        columns = (formatted([e for of, e in own if of == band]) for band in BANDS)
        lines.append((system, name or "all", str(len(own)), *columns))
    print_table(title, ("machine", "collective", "rows", *BANDS), lines, right=("rows", *BANDS))


def main(paths: Sequence[Path]) -> None:
    if missing := [path for path in paths if not path.is_file()]:
        print_text(f"{missing[0]} is not there: name a file, or set TUNER_SHARED")
        return
    rows, others = read_rows(paths)
    print_errors("errors, median / 95th percentile in %", rows, error)
    if others:
        print_text(f"left out: {', '.join(f'{n} of {name}' for name, n in others.items())}")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or [DEFAULT_DATA])
