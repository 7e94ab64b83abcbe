/* What is said to the user: single lines on standard error, and the report of a run. */

#include "tuner.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void say(const char *format, ...)
{
    char line[512];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    fprintf(stderr, "tuner: %s\n", line);
}

/* Write how often each rule was followed, on all ranks together, into the file TUNER_REPORT;
 * collective over MPI_COMM_WORLD. */
void write_report(void)
{
    const char *path = getenv("TUNER_REPORT");
    const size_t n = table.n_rules;
    uint64_t *calls = calloc(2 * n + 1, sizeof *calls);
    int rank, can = calls && path;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (library_allreduce(&can, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD) == MPI_SUCCESS && can) {
        for (size_t i = 0; i < n; i++)
            calls[i] = atomic_load(&rule_calls[i]);
        library_reduce(calls, calls + n, (int)n, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        FILE *file = rank == 0 ? fopen(path, "w") : NULL;
        if (rank == 0 && !file)
            say("%s cannot be written: there is no report", path);
        for (size_t i = 0; file && i < n; i++)
            fprintf(file, "%zu %llu\n", i, (unsigned long long)calls[n + i]);
        if (file)
            fclose(file);
    }
    free(calls);
}
