/* mpicc sums.c -o sums && tuner run --table table.json -- mpirun -n 2 ./sums */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, count = argc > 1 ? atoi(argv[1]) : 8192;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double *own = malloc(sizeof *own * count), *total = malloc(sizeof *total * count);
    for (int i = 0; i < count; i++) own[i] = rank + 1;
    MPI_Allreduce(own, total, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d elements: %.0f\n", count, total[count - 1]);
    MPI_Finalize();
}
