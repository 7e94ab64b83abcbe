"""Replays of training: the calls of a workload with a real MPI, and sleeping for computing."""
