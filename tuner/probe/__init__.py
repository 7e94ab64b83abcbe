"""Measuring a computer: messages, reductions and the collectives of its MPI library."""
