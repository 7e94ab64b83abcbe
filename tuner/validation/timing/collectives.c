/* Time collectives as an application calls them, in turn with another launch of the same program.

     collectives TURN SIDE SECONDS CALLS [LEVEL]

   MPI starts with MPI_Init, or with MPI_Init_thread where LEVEL is funneled, serialized or multiple.
   CALLS is a file with a line "COLLECTIVE BYTES FIRST" for each call on MPI_COMM_WORLD; BYTES is the
   size of a whole buffer. Every call is timed under four conditions: after a barrier or several times
   in a row, on the same buffers or on others each time. SECONDS is the time for each call and
   condition.

   Two launches (SIDE 0 and 1) share the file TURN on every host and measure one after the other, call
   by call, so that changes of the machine meanwhile affect both alike. FIRST is the side that begins.
   The ranks of the waiting side sleep. Where they outnumber the cores that they may use, they wake up
   evenly spread over these, in a new grouping each time: the ranks of a running program are spread
   evenly, but ranks that wake up at the same time are not, and the kernel would need longer than a
   turn to balance them. With TURN "-" the program runs by itself.

   Rank 0 prints "library: " and its version, then a line "CALL CONDITION SECONDS" for each measurement:
   the mean of the middle half of the calls, each with the time of the slowest rank. A call that gives
   a wrong result has an additional line "CALL wrong 0". */

#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { IN_A_ROW = 8, FEWEST = 6, FEWEST_ROWS = 2, MOST = 4000, WARM_UP = 8 };
enum { PAGE = 4096, LINE = 64 };
static const size_t MOST_FRESH = 64 << 20; /* bytes */
static const struct timespec LATE = {0, 1000000}; /* by which rank 0 is late, to try a barrier */
static const double PATIENCE = 120.0; /* how long a launch waits for its turn, seconds */

struct call {
    const struct collective *of;
    size_t nbytes;
    int first;
};

struct buffers {
    char *send, *receive;
    size_t stride, room; /* bytes from one buffer to the next, and in total */
    size_t next;         /* offset of the next fresh buffer; it is not reset between calls, since
                            recently used buffers are still in a cache */
};

