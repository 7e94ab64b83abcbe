/* The beginning and the end of a program: finding the library's functions, and the table.
 *
 * A program calls MPI_X. Where a tool stands between us and the library (a profiler that defines
 * MPI_X and calls PMPI_X), it sees the call first, and its PMPI_X comes to us. Fortran's functions
 * call PMPI_X of C, so that they arrive here with C's arguments. */

#include "tuner.h"

#include <dlfcn.h>
#include <link.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { AGREEMENT_INTERVAL = 64 };

int thread_level;
static bool is_started, has_table;
static double began; /* when the table was agreed on */
static char **words; /* of the program's command */

static int (*library_Init)(int *, char ***);
static int (*tool_Init)(int *, char ***);
static int (*library_Init_thread)(int *, char ***, int, int *);
static int (*tool_Init_thread)(int *, char ***, int, int *);
static int (*library_Finalize)(void);
static int (*tool_Finalize)(void);

static int (*allreduce)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
static int (*allgather)(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm);
static int (*barrier)(MPI_Comm);
static int (*bcast)(void *, int, MPI_Datatype, int, MPI_Comm);
static int (*reduce)(const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm);

/* Find the function of the library, and that of a tool where one stands before it. */
void resolve(const char *name, void **library, void **tool)
{
    char own[64] = "P";
    Dl_info of_mpi, of_pmpi;
    strncat(own, "MPI_", sizeof own - 1 - strlen(own));
    strncat(own, name, sizeof own - 1 - strlen(own));
    *library = dlsym(RTLD_NEXT, own);
    *tool = dlsym(RTLD_NEXT, own + 1);
    if (!*library || !*tool || !dladdr(*library, &of_pmpi) || !dladdr(*tool, &of_mpi)
        || of_mpi.dli_fbase == of_pmpi.dli_fbase)
        *tool = NULL;
}

/* Return whether the program's MPI is of the kind for which we were compiled. */
static bool is_own_library(void)
{
    char version[1 << 14];
    int length;
    PMPI_Get_library_version(version, &length);
    const bool is_openmpi = strstr(version, "Open MPI") || strstr(version, "Spectrum");
#ifdef OPEN_MPI
    return is_openmpi;
#else
    return !is_openmpi;
#endif
}

/* Count the libraries of MPI itself; those for Fortran and C++ have other names. */
static int count_mpi(struct dl_phdr_info *info, size_t size, void *number)
{
    static const char *const kinds[] = {".so", "ch.so", "_abi.so", "_ibm.so", "_cray.so",
                                        "_gnu_"};
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;
    (void)size;
    for (size_t i = 0; strncmp(name, "libmpi", 6) == 0 && i < sizeof kinds / sizeof *kinds; i++)
        *(int *)number += strncmp(name + 6, kinds[i], strlen(kinds[i])) == 0;
    return 0;
}

/* Return the file of this library. */
static const char *own_path(void)
{
    Dl_info own;
    return dladdr((void *)own_path, &own) ? own.dli_fname : "libtuner";
}

/* Where the program has another MPI than ours, start it again without us: the handles of that MPI
 * are of other types. An interpreter may load it at any time before MPI_Init. */
static void step_aside(void)
{
    int number = 0;
    char *preload = getenv("LD_PRELOAD");
    char *place = preload ? strstr(preload, own_path()) : NULL;
    dl_iterate_phdr(count_mpi, &number);
    if (!place || (number < 2 && is_own_library()))
        return;
    size_t length = strlen(own_path());
    length += place[length] == ':';
    memmove(place, place + length, strlen(place + length) + 1);
    say("%s uses another MPI than its launcher: its own collectives are used", words[0]);
    execve("/proc/self/exe", words, environ);
}

__attribute__((constructor)) static void resolve_all(int argc, char **argv)
{
    void *unused;
    (void)argc;
    words = argv;
    step_aside();
    resolve("Init", (void **)&library_Init, (void **)&tool_Init);
    resolve("Init_thread", (void **)&library_Init_thread, (void **)&tool_Init_thread);
    resolve("Finalize", (void **)&library_Finalize, (void **)&tool_Finalize);
    resolve("Allreduce", (void **)&allreduce, &unused);
    resolve("Allgather", (void **)&allgather, &unused);
    resolve("Barrier", (void **)&barrier, &unused);
    resolve("Bcast", (void **)&bcast, &unused);
    resolve("Reduce", (void **)&reduce, &unused);
    resolve_communicators();
    resolve_collectives();
}

int library_allreduce(void *values, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    return allreduce(MPI_IN_PLACE, values, count, datatype, op, comm);
}

int library_allgather(const void *mine, void *all, int count, MPI_Datatype datatype,
                      MPI_Comm comm)
{
    return allgather(mine, count, datatype, all, count, datatype, comm);
}

