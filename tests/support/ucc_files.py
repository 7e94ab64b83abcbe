"""Output of ucc_perftest."""

from __future__ import annotations

ROW = "         256        1024       12.50       11.25       14.75"
TOTAL = "Total time: 0.01475 ms\n"
FACTS = {"Memory type": "host", "Datatype": "float32", "Reduction": "sum", "Inplace": "0"}


def table(
    collective: str = "Allreduce", *rows: str, rates: bool = False, total: str = TOTAL, **facts: str
) -> str:
    """A table of version 1.5 or, without a total, of an earlier one; `_` of facts are spaces."""
    known = FACTS | {name.replace("_", " "): value for name, value in facts.items()}
    head = [
        f"{name + ':':24}{value}" for name, value in {"Collective": collective, **known}.items()
    ]
    counts = ["Warmup:", "  small                 100", "  large                 20"]
    counts += ["Iterations:", "  small                 1000", "  large                 200", ""]
    columns = "       Count        Size                Time, us"
    names = "                                 avg         min         max"
    if rates:
        columns += "                       Bus Bandwidth, GB/s"
        names += "         avg         max         min"
    return "\n".join([*head, *counts, columns, names, *(rows or (ROW,)), total])