static int rank, ranks;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void give_up(const char *why)
{
    fprintf(stderr, "collectives: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

/* Turns */

/* Shared by both launches on a host; NULL without another launch. */
static struct turns {
    int number;   /* number of the current measurement */
    int stop;     /* not 0: both launches end */
    int ready[2]; /* whether each launch has started */
} *turns;
static int leads_on_host; /* whether this rank ends the turns of its launch on its host */
static cpu_set_t allowed; /* cores that this rank may use */
static int sharing;       /* number of ranks on this host that may use the same cores */
static int place;         /* position of this rank among them, from 0 on */
static uint64_t seed;     /* the same in both launches */
static int on_host;       /* number of ranks of this launch on this host */

static void sleep_while(const int *value, int seen)
{
    const struct timespec look = {0, 500 * 1000 * 1000};
    syscall(SYS_futex, value, FUTEX_WAIT, seen, &look, NULL, 0);
}

static void increment(int *value)
{
    __atomic_add_fetch(value, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void find_sharing(MPI_Comm host, int local)
{
    cpu_set_t *all = calloc((size_t)on_host, sizeof *all);
    if (!all)
        give_up("out of memory");
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        CPU_ZERO(&allowed); /* more cores than fit into a set */
    MPI_Allgather(&allowed, sizeof allowed, MPI_BYTE, all, sizeof allowed, MPI_BYTE, host);
    for (int i = 0; i < on_host; i++)
        if (CPU_EQUAL(&allowed, &all[i])) {
            place += i < local;
            sharing++;
        }
    free(all);
}

/* Return the next number of the generator SplitMix64. */
static uint64_t drawn(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Return the position of this rank after a shuffle (Fisher and Yates), the same one on all ranks of
   both launches. */
static int shuffled(int turn)
{
    uint64_t state = seed + (uint64_t)turn;
    int mine = place;
    for (int last = sharing - 1; last > 0; last--) {
        const int other = (int)(drawn(&state) % (uint64_t)(last + 1));
        mine = mine == last ? other : mine == other ? last : mine;
    }
    return mine;
}

/* Move this rank to its core of this turn; afterwards it may use all its cores as before. */
static void move(int turn)
{
    const int cores = CPU_COUNT(&allowed);
    if (cores == 0 || sharing <= cores)
        return;
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0, left = shuffled(turn) % cores; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && left-- == 0)
            CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    sched_setaffinity(0, sizeof allowed, &allowed);
}

static void wait_until(int *value, int number)
{
    const double end = now() + PATIENCE;
    for (int seen; (seen = __atomic_load_n(value, __ATOMIC_ACQUIRE)) != number;) {
        if (__atomic_load_n(&turns->stop, __ATOMIC_ACQUIRE) || now() > end)
            give_up("the other launch has ended");
        sleep_while(value, seen);
    }
}

static void find_neighbours(void)
{
    MPI_Comm host;
    int local;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &local);
    MPI_Comm_size(host, &on_host);
    leads_on_host = local == 0;
    find_sharing(host, local);
    MPI_Comm_free(&host);
}

static void open_turns(const char *path, int side)
{
    for (const char *letter = path; *letter; letter++)
        seed = seed * 31 + (unsigned char)*letter;
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof *turns) != 0)
        give_up("cannot open the file of turns");
    turns = mmap(NULL, sizeof *turns, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (turns == MAP_FAILED)
        give_up("cannot map the file of turns");
    close(file);
    MPI_Barrier(MPI_COMM_WORLD);
    if (leads_on_host)
        increment(&turns->ready[side]);
    wait_until(&turns->ready[0], 1);
    wait_until(&turns->ready[1], 1);
}

static void wait_for_turn(int number)
{
    if (!turns)
        return;
    wait_until(&turns->number, number);
    move(number / 2); /* the same on both sides */
}

/* Wait for all ranks by messages alone: the library's file may name algorithms for MPI_Barrier. */
static void meet(void)
{
    for (int distance = 1; distance < ranks; distance *= 2)
        MPI_Sendrecv(NULL, 0, MPI_BYTE, (rank + distance) % ranks, 0, NULL, 0, MPI_BYTE,
            (rank - distance + ranks) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void end_turn(void)
{
    meet();
    if (turns && leads_on_host)
        increment(&turns->number);
}

/* Calls */

enum { SOURCE_STEP = 31 }; /* between what ranks send to all others: no block is another's */

/* What ranks hold before and after a call, as in tuner/core/collective.py. */
enum held { WHOLE, WHOLE_AT_ROOT, BLOCK, FOR_EACH, FROM_EACH, ARRIVAL };

struct collective {
    const char *name;
    enum held before, after;
    int reduces;
    void (*call)(const float *send, float *receive, int count, int share);
};

static void allreduce(const float *send, float *receive, int count, int share)
{
    (void)share;
    MPI_Allreduce(send, receive, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void bcast(const float *send, float *receive, int count, int share)
{
    (void)share;
    MPI_Bcast(rank ? receive : (float *)send, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void reduce(const float *send, float *receive, int count, int share)
{
    (void)share;
    MPI_Reduce(send, receive, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void allgather(const float *send, float *receive, int count, int share)
{
    (void)count;
    MPI_Allgather(send, share, MPI_FLOAT, receive, share, MPI_FLOAT, MPI_COMM_WORLD);
}

static void gather(const float *send, float *receive, int count, int share)
{
    (void)count;
    MPI_Gather(send, share, MPI_FLOAT, receive, share, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void scatter(const float *send, float *receive, int count, int share)
{
    (void)count;
    MPI_Scatter(send, share, MPI_FLOAT, receive, share, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void reduce_scatter(const float *send, float *receive, int count, int share)
{
    (void)count;
    MPI_Reduce_scatter_block(send, receive, share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void alltoall(const float *send, float *receive, int count, int share)
{
    (void)count;
    MPI_Alltoall(send, share, MPI_FLOAT, receive, share, MPI_FLOAT, MPI_COMM_WORLD);
}

/* Return equal counts for all ranks, followed by the places of their blocks. They are allocated
   once, as the bytes of all calls of a run are the same. */
static const int *equal_counts(int share)
{
    static int *counts, last = -1;
    if (!counts)
        counts = malloc(2 * (size_t)ranks * sizeof *counts);
    for (int i = 0; share != last && i < ranks; i++) {
        counts[i] = share;
        counts[ranks + i] = i * share;
    }
    last = share;
    return counts;
}

static void allgatherv(const float *send, float *receive, int count, int share)
{
    const int *counts = equal_counts(share);
    (void)count;
    MPI_Allgatherv(send, share, MPI_FLOAT, receive, counts, counts + ranks, MPI_FLOAT,
        MPI_COMM_WORLD);
}

static void alltoallv(const float *send, float *receive, int count, int share)
{
    const int *counts = equal_counts(share), *places = counts + ranks;
    (void)count;
    MPI_Alltoallv(send, counts, places, MPI_FLOAT, receive, counts, places, MPI_FLOAT,
        MPI_COMM_WORLD);
}

static void barrier(const float *send, float *receive, int count, int share)
{
    (void)send, (void)receive, (void)count, (void)share;
    MPI_Barrier(MPI_COMM_WORLD);
}

static const struct collective collectives[] = {
    {"bcast", WHOLE_AT_ROOT, WHOLE, 0, bcast},
    {"reduce", WHOLE, WHOLE_AT_ROOT, 1, reduce},
    {"allreduce", WHOLE, WHOLE, 1, allreduce},
    {"reduce_scatter", WHOLE, BLOCK, 1, reduce_scatter},
    {"allgather", BLOCK, WHOLE, 0, allgather},
    {"allgatherv", BLOCK, WHOLE, 0, allgatherv},
    {"gather", BLOCK, WHOLE_AT_ROOT, 0, gather},
    {"scatter", WHOLE_AT_ROOT, BLOCK, 0, scatter},
    {"alltoall", FOR_EACH, FROM_EACH, 0, alltoall},
    {"alltoallv", FOR_EACH, FROM_EACH, 0, alltoallv},
    {"barrier", ARRIVAL, ARRIVAL, 0, barrier},
};

static const struct collective *find_collective(const char *name)
{
    for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++)
        if (!strcmp(name, collectives[i].name))
            return &collectives[i];
    give_up("unknown collective");
    return NULL;
}

static void perform(const struct call *call, char *send, char *receive)
{
    const int count = (int)(call->nbytes / sizeof(float));
    call->of->call((float *)send, (float *)receive, count, count / ranks);
}

/* Return whether this rank leaves a call without data only after rank 0 has entered it, LATE seconds
   after it has heard of all others. */
static int waits_for_root(const struct call *call)
{
    if (rank == 0) {
        for (int other = 1; other < ranks; other++)
            MPI_Recv(NULL, 0, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        nanosleep(&LATE, NULL);
        perform(call, NULL, NULL);
        return 1;
    }
    const double begin = now();
    MPI_Send(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    perform(call, NULL, NULL);
    return now() - begin >= 1e-9 * (double)LATE.tv_nsec;
}

static int is_right(const struct call *call, float *send, float *receive)
{
    const struct collective *of = call->of;
    if (of->after == ARRIVAL)
        return waits_for_root(call);
    const int count = (int)(call->nbytes / sizeof(float)), share = count / ranks;
    const int given = of->before == BLOCK ? rank * share : 0; /* index of the first element */
    const int taken = of->after == BLOCK ? rank * share : 0;
    const int exchanges = of->before == FOR_EACH;
    const int whole = of->before == BLOCK || exchanges ? share * ranks : count;
    for (int i = 0; i < count; i++) {
        const int plain = (given + i + (exchanges ? SOURCE_STEP * rank : 0)) % 1009;
        send[i] = (float)(plain + (of->reduces ? rank : 0));
        receive[i] = -1.0f;
    }
    perform(call, (char *)send, (char *)receive);
    const int one_buffer = of->before == WHOLE_AT_ROOT && of->after == WHOLE;
    if (of->after == WHOLE_AT_ROOT ? rank != 0 : one_buffer && rank == 0)
        return 1; /* this rank receives nothing */
    int wrong = 0;
    for (int i = 0; i < (of->after == BLOCK ? share : whole); i++) {
        int sent = taken + i; /* the number of the element where it comes from */
        if (exchanges)
            sent = rank * share + i % share + SOURCE_STEP * (i / share);
        const int plain = sent % 1009;
        const float sum = (float)(plain * ranks + ranks * (ranks - 1) / 2);
        wrong |= receive[i] != (of->reduces ? sum : (float)plain);
    }
    return !wrong;
}

/* Timing */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle_half(double *times, int count)
{
    qsort(times, (size_t)count, sizeof *times, ascending);
    const int cut = count / 4;
    double sum = 0.0;
    for (int i = cut; i < count - cut; i++)
        sum += times[i];
    return sum / (count - 2 * cut);
}

static size_t fresh_buffer(struct buffers *given)
{
    const size_t at = given->next + given->stride > given->room ? 0 : given->next;
    given->next = at + given->stride;
    return at;
}

/* Return the seconds per call of `times` calls, one after the other. */
static double run(const struct call *call, struct buffers *given, int fresh, int times)
{
    const double begin = now();
    for (int i = 0; i < times; i++) {
        const size_t at = fresh ? fresh_buffer(given) : 0;
        perform(call, given->send + at, given->receive + at);
    }
    return (now() - begin) / times;
}

static double measure(
    const struct call *call, struct buffers *given, int fresh, int times, double seconds)
{
    run(call, given, fresh, 3);
    meet();
    double each = run(call, given, fresh, 4) * times;
    MPI_Allreduce(MPI_IN_PLACE, &each, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    const int fewest = times > 1 ? FEWEST_ROWS : FEWEST;
    int count = (int)(seconds / each);
    count = count < fewest ? fewest : count > MOST ? MOST : count;
    double taken[MOST];
    for (int i = 0; i < count; i++) {
        meet();
        taken[i] = run(call, given, fresh, times);
    }
    MPI_Allreduce(MPI_IN_PLACE, taken, count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return middle_half(taken, count);
}

/* Return the bytes from which fresh buffers are taken in turn: the size of the last-level cache, but
   at most MOST_FRESH, and in all ranks of both launches together an eighth of the memory. */
static size_t pool(void)
{
    long kib = 0;
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    if (file && fscanf(file, "%ldK", &kib) != 1)
        kib = 0;
    if (file)
        fclose(file);
    const size_t cache = kib > 0 ? (size_t)kib << 10 : (size_t)32 << 20;
    const size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    const size_t share = memory / 8 / 4 / (size_t)on_host; /* two pools for each rank */
    const size_t most = share < MOST_FRESH ? share : MOST_FRESH;
    return cache < most ? cache : most;
}

/* Return memory for `nbytes`-byte buffers; it is kept, and replaced only where more is needed. The
   stride is whole pages and a cache line, so that buffers do not fall into the same cache sets. */
static struct buffers *buffers_for(size_t nbytes)
{
    static struct buffers kept;
    static size_t least;
    least = least ? least : pool();
    kept.stride = (nbytes + PAGE - 1) / PAGE * PAGE + LINE;
    const size_t room = kept.stride * 4 > least ? kept.stride * 4 : least;
    if (room > kept.room) {
        free(kept.send);
        free(kept.receive);
        kept.room = (room + PAGE - 1) / PAGE * PAGE;
        kept.send = aligned_alloc(PAGE, kept.room);
        kept.receive = aligned_alloc(PAGE, kept.room);
        if (!kept.send || !kept.receive)
            give_up("out of memory");
        memset(kept.send, 0, kept.room);
        memset(kept.receive, 0, kept.room);
    }
    return &kept;
}

static void time_call(int number, const struct call *call, int side, double seconds)
{
    static const char *const names[] = {"barrier reused", "barrier fresh", "row reused", "row fresh"};
    for (int condition = 0; condition < 4; condition++) {
        const int step = 2 * (4 * number + condition) + (side != call->first);
        wait_for_turn(step);
        struct buffers *given = buffers_for(call->nbytes);
        int right = 1;
        if (condition == 0) {
            for (int i = 0; i < WARM_UP; i++)
                perform(call, given->send, given->receive);
            right = is_right(call, (float *)given->send, (float *)given->receive);
        }
        MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        const int times = condition < 2 ? 1 : IN_A_ROW;
        const double taken = measure(call, given, condition % 2, times, seconds);
        if (rank == 0 && !right)
            printf("%d wrong 0\n", number);
        if (rank == 0)
            printf("%d %s %.9g\n", number, names[condition], taken);
        fflush(stdout);
        end_turn();
    }
}

static void time_calls(FILE *calls, int side, double seconds)
{
    struct call call;
    char name[32];
    int number = 0;
    for (; fscanf(calls, "%31s %zu %d", name, &call.nbytes, &call.first) == 3; number++) {
        call.of = find_collective(name);
        time_call(number, &call, side, seconds);
    }
    wait_for_turn(2 * 4 * number); /* do not end while the other launch measures */
}

/* Initialise MPI at the thread level in the arguments. */
static void start(int argc, char **argv)
{
    static const struct { const char *name; int level; } levels[] = {
        {"funneled", MPI_THREAD_FUNNELED},
        {"serialized", MPI_THREAD_SERIALIZED},
        {"multiple", MPI_THREAD_MULTIPLE},
    };
    for (size_t i = 0; argc > 5 && i < sizeof levels / sizeof *levels; i++) {
        int provided;
        if (!strcmp(argv[5], levels[i].name)) {
            MPI_Init_thread(&argc, &argv, levels[i].level, &provided);
            return;
        }
    }
    MPI_Init(&argc, &argv);
}

int main(int argc, char **argv)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    if (argc < 5) {
        fputs("usage: collectives TURN SIDE SECONDS CALLS [LEVEL]\n", stderr);
        return 2;
    }
    start(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    FILE *calls = fopen(argv[4], "r");
    if (!calls)
        give_up("the list of calls cannot be read here: its directory must be on all hosts");
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n")] = '\0';
    if (rank == 0)
        printf("library: %s\n", version);
    fflush(stdout);
    find_neighbours();
    if (strcmp(argv[1], "-"))
        open_turns(argv[1], atoi(argv[2]));
    time_calls(calls, atoi(argv[2]), atof(argv[3]));
    fclose(calls);
    if (turns && leads_on_host)
        unlink(argv[1]);
    MPI_Finalize();
    return 0;
}
