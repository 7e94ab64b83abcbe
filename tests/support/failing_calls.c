/* Linked into the dispatcher with the linker's --wrap: one of its calls of a function fails. The
 * variable TUNER_TEST_FAILS has the function's name and the number of that call, from 1 on; the
 * name "memory" stands for all functions that allocate, "reserve" for what packed data and scratch
 * take. A line on standard error says that. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fails(const char *name)
{
    static int calls;
    const char *wanted = getenv("TUNER_TEST_FAILS");
    const size_t length = strlen(name);
    int is_begun, is_over;
    if (!wanted || strncmp(wanted, name, length) || wanted[length] != ' ')
        return 0;
    MPI_Initialized(&is_begun); /* the rest is not the dispatcher's: launchers, gcov */
    MPI_Finalized(&is_over);
    if (!is_begun || is_over || ++calls != atoi(wanted + length))
        return 0;
    fprintf(stderr, "failed: %s\n", wanted);
    return 1;
}

#define WRAPPED(result, function, name, failure, parameters, arguments) \
    result __real_##function parameters;                                \
    result __wrap_##function parameters;                                \
    result __wrap_##function parameters                                 \
    {                                                                   \
        return fails(name) ? failure : __real_##function arguments;     \
    }
#define MPI_WRAPPED(function, parameters, arguments) \
    WRAPPED(int, function, #function, MPI_ERR_OTHER, parameters, arguments)

WRAPPED(void *, malloc, "memory", NULL, (size_t n), (n))
WRAPPED(void *, calloc, "memory", NULL, (size_t n, size_t size), (n, size))
MPI_WRAPPED(PMPI_Comm_split_type, (MPI_Comm c, int type, int key, MPI_Info i, MPI_Comm *d),
            (c, type, key, i, d))
MPI_WRAPPED(PMPI_Comm_dup_with_info, (MPI_Comm c, MPI_Info i, MPI_Comm *d), (c, i, d))
MPI_WRAPPED(PMPI_Comm_set_attr, (MPI_Comm c, int key, void *value), (c, key, value))
MPI_WRAPPED(MPI_T_init_thread, (int required, int *provided), (required, provided))
MPI_WRAPPED(MPI_T_cvar_write, (MPI_T_cvar_handle h, const void *value), (h, value))

void *__real_aligned_alloc(size_t to, size_t n);
void *__wrap_aligned_alloc(size_t to, size_t n);
void *__wrap_aligned_alloc(size_t to, size_t n)
{
    return fails("memory") || fails("reserve") ? NULL : __real_aligned_alloc(to, n);
}

/* The call is made, since other ranks take part in it, and says that it has failed. */
int __real_PMPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made);
int __wrap_PMPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made);
int __wrap_PMPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made)
{
    int code = __real_PMPI_Comm_split(comm, color, key, made);
    if (!fails("PMPI_Comm_split"))
        return code;
    PMPI_Comm_free(made);
    return MPI_ERR_OTHER;
}

/* The call is made, since the file has to be closed, and says that it has failed. */
int __real_fclose(FILE *file);
int __wrap_fclose(FILE *file);
int __wrap_fclose(FILE *file)
{
    int code = __real_fclose(file);
    return fails("fclose") ? EOF : code;
}

/* Where TUNER_TEST_CLOCK says so, all that is timed seems to take so many times as long. */
double __real_PMPI_Wtime(void);
double __wrap_PMPI_Wtime(void);
double __wrap_PMPI_Wtime(void)
{
    const char *factor = getenv("TUNER_TEST_CLOCK");
    return __real_PMPI_Wtime() * (factor ? atof(factor) : 1.0);
}
