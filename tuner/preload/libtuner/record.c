/* The record of a run: which calls the program makes, how long they take, and how much of that is
 * waiting for other ranks.
 *
 * Calls are counted by kind. With TUNER_WAITING it is also measured for some calls, the same on all
 * ranks, how long a rank waits for the last one to arrive: after these the ranks exchange when they
 * arrived, by clocks whose differences were measured when MPI began. */

#include "tuner.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_KINDS = 4096,     /* of calls; those of further kinds are counted together */
    SAMPLE_INTERVAL = 64, /* calls of a communicator from one sample to the next, in the mean */
    CLOCK_TRIALS = 20,
    N_LAST = 64, /* calls of a kind whose median is taken */
};

bool is_recording;
static bool samples; /* whether waiting is measured */
static struct kind kinds[MAX_KINDS];
static float last_seconds[MAX_KINDS][N_LAST]; /* of the last calls of each kind */
static size_t n_kinds;
static uint64_t n_others;
static double began, clock_offset; /* of the clock of rank 0, less that of this rank */
static MPI_Comm channel;           /* for messages of ours */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static bool is_same(const struct kind *one, const struct kind *other)
{
    return one->nbytes == other->nbytes && one->collective == other->collective
           && one->commutes == other->commutes && one->choice == other->choice
           && memcmp(&one->layout, &other->layout, sizeof one->layout) == 0;
}

/* Return the entry for a kind of calls in a table of MAX_KINDS; NULL where there are too many. */
static struct kind *find_kind(struct kind *entries, size_t *number, const struct kind *wanted)
{
    uint64_t hash = (uint64_t)wanted->nbytes * 31 + (uint64_t)wanted->collective * 7
                    + (uint64_t)wanted->commutes + (uint64_t)wanted->layout.nodes * 131
                    + (uint64_t)wanted->choice * 65537
                    + (uint64_t)wanted->layout.ppn * 1031 + (uint64_t)wanted->layout.is_cyclic;
    for (size_t at = hash * 0x9e3779b97f4a7c15u >> 52;; at++) { /* half of them stay free */
        struct kind *known = &entries[at % MAX_KINDS];
        if (known->calls && is_same(known, wanted))
            return known;
        if (known->calls == 0) {
            if (*number == MAX_KINDS / 2)
                return NULL;
            ++*number;
            *known = *wanted;
            return known;
        }
    }
}

/* Return whether a communicator's call is a sample: some of the first ones, then at irregular
 * intervals, since programs repeat sequences of calls. */
static bool is_sample(const struct communicator *known)
{
    const uint64_t number = known->recorded;
    return number <= 4 || number * 0x9e3779b97f4a7c15u >> 32 < (1ull << 32) / SAMPLE_INTERVAL;
}

/* Return when the last rank arrived, by this rank's clock; collective. */
static double last_arrival(const struct communicator *known, double arrived)
{
    double last = arrived + clock_offset;
    library_allreduce(&last, 1, MPI_DOUBLE, MPI_MAX, atomic_load(&known->handle));
    return last - clock_offset;
}

/* Return the size of a call in the record. Those of ragged calls, which may all differ, are rounded
 * up to a power of two. */
static int64_t recorded_size(const struct call *call, int64_t nbytes)
{
    int64_t size = 1;
    if (!collectives[call->collective].is_ragged || nbytes <= 0)
        return nbytes;
    while (size < nbytes && size < INT64_MAX / 2)
        size *= 2;
    return size;
}

