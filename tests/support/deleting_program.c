/* Free communicators with an attribute whose delete function calls collectives on them; their handles
 * are used again, by communicators of other ranks. Rank 0 prints "No Errors" where results are right. */

#include <mpi.h>
#include <stdio.h>

enum { ROUNDS = 50 };
static int deleted, errors;

static void check(MPI_Comm comm, int value)
{
    int size, rank, one = 1, sum = 0;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    int received = rank == size - 1 ? value : -1;
    MPI_Bcast(&received, 1, MPI_INT, size - 1, comm);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    errors += received != value || sum != size;
}

static int delete(MPI_Comm comm, int key, void *value, void *unused)
{
    (void)key, (void)value, (void)unused;
    check(comm, ++deleted);
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    int rank, key, total;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete, &key, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Comm comm;
        MPI_Comm_split(MPI_COMM_WORLD, round % 2 ? 0 : rank % 2, round % 3 ? rank : -rank, &comm);
        MPI_Comm_set_attr(comm, key, NULL);
        for (int call = 0; call < 4; call++)
            check(comm, round);
        if (round % 5)
            MPI_Comm_free(&comm);
        else
            MPI_Comm_disconnect(&comm);
    }
    errors += deleted != ROUNDS;
    MPI_Allreduce(&errors, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        puts(total ? "Errors" : "No Errors");
    MPI_Finalize();
    return 0;
}
