/* Preloaded: each process that loads it leaves a file in the directory RECORD, named after its program. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void record_loading(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%d", RECORD, program_invocation_short_name, (int)getpid());
    const int file = open(path, O_WRONLY | O_CREAT, 0644);
    if (file < 0)
        abort();
    close(file);
}
