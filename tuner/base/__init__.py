"""Infrastructure that knows nothing of MPI: units, errors, files, processes, statistics."""
