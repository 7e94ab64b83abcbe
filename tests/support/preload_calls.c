/* Makes the collective calls that a file lists, one a line: name, bytes over the whole buffer, and
 * whether the operator commutes. The second argument says how many microseconds rank 1 waits before
 * each. Prints "done" at the end. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void combine(void *in, void *inout, int *count, MPI_Datatype *datatype)
{
    (void)datatype;
    for (int i = 0; i < *count; i++)
        ((char *)inout)[i] |= ((char *)in)[i];
}

int main(int argc, char **argv)
{
    char name[32];
    int rank, size, nbytes, commutes;
    MPI_Op op;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Op_create(combine, 0, &op);
    FILE *file = fopen(argv[1], "r");
    while (file && fscanf(file, "%31s %d %d", name, &nbytes, &commutes) == 3) {
        char *a = calloc((size_t)nbytes + 1, 1), *b = calloc((size_t)nbytes + 1, 1);
        if (argc > 2 && rank == 1)
            usleep((useconds_t)atoi(argv[2]));
        MPI_Op used = commutes ? MPI_BOR : op;
        int block = nbytes / size;
        if (!strcmp(name, "bcast"))
            MPI_Bcast(a, nbytes, MPI_BYTE, size - 1, MPI_COMM_WORLD);
        else if (!strcmp(name, "reduce"))
            MPI_Reduce(a, b, nbytes, MPI_UINT8_T, used, size - 1, MPI_COMM_WORLD);
        else if (!strcmp(name, "allreduce"))
            MPI_Allreduce(a, b, nbytes, MPI_UINT8_T, used, MPI_COMM_WORLD);
        else if (!strcmp(name, "reduce_scatter"))
            MPI_Reduce_scatter_block(a, b, block, MPI_UINT8_T, used, MPI_COMM_WORLD);
        else if (!strcmp(name, "allgather"))
            MPI_Allgather(a, block, MPI_BYTE, b, block, MPI_BYTE, MPI_COMM_WORLD);
        else if (!strcmp(name, "gather"))
            MPI_Gather(a, block, MPI_BYTE, b, block, MPI_BYTE, size - 1, MPI_COMM_WORLD);
        else if (!strcmp(name, "scatter"))
            MPI_Scatter(a, block, MPI_BYTE, b, block, MPI_BYTE, size - 1, MPI_COMM_WORLD);
        else if (!strcmp(name, "alltoall"))
            MPI_Alltoall(a, block, MPI_BYTE, b, block, MPI_BYTE, MPI_COMM_WORLD);
        else if (!strcmp(name, "barrier"))
            MPI_Barrier(MPI_COMM_WORLD);
        else
            MPI_Abort(MPI_COMM_WORLD, 3);
        free(a);
        free(b);
    }
    if (rank == 0 && file)
        puts("done");
    MPI_Op_free(&op);
    MPI_Finalize();
    return 0;
}
