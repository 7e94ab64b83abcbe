/* Memory for calls, and data of any datatype as consecutive bytes. */

#include "tuner.h"

#include <stdlib.h>

MPI_Comm packing = MPI_COMM_NULL;

void start_packing(void)
{
    PMPI_Comm_dup(MPI_COMM_SELF, &packing);
    PMPI_Comm_set_errhandler(packing, MPI_ERRORS_RETURN);
}

void end_packing(void)
{
    PMPI_Comm_free(&packing);
}

/* Return memory of at least this size, with any content; NULL where there is none. */
char *reserve(struct memory *memory, size_t size)
{
    if (size >= memory->size) {
        const size_t rounded = (size + 64) / 64 * 64;
        free(memory->bytes);
        memory->bytes = aligned_alloc(64, rounded);
        memory->size = memory->bytes ? rounded : 0;
    }
    return memory->bytes;
}

/* Free what a communicator keeps for its next call, where that is more than a limit. */
void give_back(struct communicator *known, size_t limit)
{
    for (int i = 0; i < N_MEMORIES; i++)
        if (known->memories[i].size > limit) {
            free(known->memories[i].bytes);
            known->memories[i] = (struct memory){NULL, 0};
        }
}

/* Pack less than 2 GiB, for which alone tables have rules of this kind. */
int pack(const void *buffer, MPI_Count count, MPI_Datatype datatype, char *into, size_t nbytes)
{
    int position = 0;
    if (nbytes == 0) /* any number of elements without data */
        return MPI_SUCCESS;
    return PMPI_Pack(buffer, (int)count, datatype, into, (int)nbytes, &position, packing);
}

int unpack(const char *from, size_t nbytes, void *buffer, MPI_Count count, MPI_Datatype datatype)
{
    int position = 0;
    if (nbytes == 0) /* any number of elements without data */
        return MPI_SUCCESS;
    return PMPI_Unpack(from, (int)nbytes, &position, buffer, (int)count, datatype, packing);
}
