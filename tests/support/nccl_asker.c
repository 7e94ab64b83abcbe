/* A program that asks for each call, as tuner_nccl.h says, by commands on standard input.
 *
 *   follow NUMBER RANKS NODES    prints what tuner_nccl_follow returns
 *   ask NUMBER COLLECTIVE BYTES  prints what tuner_nccl_config returns, the selection, whether NCCL
 *                                must obey, and the bounds of channels; `-` for what is not set
 *   forget NUMBER
 *   threads COUNT ROUNDS RANKS NODES COLLECTIVE BYTES  prints the selection that all of them got
 *   time NUMBER COLLECTIVE SPREAD  prints the nanoseconds of a decision, over sizes below SPREAD
 *
 * RANKS -1 stands for a communicator of which NCCL does not say them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tuner_nccl.h"

struct ncclComm { int ranks; };
typedef struct { int rounds, ranks, nodes, collective; size_t nbytes; } task;

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
    *count = comm->ranks;
    return comm->ranks < 0 ? ncclInvalidArgument : ncclSuccess;
}

static void print_number(int value) {
    if (value == INT_MIN) printf(" -");
    else printf(" %d", value);
}

static void ask(ncclComm_t comm, int collective, size_t nbytes) {
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER, untouched = NCCL_COLLCONFIG_INITIALIZER;
    const int found = tuner_nccl_config(comm, (enum tuner_nccl_collective)collective, nbytes, &config);
    printf("%d %s %d", found, config.algSelection ? config.algSelection : "-",
           config.forceAlgSelection);
    print_number(config.minCTAs);
    print_number(config.maxCTAs);
    printf("\n");
    config.algSelection = untouched.algSelection;
    config.forceAlgSelection = untouched.forceAlgSelection;
    config.maxCTAs = untouched.maxCTAs;
    if (memcmp(&config, &untouched, sizeof config) != 0) exit(3);
}

static void *work(void *given) {
    const task *of = given;
    const char *first = NULL;
    struct ncclComm own = {of->ranks};
    for (int i = 0; i < of->rounds; i++) {
        if (tuner_nccl_follow(&own, of->nodes) < 1) exit(4);
        for (int j = 0; j < 100; j++) {
            ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
            tuner_nccl_config(&own, (enum tuner_nccl_collective)of->collective, of->nbytes, &config);
            if (first == NULL) first = config.algSelection;
            if (config.algSelection == NULL || config.algSelection != first) exit(5);
        }
        tuner_nccl_forget(&own);
    }
    return (void *)first;
}

static void in_threads(int count, task of) {
    pthread_t threads[64];
    void *said = NULL, *first = NULL;
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, work, &of);
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], &said);
        if (first == NULL) first = said;
        if (said != first) exit(5);
    }
    printf("%s\n", (const char *)first);
}

static void time_one(ncclComm_t comm, int collective, size_t spread) {
    enum { CALLS = 200000 };
    struct timespec begin, finish;
    uint64_t random = 88172645463325252u;
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < CALLS; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        tuner_nccl_config(comm, (enum tuner_nccl_collective)collective, random % spread, &config);
    }
    clock_gettime(CLOCK_MONOTONIC, &finish);
    printf("%.2f\n", ((double)(finish.tv_sec - begin.tv_sec) * 1e9 +
                      (double)(finish.tv_nsec - begin.tv_nsec)) / CALLS);
}

int main(void) {
    static struct ncclComm communicators[16];
    char line[256];
    while (fgets(line, sizeof line, stdin) != NULL) {
        int number = 0, ranks, nodes, collective, threads, rounds;
        size_t nbytes;
        if (sscanf(line, "follow %d %d %d", &number, &ranks, &nodes) == 3) {
            communicators[number].ranks = ranks;
            printf("%d\n", tuner_nccl_follow(&communicators[number], nodes));
        } else if (sscanf(line, "ask %d %d %zu", &number, &collective, &nbytes) == 3) {
            ask(&communicators[number], collective, nbytes);
        } else if (sscanf(line, "forget %d", &number) == 1) {
            tuner_nccl_forget(&communicators[number]);
        } else if (sscanf(line, "threads %d %d %d %d %d %zu", &threads, &rounds, &ranks, &nodes,
                          &collective, &nbytes) == 6 && threads <= 64) {
            in_threads(threads, (task){rounds, ranks, nodes, collective, nbytes});
        } else if (sscanf(line, "time %d %d %zu", &number, &collective, &nbytes) == 3) {
            time_one(&communicators[number], collective, nbytes);
        } else {
            return 9;
        }
    }
    for (int i = 0; i < 16; i++) tuner_nccl_forget(&communicators[i]);
    return 0;
}
