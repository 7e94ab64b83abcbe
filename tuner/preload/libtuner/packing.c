/* Memory for calls, and data of any datatype as consecutive bytes. */

#include "tuner.h"

#include <limits.h>
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
    if (size > memory->size || !memory->bytes) {
        free(memory->bytes);
        memory->bytes = aligned_alloc(64, (size + 64) / 64 * 64);
        memory->size = memory->bytes ? size : 0;
    }
    return memory->bytes;
}

int pack(const void *buffer, MPI_Count count, MPI_Datatype datatype, char *into, size_t nbytes)
{
    int position = 0;
    if (count > INT_MAX || nbytes > INT_MAX)
        return MPI_ERR_COUNT;
    return PMPI_Pack(buffer, (int)count, datatype, into, (int)nbytes, &position, packing);
}

int unpack(const char *from, size_t nbytes, void *buffer, MPI_Count count, MPI_Datatype datatype)
{
    int position = 0;
    if (count > INT_MAX || nbytes > INT_MAX)
        return MPI_ERR_COUNT;
    return PMPI_Unpack(from, (int)nbytes, &position, buffer, (int)count, datatype, packing);
}