/* Make a call, and record it. */
int record(struct call *call, struct communicator *known, const struct rule *rule, int64_t nbytes)
{
    const bool is_followed = rule && rule->choice != LEFT_CHOICE;
    struct kind wanted = {.nbytes = recorded_size(call, nbytes), .layout = known->layout,
                          .collective = call->collective, .least = 1e300};
    wanted.commutes = collectives[call->collective].reduces && is_commutative(call->op);
    known->recorded++;
    const double arrived = now();
    int code = is_followed ? follow(call, known, rule, nbytes) : call->library(call);
    const double seconds = now() - arrived;
    double waiting = -1.0;
    wanted.choice = call->choice;
    if (samples && is_sample(known)) { /* also where this rank's call has failed */
        const double last = last_arrival(known, arrived);
        waiting = last < arrived ? 0.0 : last - arrived > seconds ? seconds : last - arrived;
    }
    pthread_mutex_lock(&lock);
    struct kind *kind = find_kind(kinds, &n_kinds, &wanted);
    if (kind) {
        last_seconds[kind - kinds][kind->calls++ % N_LAST] = (float)seconds;
        kind->seconds += seconds;
        kind->least = seconds < kind->least ? seconds : kind->least;
        kind->most = seconds > kind->most ? seconds : kind->most;
        if (waiting >= 0.0) {
            kind->samples++;
            kind->sampled += seconds;
            kind->waiting += waiting;
        }
    } else
        n_others++;
    pthread_mutex_unlock(&lock);
    return code;
}

/* Measure by how much the clock of rank 0 is ahead of this one's, from the shortest of some
 * exchanges (Cristian, 1989); collective over MPI_COMM_WORLD. */
static void compare_clocks(void)
{
    int rank, size;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int other = 1; other < size; other++) {
        double least = 1e300;
        for (int trial = 0; trial < CLOCK_TRIALS && (rank == 0 || rank == other); trial++) {
            double there = 0.0, sent = now();
            if (rank == 0) {
                PMPI_Recv(&there, 1, MPI_DOUBLE, other, 0, channel,
                          MPI_STATUS_IGNORE);
                there = now();
                PMPI_Send(&there, 1, MPI_DOUBLE, other, 0, channel);
                continue;
            }
            PMPI_Send(&sent, 1, MPI_DOUBLE, 0, 0, channel);
            PMPI_Recv(&there, 1, MPI_DOUBLE, 0, 0, channel, MPI_STATUS_IGNORE);
            const double received = now();
            if (received - sent < least) {
                least = received - sent;
                clock_offset = there - (sent + received) / 2.0;
            }
        }
    }
}

/* Record the calls of all communicators from now on, if all ranks are to; collective over
 * MPI_COMM_WORLD. Calls that should follow a table are not recorded where they cannot. */
bool start_recording(bool has_table)
{
    const char *path = getenv("TUNER_RECORD"), *wanted_table = getenv("TUNER_FLAT_TABLE");
    MPI_Comm parent;
    PMPI_Comm_get_parent(&parent); /* the file is that of the program which spawned this one */
    int wanted = path && *path && parent == MPI_COMM_NULL
                 && (has_table || !wanted_table || !*wanted_table);
    if (getenv("TUNER_WAITING"))
        wanted *= 2;
    if (library_allreduce(&wanted, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD) || !wanted)
        return false;
    PMPI_Comm_split(MPI_COMM_WORLD, 0, 0, &channel);
    PMPI_Comm_set_errhandler(channel, MPI_ERRORS_RETURN);
    samples = wanted > 1;
    if (samples)
        compare_clocks();
    is_recording = true;
    began = now();
    return true;
}

/* Return whole nanoseconds: how fractions are printed depends on the program's locale. */
static long long nanoseconds(double seconds)
{
    return (long long)(seconds * 1e9);
}

static void print_kind(FILE *file, int rank, const struct kind *kind)
{
    fprintf(file, "%d %s %d %d %d %d %u %lld %llu %lld %lld %lld %lld %llu %lld %lld\n", rank,
            collectives[kind->collective].name, kind->layout.nodes, kind->layout.ppn,
            kind->layout.is_cyclic, kind->commutes, kind->choice, (long long)kind->nbytes,
            (unsigned long long)kind->calls, nanoseconds(kind->seconds),
            nanoseconds(kind->least), nanoseconds(kind->median), nanoseconds(kind->most),
            (unsigned long long)kind->samples, nanoseconds(kind->sampled),
            nanoseconds(kind->waiting));
}

