/* Preloaded behind the dispatcher: says on standard error when the error handler of MPI_COMM_WORLD is
 * set by the dispatcher, whose calls alone come here. */

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

int PMPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler)
{
    int (*library)(MPI_Comm, MPI_Errhandler) = dlsym(RTLD_NEXT, "PMPI_Comm_set_errhandler");
    if (comm == MPI_COMM_WORLD)
        fputs("exchanged\n", stderr);
    return library(comm, handler);
}
