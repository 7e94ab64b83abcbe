/* Costs of the preloaded dispatcher, in one process of each rank, so that sides alternate.
 *
 * call BATCHES            nanoseconds of an 8-byte Allreduce on MPI_COMM_SELF: the library's own
 *                         function, and what the program calls; the least and the 5th percentile
 * create BATCHES          microseconds of split, duplicate, one call, free, free: 10th percentile
 * collective NAME NBYTES TRIALS   seconds of a call: median over the trials of the slowest rank */

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int (*allreduce_function)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
enum { BATCH = 500 };

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int ascending(const void *one, const void *other)
{
    const double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void time_calls(int batches)
{
    Dl_info mpi;
    dladdr(dlsym(RTLD_DEFAULT, "MPI_Get_library_version"), &mpi);
    void *library = dlopen(mpi.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    allreduce_function sides[2] = {(allreduce_function)dlsym(library, "PMPI_Allreduce"),
                                   MPI_Allreduce};
    double *times[2] = {malloc(sizeof(double) * (size_t)batches),
                        malloc(sizeof(double) * (size_t)batches)};
    double a = 1.0, b;
    for (int batch = 0; batch < batches; batch++)
        for (int side = 0; side < 2; side++) {
            const double begin = now(CLOCK_MONOTONIC);
            for (int call = 0; call < BATCH; call++)
                sides[side](&a, &b, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
            times[side][batch] = (now(CLOCK_MONOTONIC) - begin) / BATCH * 1e9;
        }
    for (int side = 0; side < 2; side++)
        qsort(times[side], (size_t)batches, sizeof(double), ascending);
    printf("%.2f %.2f %.2f %.2f\n", times[0][0], times[1][0], times[0][batches / 20],
           times[1][batches / 20]);
}

static void time_creation(int batches)
{
    enum { LOOPS = 50 };
    int rank;
    double a = 1.0, b, *times = malloc(sizeof(double) * (size_t)batches);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int batch = 0; batch < batches; batch++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = now(CLOCK_MONOTONIC);
        for (int loop = 0; loop < LOOPS; loop++) {
            MPI_Comm part, copy;
            MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &part);
            MPI_Comm_dup(part, &copy);
            MPI_Allreduce(&a, &b, 1, MPI_DOUBLE, MPI_SUM, copy);
            MPI_Comm_free(&copy);
            MPI_Comm_free(&part);
        }
        times[batch] = (now(CLOCK_MONOTONIC) - begin) / LOOPS * 1e6;
    }
    qsort(times, (size_t)batches, sizeof(double), ascending);
    if (rank == 0)
        printf("%.3f\n", times[batches / 10]);
}

static void time_collective(const char *name, int nbytes, int trials)
{
    int rank;
    char *sent = calloc((size_t)nbytes + 1, 1), *received = calloc((size_t)nbytes + 1, 1);
    double *times = malloc(sizeof(double) * (size_t)trials);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int trial = -2; trial < trials; trial++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = now(CLOCK_MONOTONIC);
        if (strcmp(name, "bcast") == 0)
            MPI_Bcast(sent, nbytes, MPI_BYTE, 0, MPI_COMM_WORLD);
        else
            MPI_Allreduce(sent, received, nbytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        double taken = now(CLOCK_MONOTONIC) - begin, longest;
        MPI_Reduce(&taken, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (trial >= 0)
            times[trial] = longest;
    }
    qsort(times, (size_t)trials, sizeof(double), ascending);
    if (rank == 0)
        printf("%.9f\n", times[trials / 2]);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (strcmp(argv[1], "call") == 0)
        time_calls(atoi(argv[2]));
    else if (strcmp(argv[1], "create") == 0)
        time_creation(atoi(argv[2]));
    else
        time_collective(argv[2], atoi(argv[3]), atoi(argv[4]));
    MPI_Finalize();
    return 0;
}