static int compare_seconds(const void *one, const void *other)
{
    const float a = *(const float *)one, b = *(const float *)other;
    return (a > b) - (a < b);
}

/* Make a list of the kinds of calls on this rank, with their medians; return its length. */
static uint64_t list_kinds(void)
{
    uint64_t n = 0;
    for (size_t i = 0; i < MAX_KINDS; i++) {
        if (kinds[i].calls == 0)
            continue;
        const size_t n_last = kinds[i].calls < N_LAST ? kinds[i].calls : N_LAST;
        float *last = last_seconds[i];
        qsort(last, n_last, sizeof *last, compare_seconds);
        kinds[i].median = (last[(n_last - 1) / 2] + last[n_last / 2]) / 2.0;
        kinds[n++] = kinds[i];
    }
    return n;
}

/* Add the time of calls to that of the same kind. */
static void add_kind(struct kind *entries, size_t *number, const struct kind *kind)
{
    struct kind key = *kind;
    key.calls = 0;
    key.seconds = 0.0;
    struct kind *sum = find_kind(entries, number, &key);
    if (sum) {
        sum->calls += kind->calls;
        sum->seconds += kind->seconds;
    }
}

struct summary {
    double seconds;
    uint64_t n_kinds, n_others;
};

/* Write the calls of each rank, which are received one rank after the other, on rank 0.
 *
 * sums    table for the calls of all ranks together */
static void write_ranks(FILE *file, struct summary summary, struct kind *sums)
{
    int size;
    size_t n_sums = 0;
    PMPI_Comm_size(channel, &size);
    for (int from = 0; from < size; from++) {
        if (from) {
            PMPI_Recv(&summary, sizeof summary, MPI_BYTE, from, 0, channel, MPI_STATUS_IGNORE);
            PMPI_Recv(kinds, sizeof kinds, MPI_BYTE, from, 0, channel, MPI_STATUS_IGNORE);
        }
        if (!file)
            continue;
        fprintf(file, "%d rank %lld %llu\n", from, nanoseconds(summary.seconds),
                (unsigned long long)summary.n_others);
        for (uint64_t i = 0; i < summary.n_kinds; i++) {
            print_kind(file, from, &kinds[i]);
            if (sums)
                add_kind(sums, &n_sums, &kinds[i]);
        }
    }
}

/* Write the kinds of calls of each rank into the file TUNER_RECORD; collective over
 * MPI_COMM_WORLD. */
void write_record(void)
{
    int rank;
    struct summary summary = {now() - began, 0, n_others};
    is_recording = false;
    summary.n_kinds = list_kinds();
    PMPI_Comm_rank(channel, &rank);
    if (rank) {
        PMPI_Send(&summary, sizeof summary, MPI_BYTE, 0, 0, channel);
        PMPI_Send(kinds, (int)(summary.n_kinds * sizeof *kinds), MPI_BYTE, 0, 0, channel);
        try_guidelines(NULL, NULL, 0, channel);
    } else {
        struct kind *sums = calloc(MAX_KINDS, sizeof *sums);
        if (access(getenv("TUNER_RECORD"), F_OK) == 0)
            say("the command runs several MPI programs: the record is that of the last one");
        FILE *file = fopen(getenv("TUNER_RECORD"), "w");
        write_ranks(file, summary, sums);
        if (!file || fputs("0 complete\n", file) == EOF || fflush(file))
            say("record left out: %s cannot be written", getenv("TUNER_RECORD"));
        try_guidelines(file, sums, file && sums ? MAX_KINDS : 0, channel);
        if (file && fclose(file))
            say("%s is incomplete: it cannot be written", getenv("TUNER_RECORD"));
        free(sums);
    }
    PMPI_Comm_free(&channel);
}
