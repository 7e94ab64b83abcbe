/*
 * Time MPI collectives as a plain program runs them.
 *
 *     mpirun -np 4 ./collective_times 0.02 allreduce:23168 bcast:4096 barrier:0
 *
 * The first argument is the time in seconds for each call and pattern. BYTES is the size of the
 * whole buffer: what a bcast, reduce or allreduce works on, what an allgather or gather collects,
 * what a scatter deals out. Numbers are floats, reductions are sums, the root is rank 0.
 *
 * Patterns: "barrier" has a barrier before every call and takes the time of each call; "row" has a
 * barrier before several calls in a row and takes their mean. "same" uses the same buffers each
 * time, "fresh" buffers that were not used for longer than the last-level cache remembers. A
 * sample is the time of the slowest rank, the printed time the median of the samples.
 *
 * The barrier consists of point-to-point messages, so that no tuning of MPI_Barrier changes it.
 *
 * Rank 0 prints JSON lines: first the time of a message between ranks 0 and 1, which tells where
 * they lie, then one line per call and pattern.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BCAST, ALLREDUCE, REDUCE, ALLGATHER, GATHER, SCATTER, BARRIER, COLLECTIVES };
static const char *const NAMES[] = {"bcast",  "allreduce", "reduce", "allgather",
                                    "gather", "scatter",   "barrier"};
enum { MAX_SAMPLES = 1 << 14, MIN_CHUNKS = 3, TAG = 1, PAGE = 4096 };

typedef struct {
    int collective;
    size_t bytes;          /* of the whole buffer */
    int count;             /* floats that are passed to MPI: whole buffer or one rank's block */
    size_t in, out;        /* bytes of this rank's buffers */
} Call;

typedef struct {
    float *start;
    size_t bytes, next;
} Pool;

static int rank, ranks;
static Pool inputs, outputs;
static double samples[MAX_SAMPLES], slowest[MAX_SAMPLES];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_size);
    return values[n / 2];
}

