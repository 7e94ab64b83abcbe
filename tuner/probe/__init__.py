"""Measure messages, reductions and the collectives of MPI libraries."""