int library_barrier(MPI_Comm comm)
{
    return barrier(comm);
}

int library_bcast(void *values, int count, MPI_Datatype datatype, MPI_Comm comm)
{
    return bcast(values, count, datatype, 0, comm);
}

int library_reduce(const void *values, void *sums, int count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm)
{
    return reduce(values, sums, count, datatype, op, 0, comm);
}

/* Wait for a request until the given time; return whether it is complete. */
static bool is_complete_by(double end, MPI_Request *request)
{
    int is_complete = 0;
    do {
        PMPI_Test(request, &is_complete, MPI_STATUS_IGNORE);
        sched_yield();
    } while (!is_complete && PMPI_Wtime() < end);
    return is_complete;
}

#ifdef OPEN_MPI
/* Send one number; it is small enough that nobody has to wait for it. */
static void tell(int rank, int tag, bool yes)
{
    static const int answers[] = {false, true};
    MPI_Request request;
    PMPI_Isend(&answers[yes], 1, MPI_INT, rank, tag, MPI_COMM_WORLD, &request);
    PMPI_Request_free(&request);
}

/* Return whether a rank says yes until the given time. */
static bool hears_yes(int rank, int tag, double end)
{
    static int answer;
    MPI_Request request;
    PMPI_Irecv(&answer, 1, MPI_INT, rank, tag, MPI_COMM_WORLD, &request);
    if (is_complete_by(end, &request))
        return answer;
    PMPI_Cancel(&request);
    PMPI_Request_free(&request);
    return false;
}

/* Return whether all ranks have come: each hears of those that follow it in a binomial tree until
 * the given time, tells the one before it, and passes its answer on. */
static bool meet(double end, double answer_end)
{
    int rank, size, step = 1, *largest_tag, is_found;
    bool all = true;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest_tag, &is_found);
    for (; step < size && !(rank & step); step *= 2)
        if (rank + step < size)
            all = hears_yes(rank + step, *largest_tag, end) && all;
    if (rank) {
        tell(rank - step, *largest_tag, all);
        all = hears_yes(rank - step, *largest_tag, answer_end) && all;
    }
    for (step /= 2; step; step /= 2)
        if (rank + step < size)
            tell(rank + step, *largest_tag, all);
    return all;
}

/* Return whether all ranks have this library. A rank that lacks it (linked statically, or on a host
 * that does not see the file) takes part in nothing, so nobody waits for it without end. Whoever
 * has heard that all have come knows that the rank before it is here, whose answer in the second
 * meeting it awaits however long that takes; that answer is no where a rank had given up before.
 * Messages are used since a barrier could not be left alone: Open MPI numbers non-blocking calls,
 * also those inside MPI_Comm_dup. */
static bool all_ranks_take_part(double seconds)
{
    const double first = PMPI_Wtime() + seconds;
    return meet(first, first) && meet(PMPI_Wtime() + seconds, HUGE_VAL);
}
#else
/* The same by a barrier, which is left alone where a rank never comes; messages would not do, as
 * MPICH ends a program in MPI_Finalize that never receives one. Ranks say then whether they have
 * given up: whoever has seen the barrier complete knows that all will. */
static bool all_ranks_take_part(double seconds)
{
    static int is_here, all_are_here;
    MPI_Request barrier, agreement;
    PMPI_Ibarrier(MPI_COMM_WORLD, &barrier); /* errors end the program until MPI_Init returns */
    is_here = is_complete_by(PMPI_Wtime() + seconds, &barrier);
    PMPI_Iallreduce(&is_here, &all_are_here, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD, &agreement);
    return is_here && is_complete_by(HUGE_VAL, &agreement) && all_are_here;
}
#endif

/* Return how long ranks wait for others in MPI_Init. */
static double start_seconds(void)
{
    const char *limit = getenv("TUNER_START_WITHIN_S");
    char *end = NULL;
    const long seconds = limit ? strtol(limit, &end, 10) : 0;
    return end && end > limit && *end == '\0' && seconds > 0 ? (double)seconds : 60.0;
}

/* Make sure that all ranks have the same table; the ranks that cannot map it get it from rank 0.
 * Returns NULL, or why there is no table, which may be "" on ranks that know of no reason. */
