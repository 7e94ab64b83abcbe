/* Preloaded before ranks of Open MPI: each call of sched_setaffinity that leaves one core adds the
   line "rank core" to the file AFFINITY_RECORD. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void record_core(const char *rank, const cpu_set_t *cores)
{
    int core = 0;
    char line[64];
    while (!CPU_ISSET(core, cores))
        core++;
    const int length = snprintf(line, sizeof line, "%s %d\n", rank, core);
    const int file = open(getenv("AFFINITY_RECORD"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (write(file, line, (size_t)length) != length)
        abort();
    close(file);
}

int sched_setaffinity(pid_t process, size_t size, const cpu_set_t *cores)
{
    int (*const next)(pid_t, size_t, const cpu_set_t *) =
        (int (*)(pid_t, size_t, const cpu_set_t *))dlsym(RTLD_NEXT, "sched_setaffinity");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"); /* the launcher has none */
    if (rank && CPU_COUNT_S(size, cores) == 1)
        record_core(rank, cores);
    return next(process, size, cores);
}
