/* Calls a tuner plugin as NCCL does, by commands on standard input.
 *
 *   nccl_caller LIBRARY
 *
 *   open VERSION RANKS NODES FEWEST MOST
 *       prints the communicator's number, and `context` or `do_nothing`
 *   ask NUMBER COLLECTIVE BYTES ALGORITHMS IGNORED
 *       prints algorithm, protocol and channels, -1 for untouched; IGNORED: entries of the cost
 *       table that are -1, a bit each
 *   few NUMBER COLLECTIVE BYTES
 *       the same, of an NCCL that has the protocol LL alone
 *   close NUMBER
 *   threads COUNT ROUNDS VERSION RANKS NODES COLLECTIVE BYTES
 *       prints the same as `run_calls`, which all threads got
 *   time NUMBER COLLECTIVE SPREAD
 *       prints the nanoseconds of a decision, over sizes below SPREAD bytes; from version 5 on
 *
 * Messages are printed as `log LEVEL TEXT`. FEWEST and MOST are ranks per NVLink domain; 0 0: NCCL
 * says nothing of domains. The structures are those of src/include/plugin/tuner/tuner_v2.h to
 * tuner_v7.h of NVIDIA/nccl, in this file's own words. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum { ncclSuccess = 0 } result;
typedef void (*logger)(int, unsigned long, const char *, int, const char *, ...);
typedef struct { int nNvlDomains, minRanks, maxRanks; } domains;
typedef struct { /* of version 7; those of 5 and 6 end with the fourth generation of GPUs */
    double baseLatencies[7][3], hwLatencies[3][7][3], bandwidths[5][5][3];
} constants;

typedef result (*old_init)(size_t, size_t, logger, void **);
typedef result (*new_init)(void **, uint64_t, size_t, size_t, logger, domains *, constants *);
typedef result (*end)(void *);
typedef struct {
    const char *name;
    old_init init;
    result (*getCollInfo)(void *, int, size_t, int, int, int, int *, int *, int *);
    end destroy;
} v2;
typedef struct {
    const char *name;
    old_init init;
    result (*getCollInfo)(void *, int, size_t, int, float **, int, int, int *);
    end destroy;
} v3;
typedef result (*decide)(void *, int, size_t, int, float **, int, int, int, int *);
typedef struct { const char *name; old_init init; decide getCollInfo; end destroy; } v4;
typedef struct { const char *name; new_init init; decide getCollInfo; end finalize; } v5;
typedef struct {
    const char *name;
    new_init init;
    decide getCollInfo;
    end finalize;
    result (*getChunkSize)(void *, int, size_t, int, int, int, size_t *);
} v6; /* and v7, whose constants alone are others */

enum { ALGORITHMS = 7, PROTOCOLS = 3, UNTOUCHED = 12345, MOST = 4096 };
typedef struct { int version; void *context; } communicator;
typedef struct { int algorithm, protocol, channels; } answer;

static void *library;
static communicator communicators[MOST];
static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;

static void log_message(int level, unsigned long flags, const char *file, int line,
                        const char *format, ...) {
    va_list values;
    (void)flags, (void)file, (void)line;
    pthread_mutex_lock(&printing);
    printf("log %d ", level);
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    printf("\n");
    pthread_mutex_unlock(&printing);
}

static void *symbol(int version) {
    char name[32];
    snprintf(name, sizeof name, "ncclTunerPlugin_v%d", version);
    void *found = dlsym(library, name);
    if (found == NULL) exit(3);
    return found;
}

static communicator open_one(int version, size_t ranks, size_t nodes, int fewest, int most) {
    communicator made = {version, (void *)1};
    domains shape = {(int)nodes, fewest, most};
    constants numbers;
    memset(&numbers, 0x55, sizeof numbers);
    result done;
    if (version == 2) done = ((v2 *)symbol(2))->init(ranks, nodes, log_message, &made.context);
    else if (version == 3) done = ((v3 *)symbol(3))->init(ranks, nodes, log_message, &made.context);
    else if (version == 4) done = ((v4 *)symbol(4))->init(ranks, nodes, log_message, &made.context);
    else {
        new_init init = ((v5 *)symbol(version))->init; /* v6 begins as v5 */
        done = init(&made.context, 77, ranks, nodes, log_message, fewest ? &shape : NULL, &numbers);
    }
    constants before;
    memset(&before, 0x55, sizeof before);
    if (done != ncclSuccess || memcmp(&before, &numbers, sizeof before)) exit(4);
    if (version > 5 && ((v6 *)symbol(version))->getChunkSize != NULL) exit(4);
    return made;
}

