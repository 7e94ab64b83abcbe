/* Make calls with wrong arguments on a communicator whose error handler returns: rank 0 prints for
 * each the error class, and how often the handlers of the communicator and of MPI_COMM_WORLD were
 * called. A right call after them shows that no message is left over. */

#include <mpi.h>
#include <stdio.h>

static int rank, size, own_calls, world_calls;
static int give[1000], take[1000];

static void handle_own(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
    own_calls++;
}

static void handle_world(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
    world_calls++;
}

static void tell(const char *call, int code)
{
    int class = MPI_SUCCESS;
    MPI_Error_class(code, &class);
    if (rank == 0)
        printf("%s: class %d, handlers called %d and %d times\n", call, class, own_calls,
               world_calls);
    own_calls = world_calls = 0;
}

#define TRY(call) tell(#call, call)

static void call_wrongly(MPI_Comm comm, MPI_Datatype uncommitted)
{
    TRY(MPI_Bcast(give, -1, MPI_INT, 0, comm));
    TRY(MPI_Bcast(give, 10, MPI_INT, -1, comm));
    TRY(MPI_Bcast(give, 10, MPI_INT, size, comm));
    TRY(MPI_Bcast(give, 10, MPI_DATATYPE_NULL, 0, comm));
    TRY(MPI_Bcast(give, 2, uncommitted, 0, comm));
    TRY(MPI_Reduce(give, take, 10, MPI_INT, MPI_SUM, size, comm));
    TRY(MPI_Gather(give, 10, MPI_INT, take, 10, MPI_INT, size, comm));
    TRY(MPI_Allgather(give, 10, MPI_DATATYPE_NULL, take, 10, MPI_INT, comm));
    TRY(MPI_Allgather(give, -1, MPI_INT, take, 10, MPI_INT, comm));
    TRY(MPI_Allgather(give, 10, MPI_INT, take, 10, MPI_DATATYPE_NULL, comm));
    TRY(MPI_Allgather(give, 2, uncommitted, take, 6, MPI_INT, comm));
    TRY(MPI_Scatter(give, 10, MPI_INT, take, 10, MPI_INT, size, comm));
    TRY(MPI_Bcast(give, 10, MPI_INT, 0, MPI_COMM_NULL));
    TRY(MPI_Barrier(MPI_COMM_NULL));
#ifdef OPEN_MPI /* MPICH ends programs for these */
    TRY(MPI_Allreduce(give, take, -10, MPI_INT, MPI_SUM, comm));
    TRY(MPI_Reduce_scatter_block(give, take, -1, MPI_INT, MPI_SUM, comm));
    TRY(MPI_Allreduce(give, take, 10, MPI_INT, MPI_OP_NULL, comm));
    TRY(MPI_Allreduce(give, take, 10, MPI_FLOAT, MPI_BAND, comm));
    TRY(MPI_Allreduce(give, take, 10, MPI_INT, MPI_MINLOC, comm));
    TRY(MPI_Allreduce(give, take, 10, MPI_INT, MPI_REPLACE, comm));
    TRY(MPI_Allreduce(give, take, 2, uncommitted, MPI_SUM, comm));
    TRY(MPI_Reduce_scatter_block(give, take, 10, MPI_FLOAT, MPI_BAND, comm));
#endif
}

int main(int argc, char **argv)
{
    MPI_Comm comm;
    MPI_Errhandler own, world;
    MPI_Datatype uncommitted;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(handle_own, &own);
    MPI_Comm_create_errhandler(handle_world, &world);
    MPI_Comm_set_errhandler(comm, own);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, world);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, world);
    MPI_Type_contiguous(3, MPI_INT, &uncommitted);
    for (int i = 0; i < 3; i++) {
        give[0] = rank + 1;
        MPI_Bcast(take, 10, MPI_INT, 0, comm);
        MPI_Allreduce(give, take, 10, MPI_INT, MPI_SUM, comm);
        if (rank == 0)
            printf("sum %d\n", take[0]);
        call_wrongly(comm, uncommitted);
    }
    MPI_Type_free(&uncommitted);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}
