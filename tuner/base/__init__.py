"""Infrastructure that is independent of MPI: units, errors, files, processes, statistics."""
