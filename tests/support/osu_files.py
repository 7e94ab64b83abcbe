"""Output of the OSU micro-benchmarks."""

from __future__ import annotations

ALLREDUCE = """
# OSU MPI Allreduce Latency Test v5.3
# Size         Avg Latency(us)
4                        10.50
1024                     20.25
"""


FULL = """
# OSU MPI Broadcast Latency Test v7.3
# Datatype: MPI_CHAR.
# Size     Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
8                     4.00              1.00              9.00        1000
"""
