/* Preloaded before an MPI library: MPI_Allreduce takes longer for some sizes, in one of two launches.

   SLOW_FROM and SLOW_BELOW are these sizes in bytes, SLOW_MS how much longer it takes. Where
   TUNER_TEST_FAST is set nothing is slower. Where TUNER_TEST_WRONG is set their result is wrong.
   Where TUNER_TEST_ENDS is set the ranks end in their first call. The rank that can remove the file
   TUNER_TEST_DIES dies. */

#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long value_of(const char *name)
{
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

int MPI_Allreduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm)
{
    int item;
    if (getenv("TUNER_TEST_ENDS"))
        _exit(1);
    if (getenv("TUNER_TEST_DIES") && unlink(getenv("TUNER_TEST_DIES")) == 0)
        raise(SIGSEGV);
    MPI_Type_size(type, &item);
    const long nbytes = (long)item * count;
    const int chosen = nbytes >= value_of("SLOW_FROM") && nbytes < value_of("SLOW_BELOW");
    const int error = PMPI_Allreduce(send, receive, count, type, op, comm);
    if (chosen && !getenv("TUNER_TEST_FAST")) {
        /* Long beside what other programs cost. */
        const long ms = getenv("SLOW_MS") ? value_of("SLOW_MS") : 4;
        const struct timespec long_time = {0, ms * 1000 * 1000};
        nanosleep(&long_time, NULL);
    }
    if (chosen && getenv("TUNER_TEST_WRONG") && type == MPI_FLOAT)
        memset(receive, 0, (size_t)nbytes);
    return error;
}