/* Dissemination barrier. */
static void barrier(void) {
    for (int step = 1; step < ranks; step *= 2)
        MPI_Sendrecv(NULL, 0, MPI_BYTE, (rank + step) % ranks, TAG, NULL, 0, MPI_BYTE,
                     (rank - step + ranks) % ranks, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Return the sum over all ranks on rank 0, without a collective. */
static long sum_on_root(long value) {
    if (rank > 0) MPI_Send(&value, 1, MPI_LONG, 0, TAG, MPI_COMM_WORLD);
    for (int other = 1; rank == 0 && other < ranks; other++) {
        long theirs;
        MPI_Recv(&theirs, 1, MPI_LONG, other, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        value += theirs;
    }
    return value;
}

static void run(const Call *c, float *in, float *out) {
    switch (c->collective) {
    case BCAST: MPI_Bcast(in, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
    case ALLREDUCE: MPI_Allreduce(in, out, c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case REDUCE: MPI_Reduce(in, out, c->count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD); break;
    case ALLGATHER:
        MPI_Allgather(in, c->count, MPI_FLOAT, out, c->count, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case GATHER:
        MPI_Gather(in, c->count, MPI_FLOAT, out, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
    case SCATTER:
        MPI_Scatter(in, c->count, MPI_FLOAT, out, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
    case BARRIER: MPI_Barrier(MPI_COMM_WORLD); break;
    }
}

/* Read COLLECTIVE:BYTES; return whether it can be run on this number of ranks. */
static int parse(const char *word, Call *c) {
    const char *colon = strchr(word, ':');
    char *end;
    if (!colon) return 0;
    for (c->collective = 0; c->collective < COLLECTIVES; c->collective++)
        if (strlen(NAMES[c->collective]) == (size_t)(colon - word) &&
            !strncmp(word, NAMES[c->collective], (size_t)(colon - word)))
            break;
    c->bytes = strtoull(colon + 1, &end, 10);
    int blocks = c->collective == ALLGATHER || c->collective == GATHER || c->collective == SCATTER;
    size_t unit = sizeof(float) * (size_t)(blocks ? ranks : 1);
    if (c->collective == COLLECTIVES || *end || end == colon + 1 || c->bytes % unit ||
        c->bytes / unit > 0x7fffffff || !c->bytes != (c->collective == BARRIER))
        return 0;
    c->count = (int)(c->bytes / unit);
    size_t block = (size_t)c->count * sizeof(float);
    c->in = c->collective == SCATTER ? c->bytes : block;
    c->out = c->collective == ALLGATHER || c->collective == GATHER ? c->bytes : block;
    return 1;
}

static size_t last_level_cache(void) {
    long kib = 0;
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    if (f) {
        if (fscanf(f, "%ldK", &kib) != 1) kib = 0;
        fclose(f);
    }
    return kib > 0 ? (size_t)kib * 1024 : (size_t)32 << 20;
}

/* Fill with 1: sums of sums stay normal numbers, since outputs never become inputs. */
static void fill(float *values, size_t bytes) {
    for (size_t i = 0; i < bytes / sizeof(float); i++) values[i] = 1.0f;
}

static size_t stride(size_t bytes) {
    return (bytes + PAGE - 1) / PAGE * PAGE + 64; /* + 64: not always the same sets of a cache */
}

/* All pools of a node together take at most a quarter of its memory, or two buffers each. */
static void make_pool(Pool *p, size_t largest) {
    size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    size_t share = memory / 8 / (size_t)ranks, rotation = last_level_cache();
    p->bytes = 2 * stride(largest) + (rotation < share ? rotation : share);
    p->next = stride(largest);
    p->start = aligned_alloc(64, (p->bytes + 63) / 64 * 64);
    if (!p->start) {
        fprintf(stderr, "collective_times: not enough memory for %zu bytes\n", p->bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    fill(p->start, p->bytes);
}

static float *take(Pool *p, size_t bytes, int fresh) {
    if (!fresh) return p->start;
    if (p->next + bytes > p->bytes) p->next = 0;
    float *buffer = p->start + p->next / sizeof(float);
    p->next += stride(bytes);
    return buffer;
}

static float value(int of, size_t i) { return (float)((of + 1) * (int)(i % 7 + 1)); }

/* What element i of the result must be on this rank. */
static float expected(const Call *c, size_t i) {
    size_t block = (size_t)c->count;
    switch (c->collective) {
    case BCAST: return value(0, i);
    case ALLGATHER:
    case GATHER: return value((int)(i / block), i % block);
    case SCATTER: return value(0, (size_t)rank * block + i);
    default: return (float)(ranks * (ranks + 1) / 2 * (int)(i % 7 + 1));
    }
}

/* Run the call once on known numbers; return on rank 0 how many results of all ranks are wrong. */
static long wrong(const Call *c) {
    float *in = inputs.start, *out = outputs.start;
    float *result = c->collective == BCAST ? in : out;
    size_t n = (c->collective == BCAST ? c->in : c->out) / sizeof(float);
    if (rank > 0 && (c->collective == REDUCE || c->collective == GATHER)) n = 0;
    for (size_t i = 0; i < c->in / sizeof(float); i++) in[i] = value(rank, i);
    for (size_t i = 0; i < c->out / sizeof(float); i++) out[i] = -1.0f;
    run(c, in, out);
    long count = 0;
    for (size_t i = 0; i < n; i++) count += result[i] != expected(c, i);
    fill(in, c->in);
    return sum_on_root(count);
}

/* Take the samples of one chunk; return how many. */
static int chunk(const Call *c, int row, int fresh, int calls, double *times) {
    double begin = 0;
    for (int i = 0; i < calls; i++) {
        float *in = take(&inputs, c->in, fresh), *out = take(&outputs, c->out, fresh);
        if (!row || i == 0) {
            barrier();
            begin = now();
        }
        run(c, in, out);
        if (!row) times[i] = now() - begin;
    }
    if (row) times[0] = (now() - begin) / calls;
    return row ? 1 : calls;
}

static void measure(const Call *c, int row, int fresh, double seconds, long errors) {
    int calls = c->bytes <= 65536 ? 16 : 4, n = 0, chunks = 0, more;
    chunk(c, row, fresh, calls, samples); /* warm-up */
    double end = now() + seconds;
    do {
        n += chunk(c, row, fresh, calls, samples + n);
        more = n + calls <= MAX_SAMPLES && (++chunks < MIN_CHUNKS || now() < end);
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    } while (more);
    MPI_Reduce(samples, slowest, n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("{\"call\": \"%s:%zu\", \"pattern\": \"%s/%s\", \"seconds\": %.4e, "
               "\"samples\": %d, \"wrong\": %ld}\n", NAMES[c->collective], c->bytes,
               row ? "row" : "barrier", fresh ? "fresh" : "same", median(slowest, n), n,
               errors);
}

/* Return the time in ns of an empty message from rank 0 to rank 1, half a ping-pong. */
static double message_ns(void) {
    enum { TRIPS = 501 };
    double times[TRIPS];
    for (int i = 0; i < TRIPS; i++) {
        double begin = now();
        for (int turn = 0; turn < 2; turn++)
            if (turn == rank) MPI_Send(NULL, 0, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD);
            else MPI_Recv(NULL, 0, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        times[i] = (now() - begin) / 2;
    }
    return 1e9 * median(times, TRIPS);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    Call *calls = calloc((size_t)argc, sizeof *calls);
    size_t in = 0, out = 0;
    double seconds = argc > 2 ? atof(argv[1]) : 0;
    const char *bad = seconds > 0 && ranks > 1 ? NULL : "SECONDS, or the number of ranks";
    for (int i = 2; i < argc && !bad; i++) {
        if (!parse(argv[i], &calls[i])) bad = argv[i];
        if (calls[i].in > in) in = calls[i].in;
        if (calls[i].out > out) out = calls[i].out;
    }
    if (bad) {
        if (rank == 0) fprintf(stderr, "collective_times: cannot run %s on %d ranks\n", bad, ranks);
        MPI_Finalize();
        return 2;
    }
    make_pool(&inputs, in);
    make_pool(&outputs, out);
    double message = rank < 2 ? message_ns() : 0;
    if (rank == 0)
        printf("{\"ranks\": %d, \"message_ns\": %.1f, \"cache_bytes\": %zu}\n", ranks, message,
               last_level_cache());
    for (int i = 2; i < argc; i++) {
        long errors = wrong(&calls[i]);
        for (int pattern = 0; pattern < 4; pattern++)
            measure(&calls[i], pattern / 2, pattern % 2, seconds, errors);
    }
    MPI_Finalize();
    return 0;
}
