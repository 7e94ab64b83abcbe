"""What-if studies: the best algorithms as a machine, which need not exist, varies along a few axes.

A `Study` is a machine, the axes along which it varies, collectives and sizes. `run_study` simulates
every candidate at every point, in this process, over the cores of this computer
(`make_parallel_executor`) or over those of a cluster (`dask_executor`, which needs Dask). The
result says which candidate is best, where the best one changes (crossovers), what each step along
an axis gains, and what following an existing tuning table would cost.
"""
