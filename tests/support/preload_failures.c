/* Sums on all ranks again and again, until one rank dies. The others then revoke the communicator
 * and go on without that rank, as programs do with User Level Failure Mitigation (ULFM). The first
 * of them prints "No Errors" where all noticed, and their sum without it is right.
 *
 * preload_failures COUNT */

#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CALLS = 10, MOST = 100000 };
static int ones[MOST], sums[MOST];

static int sum_up(MPI_Comm comm, int count)
{
    return MPI_Allreduce(ones, sums, count, MPI_INT, MPI_SUM, comm);
}

int main(int argc, char **argv)
{
    int rank, size, left, errors = 0, total = 0, count = argc > 1 ? atoi(argv[1]) : 1;
    MPI_Comm comm, rest;
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < count; i++)
        ones[i] = 1;
    for (int call = 0; call < CALLS; call++)
        errors += sum_up(comm, count) || sums[count - 1] != size;
    if (rank == size - 1) {
        for (int other = 0; other < rank; other++) /* its data has arrived everywhere */
            MPI_Recv(NULL, 0, MPI_INT, other, 0, comm, MPI_STATUS_IGNORE);
        raise(SIGKILL);
    }
    MPI_Send(NULL, 0, MPI_INT, size - 1, 0, comm);
    errors += sum_up(comm, count) == MPI_SUCCESS; /* without what the last rank gives */
    MPIX_Comm_revoke(comm);
    MPIX_Comm_shrink(comm, &rest);
    MPI_Comm_size(rest, &left);
    errors += sum_up(rest, count) || sums[count - 1] != left || left != size - 1;
    MPI_Allreduce(&errors, &total, 1, MPI_INT, MPI_SUM, rest);
    if (rank == 0)
        puts(total ? "Errors" : "No Errors");
    fflush(stdout);
    MPI_Barrier(rest);
    _exit(0); /* Open MPI 5.0.11 often hangs in MPI_Finalize after a failure */
}