static const char *share_table(const char *path)
{
    const void *content = NULL;
    size_t size = 0;
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const char *failure = open_table(path, &content, &size);
    int64_t said[2] = {failure ? 0 : (int64_t)size, 0};
    int someone_lacks = failure != NULL;
    library_bcast(said, 1, MPI_INT64_T, MPI_COMM_WORLD);
    library_allreduce(&someone_lacks, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (said[0] == 0)
        return failure ? failure : "";
    if (someone_lacks) {
        char *copy = malloc((size_t)said[0]);
        int has_memory = copy != NULL && said[0] <= INT32_MAX;
        library_allreduce(&has_memory, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (!has_memory) {
            free(copy);
            return "no memory";
        }
        if (rank == 0)
            memcpy(copy, content, size);
        library_bcast(copy, (int)said[0], MPI_BYTE, MPI_COMM_WORLD);
        if (content)
            munmap((void *)content, size);
        content = copy;
        size = (size_t)said[0];
    }
    return use_table(content, size);
}

/* Use the table from now on, if all ranks can; collective over MPI_COMM_WORLD. */
static bool start_table(int rank)
{
    const char *path = getenv("TUNER_FLAT_TABLE");
    int wanted[2] = {path && *path, -(path && *path)}; /* on all ranks, or on none */
    library_allreduce(wanted, 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!wanted[0]) {
        if (wanted[1] && rank == 0)
            say("the library's own collectives are used: some ranks have no table");
        return false;
    }
    const char *failure = share_table(path);
    if (!failure && (failure = open_plans()))
        path = "MPI";
    /* the first rank with a reason, and a number that is equal where all ranks have one table */
    int64_t agreed[3] = {failure && *failure ? rank : INT32_MAX,
                         failure ? 0 : table.header->checksum, 0};
    agreed[2] = -agreed[1];
    library_allreduce(agreed, 3, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
    if (agreed[0] == rank)
        say("the library's own collectives are used: rank %d: %s: %s", rank, path, failure);
    else if (agreed[0] == INT32_MAX && agreed[1] != -agreed[2] && rank == 0)
        say("the library's own collectives are used: the ranks have different tables");
    if (agreed[0] != INT32_MAX || agreed[1] != -agreed[2])
        return false;
    start_plans(rank);
    return true;
}

/* Follow the table, or record the calls; collective over MPI_COMM_WORLD. */
static void start(void)
{
    const char *after = getenv("TUNER_TUNE_AFTER_US"), *every = getenv("TUNER_AGREE_EVERY");
    double seconds = after ? 1e-6 * (double)strtoll(after, NULL, 10) : 1.0;
    int64_t interval = every && *every ? strtoll(every, NULL, 10) : AGREEMENT_INTERVAL;
    int rank, size;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    PMPI_Query_thread(&thread_level);
    if (!all_ranks_take_part(start_seconds())) {
        if (rank == 0 || rank == size - 1) /* at least one of two kinds of programs says so */
            say("the library's own collectives are used: some ranks run without tuner; it "
                "needs %s on all hosts, and programs that are linked dynamically",
                own_path());
        return;
    }
    has_table = start_table(rank);
    if (!has_table)
        table = (struct table){0};
    if (!start_recording(has_table) && !has_table)
        return;
    library_bcast(&seconds, 1, MPI_DOUBLE, MPI_COMM_WORLD);
    library_bcast(&interval, 1, MPI_INT64_T, MPI_COMM_WORLD);
    tune_after_seconds = seconds;
    agreement_interval = interval < 0 ? 0 : interval;
    began = PMPI_Wtime();
    start_packing();
    start_datatypes();
    is_started = start_communicators();
    if (is_started && thread_level == MPI_THREAD_MULTIPLE)
        prepare_world();
}

static int initialise(int *argc, char ***argv)
{
    step_aside();
    int code = library_Init(argc, argv);
    if (code == MPI_SUCCESS)
        start();
    return code;
}

static int initialise_thread(int *argc, char ***argv, int required, int *provided)
{
    step_aside();
    int code = library_Init_thread(argc, argv, required, provided);
    if (code == MPI_SUCCESS)
        start();
    return code;
}

static int finalize(void)
{
    if (is_started) {
        if (has_table)
            write_report(PMPI_Wtime() - began);
        if (is_recording)
            write_record();
        end_communicators();
        end_packing();
        is_started = false;
    }
    end_plans();
    return library_Finalize();
}

EXPORTED int PMPI_Init(int *argc, char ***argv)
{
    return initialise(argc, argv);
}

EXPORTED int MPI_Init(int *argc, char ***argv)
{
    return tool_Init ? tool_Init(argc, argv) : initialise(argc, argv);
}

EXPORTED int PMPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    return initialise_thread(argc, argv, required, provided);
}

EXPORTED int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    return tool_Init_thread ? tool_Init_thread(argc, argv, required, provided)
                            : initialise_thread(argc, argv, required, provided);
}

EXPORTED int PMPI_Finalize(void)
{
    return finalize();
}

EXPORTED int MPI_Finalize(void)
{
    return tool_Finalize ? tool_Finalize() : finalize();
}
