/* Preloaded before an MPI library: counts the collective calls that a process makes, those that create
   communicators included. `calls_made` returns how many. */

#include <mpi.h>

static long made;

long calls_made(void)
{
    return made;
}

#define COUNTED(name, parameters, arguments) \
    int MPI_##name parameters                \
    {                                        \
        made++;                              \
        return PMPI_##name arguments;        \
    }

COUNTED(Init_thread, (int *n, char ***w, int r, int *p), (n, w, r, p))
COUNTED(Barrier, (MPI_Comm c), (c))
COUNTED(Comm_dup, (MPI_Comm c, MPI_Comm *d), (c, d))
COUNTED(Comm_dup_with_info, (MPI_Comm c, MPI_Info i, MPI_Comm *d), (c, i, d))
COUNTED(Comm_split, (MPI_Comm c, int color, int key, MPI_Comm *d), (c, color, key, d))
COUNTED(Comm_split_type, (MPI_Comm c, int type, int key, MPI_Info i, MPI_Comm *d),
        (c, type, key, i, d))
COUNTED(Bcast, (void *b, int n, MPI_Datatype t, int r, MPI_Comm c), (b, n, t, r, c))
COUNTED(Allreduce, (const void *s, void *b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c),
        (s, b, n, t, o, c))
COUNTED(Allgather,
        (const void *s, int n, MPI_Datatype t, void *b, int m, MPI_Datatype u, MPI_Comm c),
        (s, n, t, b, m, u, c))
COUNTED(Gather,
        (const void *s, int n, MPI_Datatype t, void *b, int m, MPI_Datatype u, int r, MPI_Comm c),
        (s, n, t, b, m, u, r, c))
#if MPI_VERSION >= 4
COUNTED(Bcast_c, (void *b, MPI_Count n, MPI_Datatype t, int r, MPI_Comm c), (b, n, t, r, c))
COUNTED(Allreduce_c, (const void *s, void *b, MPI_Count n, MPI_Datatype t, MPI_Op o, MPI_Comm c),
        (s, b, n, t, o, c))
COUNTED(Allgather_c,
        (const void *s, MPI_Count n, MPI_Datatype t, void *b, MPI_Count m, MPI_Datatype u,
         MPI_Comm c),
        (s, n, t, b, m, u, c))
COUNTED(Gather_c,
        (const void *s, MPI_Count n, MPI_Datatype t, void *b, MPI_Count m, MPI_Datatype u, int r,
         MPI_Comm c),
        (s, n, t, b, m, u, r, c))
#endif