static answer ask_one(communicator of, int collective, size_t bytes, int algorithms, int protocols,
                      unsigned ignored) {
    answer said = {-1, -1, UNTOUCHED};
    float costs[ALGORITHMS * PROTOCOLS], before[ALGORITHMS * PROTOCOLS];
    int changed = 0;
    result done;
    for (int i = 0; i < ALGORITHMS * PROTOCOLS; i++)
        before[i] = costs[i] = ignored >> i & 1 ? -1.0f : (float)(i + 1);
    if (of.version == 2) {
        done = ((v2 *)symbol(2))->getCollInfo(of.context, collective, bytes, 1, 1, 1,
                                              &said.algorithm, &said.protocol, &said.channels);
    } else if (of.version == 3) {
        done = ((v3 *)symbol(3))->getCollInfo(of.context, collective, bytes, 1, (float **)costs,
                                              algorithms, protocols, &said.channels);
    } else {
        decide get = of.version == 4 ? ((v4 *)symbol(4))->getCollInfo
                                     : ((v5 *)symbol(of.version))->getCollInfo;
        done = get(of.context, collective, bytes, 1, (float **)costs, algorithms, protocols, 0,
                   &said.channels);
    }
    if (done != ncclSuccess) exit(5);
    for (int i = 0; of.version > 2 && i < ALGORITHMS * PROTOCOLS; i++)
        if (costs[i] != before[i]) {
            if (++changed > 1 || costs[i] != 0.0f || before[i] < 0) exit(6);
            if (i >= algorithms * protocols) exit(6);
            said.algorithm = i / protocols;
            said.protocol = i % protocols;
        }
    if (said.channels == UNTOUCHED) said.channels = -1;
    else if (said.algorithm < 0) exit(6);
    return said;
}

static void close_one(communicator *closed) {
    end ending = closed->version == 2   ? ((v2 *)symbol(2))->destroy
                 : closed->version == 3 ? ((v3 *)symbol(3))->destroy
                 : closed->version == 4 ? ((v4 *)symbol(4))->destroy
                                        : ((v5 *)symbol(closed->version))->finalize;
    if (ending(closed->context) != ncclSuccess) exit(7);
}

typedef struct { int rounds, version, collective; size_t ranks, nodes, bytes; } task;

static void *work(void *given) {
    const task *of = given;
    answer *first = malloc(sizeof *first);
    for (int i = 0; i < of->rounds; i++) {
        communicator own = open_one(of->version, of->ranks, of->nodes, 0, 0);
        communicator other = open_one(of->version, of->ranks + 1, of->nodes, 0, 0);
        for (int j = 0; j < 100; j++) {
            answer said = ask_one(own, of->collective, of->bytes, ALGORITHMS, PROTOCOLS, 0);
            answer nothing = ask_one(other, of->collective, of->bytes, ALGORITHMS, PROTOCOLS, 0);
            if (i + j == 0) *first = said;
            if (memcmp(first, &said, sizeof said) || nothing.algorithm != -1) exit(8);
        }
        close_one(&own);
        close_one(&other);
    }
    return first;
}

static void in_threads(int count, task of) {
    pthread_t threads[64];
    answer *said = NULL, *first = NULL;
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, work, &of);
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], (void **)&said);
        if (first == NULL) first = said;
        else {
            if (memcmp(first, said, sizeof *said)) exit(8);
            free(said);
        }
    }
    printf("%d %d %d\n", first->algorithm, first->protocol, first->channels);
    free(first);
}

static void time_one(communicator of, int collective, size_t spread) {
    enum { CALLS = 200000 };
    float costs[ALGORITHMS][PROTOCOLS] = {{0}};
    struct timespec begin, finish;
    uint64_t random = 88172645463325252u;
    int channels = 0;
    decide get = ((v5 *)symbol(of.version))->getCollInfo;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < CALLS; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        get(of.context, collective, random % spread, 1, (float **)costs, ALGORITHMS, PROTOCOLS, 0,
            &channels);
    }
    clock_gettime(CLOCK_MONOTONIC, &finish);
    printf("%.2f\n", ((double)(finish.tv_sec - begin.tv_sec) * 1e9 +
                      (double)(finish.tv_nsec - begin.tv_nsec)) / CALLS);
}

int main(int count, char **words) {
    char line[256];
    int number = 0, opened = 0;
    library = count == 2 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) return 2;
    while (fgets(line, sizeof line, stdin) != NULL) {
        int version, collective, algorithms, fewest, most, threads, rounds;
        size_t ranks, nodes, bytes;
        unsigned ignored;
        if (sscanf(line, "open %d %zu %zu %d %d", &version, &ranks, &nodes, &fewest, &most) == 5 &&
            opened < MOST) {
            communicators[opened] = open_one(version, ranks, nodes, fewest, most);
            printf("%d %s\n", opened, communicators[opened].context ? "context" : "nothing");
            opened++;
        } else if (sscanf(line, "ask %d %d %zu %d %x", &number, &collective, &bytes, &algorithms,
                          &ignored) == 5 && number < opened && algorithms <= ALGORITHMS) {
            answer said = ask_one(communicators[number], collective, bytes, algorithms, PROTOCOLS,
                                  ignored);
            printf("%d %d %d\n", said.algorithm, said.protocol, said.channels);
        } else if (sscanf(line, "few %d %d %zu", &number, &collective, &bytes) == 3 &&
                   number < opened) {
            answer said = ask_one(communicators[number], collective, bytes, ALGORITHMS, 1, 0);
            printf("%d %d %d\n", said.algorithm, said.protocol, said.channels);
        } else if (sscanf(line, "close %d", &number) == 1 && number < opened) {
            close_one(&communicators[number]);
        } else if (sscanf(line, "threads %d %d %d %zu %zu %d %zu", &threads, &rounds, &version,
                          &ranks, &nodes, &collective, &bytes) == 7 && threads <= 64) {
            in_threads(threads, (task){rounds, version, collective, ranks, nodes, bytes});
        } else if (sscanf(line, "time %d %d %zu", &number, &collective, &bytes) == 3 &&
                   number < opened) {
            time_one(communicators[number], collective, bytes);
        } else {
            return 9;
        }
    }
    dlclose(library);
    return 0;
}
