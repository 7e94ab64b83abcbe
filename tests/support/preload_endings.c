/* Makes collective calls on three communicators and ends as its arguments say.
 *
 * preload_endings ENDING RANK CALLS SEED
 *
 * After CALLS calls, in an order that follows from SEED, one rank ends in the given way while the
 * others go on calling:
 *   none       no rank does: rank 0 prints "No Errors"
 *   kill       by SIGKILL
 *   crash      by SIGABRT
 *   abort      by MPI_Abort with 7
 *   exit       by exit(5), without MPI_Finalize
 *   fatal      calls a broadcast with a wrong root, under the default error handler
 *   returned   the same on every rank under MPI_ERRORS_RETURN: all go on, as with "none"
 *   session    MPI is started by a session, without MPI_Init; all go on, as with "none" */

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_COMMS = 3, MOST = 3000 };
static MPI_Comm comms[N_COMMS];
static int values[MOST], results[MOST * 8];
static int errors;

static void call(MPI_Comm comm, int kind, int count)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < count; i++)
        values[i] = rank + i;
    const int last = size - 1, sum = size * (size - 1) / 2;
    if (kind == 0) {
        MPI_Bcast(values, count, MPI_INT, last, comm);
        errors += values[0] != last || values[count - 1] != last + count - 1;
    } else if (kind == 1) {
        MPI_Allreduce(values, results, count, MPI_INT, MPI_SUM, comm);
        errors += results[count - 1] != sum + size * (count - 1);
    } else if (kind == 2) {
        MPI_Allgather(values, count, MPI_INT, results, count, MPI_INT, comm);
        errors += results[count * size - 1] != last + count - 1;
    } else if (kind == 3) {
        MPI_Reduce(values, results, count, MPI_INT, MPI_SUM, last, comm);
        errors += rank == last && results[0] != sum;
    } else
        MPI_Barrier(comm);
}

static void end(const char *ending)
{
    int code;
    if (!strcmp(ending, "kill"))
        raise(SIGKILL);
    else if (!strcmp(ending, "crash"))
        abort();
    else if (!strcmp(ending, "abort"))
        MPI_Abort(comms[0], 7);
    else if (!strcmp(ending, "exit"))
        exit(5);
    else if (!strcmp(ending, "fatal"))
        MPI_Bcast(values, 1, MPI_INT, 99, comms[0]);
    else if (!strcmp(ending, "returned")) {
        MPI_Comm_set_errhandler(comms[0], MPI_ERRORS_RETURN);
        code = MPI_Bcast(values, 1, MPI_INT, 99, comms[0]);
        MPI_Error_class(code, &code);
        errors += code != MPI_ERR_ROOT;
    }
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    const char *ending = argv[1];
    const int breaks = atoi(argv[2]), calls = atoi(argv[3]);
    const int is_session = !strcmp(ending, "session"), all = !strcmp(ending, "returned");
    unsigned random = (unsigned)atoi(argv[4]);
    int rank, total;
    MPI_Session session = MPI_SESSION_NULL;
    if (is_session) {
        MPI_Group group;
        MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
        MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
        MPI_Comm_create_from_group(group, "endings", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comms[0]);
        MPI_Group_free(&group);
    } else {
        MPI_Init(&argc, &argv);
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
    }
    MPI_Comm_rank(comms[0], &rank);
    MPI_Comm_split(comms[0], rank % 2, rank, &comms[1]);
    MPI_Comm_split(comms[0], 0, -rank, &comms[2]);
    for (int i = 0; i < 2 * calls; i++) {
        random = random * 1103515245u + 12345u;
        const int kind = (int)(random >> 16) % 5, count = 1 + (int)(random >> 8) % MOST;
        if (i == calls && (all || rank == breaks))
            end(ending);
        call(comms[(random >> 12) % N_COMMS], kind, count);
    }
    MPI_Allreduce(&errors, &total, 1, MPI_INT, MPI_SUM, comms[0]);
    if (rank == 0)
        puts(total ? "Errors" : "No Errors");
    for (int i = N_COMMS - 1; i >= 0; i--)
        MPI_Comm_free(&comms[i]);
    if (is_session)
        MPI_Session_finalize(&session);
    else
        MPI_Finalize();
    return total != 0;
}
