"""What runs inside MPI programs: numpy and mpi4py are all it loads."""
