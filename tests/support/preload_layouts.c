/* Broadcasts on communicators of given ranks: each argument is a list such as 0,2. A broadcast on the
 * communicator of the n-th list, from 0 on, has n + 1 bytes and is made three times. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    char data[64] = {0};
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int n = 1; n < argc; n++) {
        int place = -1, count = 0;
        MPI_Comm comm;
        for (char *word = strtok(argv[n], ","); word; word = strtok(NULL, ","), count++)
            if (atoi(word) == rank)
                place = count;
        MPI_Comm_split(MPI_COMM_WORLD, place < 0 ? MPI_UNDEFINED : 0, place, &comm);
        if (comm == MPI_COMM_NULL)
            continue;
        for (int call = 0; call < 3; call++)
            MPI_Bcast(data, n, MPI_BYTE, 0, comm);
        MPI_Comm_free(&comm);
    }
    if (rank == 0)
        puts("done");
    MPI_Finalize();
    return 0;
}
