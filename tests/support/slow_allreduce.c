/* Preloaded before an MPI library: MPI_Allreduce takes longer for some sizes, in one of two launches.

   SLOW_FROM and SLOW_BELOW are these sizes in bytes. Where TUNER_TEST_FAST is set nothing is slower.
   Where TUNER_TEST_WRONG is set their result is wrong. */

#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long value_of(const char *name)
{
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

int MPI_Allreduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm)
{
    int item;
    MPI_Type_size(type, &item);
    const long nbytes = (long)item * count;
    const int chosen = nbytes >= value_of("SLOW_FROM") && nbytes < value_of("SLOW_BELOW");
    const int error = PMPI_Allreduce(send, receive, count, type, op, comm);
    if (chosen && !getenv("TUNER_TEST_FAST")) {
        struct timespec begin, now;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        do
            clock_gettime(CLOCK_MONOTONIC, &now);
        while ((now.tv_sec - begin.tv_sec) * 1e9 + now.tv_nsec - begin.tv_nsec < 2e6);
    }
    if (chosen && getenv("TUNER_TEST_WRONG") && type == MPI_FLOAT)
        memset(receive, 0, (size_t)nbytes);
    return error;
}
