"""Times of all-reduce back ends, made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

HEADER = "gpu,backend,version,gpus,bytes,time_us"
SIZES = (1 << 10, 1 << 16, 1 << 20, 4 << 20)
Curves = Mapping[tuple[str, str, int], Sequence[float]]  # (gpu, back end, GPUs) -> us by SIZES


def rows_of(curves: Curves) -> list[str]:
    """Return a row for each time, under HEADER."""
    return [
        f"{gpu},{backend},1.0,{gpus},{nbytes},{time}"
        for (gpu, backend, gpus), times in curves.items()
        for nbytes, time in zip(SIZES, times, strict=True)
    ]


def write_times(path: Path, curves: Curves) -> Path:
    """Write a CSV of times and return its path."""
    path.write_text("".join(f"{line}\n" for line in (HEADER, *rows_of(curves))))
    return path
