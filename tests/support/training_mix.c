/* The collective calls of data-parallel training: a model is sent to all ranks, then each iteration
 * sums gradients in buckets, a loss, and sends some settings.
 *
 * training_mix ITERATIONS
 *
 * Prints for each kind of call its collective, bytes, calls and seconds, on the rank where they take
 * longest, and at last the seconds of all calls. Ends with status 1 where a sum is wrong. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { MODEL, BUCKET, LOSS, SETTINGS, KINDS };
static const char *const names[KINDS] = {"bcast", "allreduce", "allreduce", "bcast"};
static const int bytes[KINDS] = {1 << 20, 256 << 10, 8, 4 << 10};
static const int each_iteration[KINDS] = {0, 4, 1, 1};
enum { LAYERS = 4 };
static double values[1 << 17], sums[1 << 17], seconds[KINDS + 1];
static int calls[KINDS], errors;

static void call(int kind, int rank, int size)
{
    const int count = bytes[kind] / (int)sizeof *values;
    const int reduces = kind == BUCKET || kind == LOSS;
    values[count - 1] = reduces ? rank : rank == 0 ? calls[kind] : -1;
    MPI_Barrier(MPI_COMM_WORLD);
    const double begun = MPI_Wtime();
    if (reduces)
        MPI_Allreduce(values, sums, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    else
        MPI_Bcast(values, count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    seconds[kind] += MPI_Wtime() - begun;
    errors += reduces ? sums[count - 1] != size * (size - 1) / 2.0
                      : values[count - 1] != calls[kind];
    calls[kind]++;
}

int main(int argc, char **argv)
{
    int rank, size, all_errors;
    double longest[KINDS + 1];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int iterations = argc > 1 ? atoi(argv[1]) : 10;
    for (int layer = 0; layer < LAYERS; layer++)
        call(MODEL, rank, size);
    for (int iteration = 0; iteration < iterations; iteration++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int i = 0; i < each_iteration[kind]; i++)
                call(kind, rank, size);
    for (int kind = 0; kind < KINDS; kind++)
        seconds[KINDS] += seconds[kind];
    MPI_Reduce(seconds, longest, KINDS + 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&errors, &all_errors, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int kind = 0; rank == 0 && kind < KINDS; kind++)
        printf("%s %d %d %.9f\n", names[kind], bytes[kind], calls[kind], longest[kind]);
    if (rank == 0)
        printf("all 0 0 %.9f\n", longest[KINDS]);
    MPI_Finalize();
    return all_errors != 0;
}
