/* What is said to the user: single lines on standard error, and the report of a run. */

#include "tuner.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Break a line at spaces into lines of a number of columns; longer words have lines of their own. */
static void fold(char *line, size_t columns)
{
    while (strlen(line) > columns) {
        char *space = memrchr(line, ' ', columns + 1);
        if (!space)
            space = strchr(line, ' ');
        if (!space)
            return;
        *space = '\n';
        line = space + 1;
    }
}

void say(const char *format, ...)
{
    char line[512] = "tuner: ";
    const size_t begin = strlen(line);
    const char *quiet = getenv("TUNER_QUIET");
    const char *width = getenv("TUNER_COLUMNS"); /* of the terminal that shows the line */
    const long columns = width ? strtol(width, NULL, 10) : 0;
    va_list values;
    if (quiet && *quiet)
        return;
    va_start(values, format);
    vsnprintf(line + begin, sizeof line - begin, format, values);
    va_end(values);
    if (columns > 0)
        fold(line, (size_t)columns);
    fprintf(stderr, "%s\n", line);
}

/* Print a time to three significant digits, with its unit. */
static const char *format_seconds(double seconds, char *text, size_t size)
{
    const bool is_us = fabs(seconds) < 1e-3, is_ms = fabs(seconds) < 1.0;
    snprintf(text, size, "%.3g %s", seconds * (is_us ? 1e6 : is_ms ? 1e3 : 1.0),
             is_us ? "us" : is_ms ? "ms" : "s");
    return text;
}

/* Say why no call followed the table. */
static void explain_none(uint64_t n_left, int size)
{
    if (n_left)
        say("no call followed the table: what its rules take could not be set up, was not worth it "
            "for so few calls, or is not for their datatypes, operators or counts");
    else if (find_communicator(MPI_COMM_WORLD)->shape)
        say("no call followed the table: it leaves what this program calls to the library, or has "
            "no rules for its communicators");
    else
        say("no call followed the table: it has no rules for %d ranks placed as these are", size);
}

/* Say how many calls followed the table in a run of so many seconds, and what that saved by its
 * evidence. */
static void summarize(const uint64_t *calls, int size, double seconds)
{
    uint64_t sum = 0;
    double saved[3] = {0.0, 0.0, 0.0};
    for (size_t i = 0; i < table.n_rules; i++) {
        sum += calls[i];
        for (int n = 0; n < 3; n++)
            saved[n] += (double)calls[i] / size * table.rules[i].saved_seconds[n];
    }
    if (sum == 0)
        explain_none(calls[table.n_rules], size);
    else if (saved[0] == 0.0)
        say("calls of each rank that followed the table: %.0f", (double)sum / size);
    else if (fabs(saved[0]) > seconds)
        say("calls of each rank that followed the table: %.0f; what that saved is unknown: by its "
            "evidence more than the whole run took, so that these calls are shorter than the "
            "measured ones",
            (double)sum / size);
    else {
        char texts[3][32];
        say("calls of each rank that followed the table: %.0f; by its evidence that saved %s (%s "
            "to %s)",
            (double)sum / size, format_seconds(saved[0], texts[0], sizeof texts[0]),
            format_seconds(saved[1], texts[1], sizeof texts[1]),
            format_seconds(saved[2], texts[2], sizeof texts[2]));
    }
    const uint64_t undecided = atomic_load(&undecided_agreements);
    if (undecided)
        say("agreements on sizes for which the table has several choices, so that the library "
            "decided: %llu (with TUNER_AGREE_EVERY=8, for example, ranks agree more often)",
            (unsigned long long)undecided);
}

static void write_counts(const char *path, const uint64_t *calls)
{
    FILE *file = fopen(path, "w");
    if (!file) {
        say("report left out: %s cannot be written", path);
        return;
    }
    for (size_t i = 0; i < table.n_rules; i++)
        fprintf(file, "%zu %llu\n", i, (unsigned long long)calls[i]);
    if (fclose(file))
        say("%s is incomplete: it cannot be written", path);
}

/* Say how many calls followed the table, and write how often each rule was followed into the file
 * TUNER_REPORT, if there is one; collective over MPI_COMM_WORLD.
 *
 * seconds  since MPI began */
void write_report(double seconds)
{
    MPI_Comm parent;
    PMPI_Comm_get_parent(&parent); /* the file is that of the program which spawned this one */
    const char *path = parent == MPI_COMM_NULL ? getenv("TUNER_REPORT") : NULL;
    const size_t n = table.n_rules + 1;
    uint64_t *calls = calloc(2 * n, sizeof *calls);
    int rank, size, is_complete = calls != NULL;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    int code = library_allreduce(&is_complete, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    for (size_t i = 0; is_complete && i < n; i++)
        calls[i] = atomic_load(&rule_calls[i]);
    if (is_complete)
        code |= library_reduce(calls, calls + n, (int)n, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    const bool is_known = is_complete && code == MPI_SUCCESS;
    if (rank == 0 && !is_known)
        say("the counts of calls that followed the table cannot be collected");
    if (rank == 0 && is_known && path && *path)
        write_counts(path, calls + n);
    if (rank == 0 && is_known)
        summarize(calls + n, size, seconds);
    free(calls);
}
