"""Output of the Intel MPI Benchmarks."""

from __future__ import annotations

LINE = "#----------------------------------------------------------------"


BEGIN = "#    Intel(R) MPI Benchmarks 2021.9, MPI-1 part\n# List of Benchmarks to run:\n# Bcast\n"


END = "\n\n# All processes entering MPI_Finalize\n"


TIMES = "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]"


ROW = "           16           20         1.25         2.50         1.75"


def block(name: str, p: int, *rows: str, remark: str = "", header: str = TIMES) -> str:
    lines = [LINE, f"# Benchmarking {name} ", f"# #processes = {p} ", remark, LINE, header, *rows]
    return "\n".join([*(line for line in lines if line), ""])


def whole(*blocks: str) -> str:
    return BEGIN + "\n".join(blocks) + END
