/*
 * Print how far apart the first two cores are: the time in ns in which a cache line goes from one
 * to the other and back. -1 where there is one core only.
 *
 * It differs from machine to machine, and on a virtual machine from minute to minute. The ranking
 * of algorithms may depend on it.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BOUTS = 201, TRIPS = 32 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void pin(int core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    sched_setaffinity(0, sizeof cores, &cores);
}

/* Send the line back and forth: side 0 stores the odd numbers, side 1 the even ones. */
static void bounce(int side, int *line, double *times) {
    int turn = 0;
    for (int bout = 0; bout < BOUTS; bout++) {
        double begin = now();
        for (int trip = 0; trip < 2 * TRIPS; trip++, turn++) {
            if (turn % 2 == side) {
                __atomic_store_n(line, turn + 1, __ATOMIC_RELEASE);
                continue;
            }
            for (long spin = 1; __atomic_load_n(line, __ATOMIC_ACQUIRE) <= turn; spin++)
                if (spin % 1024 == 0) sched_yield();
        }
        times[bout] = (now() - begin) / TRIPS;
    }
}

int main(void) {
    double times[BOUTS];
    cpu_set_t allowed;
    int cores[2], found = 0;
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET(core, &allowed)) cores[found++] = core;
    int *line = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (found < 2 || line == MAP_FAILED) {
        puts("-1");
        return 0;
    }
    pid_t child = fork();
    if (child < 0) {
        perror("core_distance: fork");
        return 1;
    }
    if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL); /* it would wait for ever */
    pin(cores[child == 0]);
    bounce(child == 0, line, times);
    if (child == 0) return 0;
    waitpid(child, NULL, 0);
    qsort(times, BOUTS, sizeof *times, by_size);
    printf("%.1f\n", 1e9 * times[BOUTS / 10]); /* undisturbed bouts */
    return 0;
}
