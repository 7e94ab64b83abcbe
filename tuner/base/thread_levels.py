"""The names of MPI's thread levels."""

# Levels of MPI_Init_thread, from that of MPI_Init in a C program to mpi4py's default.
THREAD_SINGLE = "single"
THREAD_LEVELS = (THREAD_SINGLE, "funneled", "serialized", "multiple")
