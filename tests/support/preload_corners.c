/* What programs seldom do, one thing for each first argument. Rank 0 prints "No Errors" at the end,
 * where the results are right. */

#include <limits.h>
#include <locale.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1000, MANY = 300, MIB = 1 << 20 };
static int rank, size, errors;
static char *program;
static int give[8 * N], take[8 * N];
static const int few[] = {1, 1, 1, 1, 1, 1, 1, 1}, places[] = {0, 1, 2, 3, 4, 5, 6, 7};

static void expect(int is_right, const char *what)
{
    if (!is_right && errors++ < 5)
        printf("rank %d of %d: wrong: %s\n", rank, size, what);
}

static void expect_class(int code, int wanted, const char *what)
{
    int class = MPI_SUCCESS;
    MPI_Error_class(code, &class);
    expect(class == wanted, what);
}

static void sum_on(MPI_Comm comm)
{
    int one = 1, sum = 0, members;
    MPI_Comm_size(comm, &members);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    expect(sum == members, "sum");
    one = rank;
    MPI_Bcast(&one, 1, MPI_INT, members - 1, comm);
    MPI_Barrier(comm);
}

/* More communicators at once than the dispatcher sets up. */
static void have_many(void)
{
    MPI_Comm comms[MANY];
    for (int i = 0; i < MANY; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int call = 0; call < 3; call++)
        for (int i = 0; i < MANY; i++)
            sum_on(comms[i]);
    for (int i = 0; i < MANY; i++)
        MPI_Comm_free(&comms[i]);
}

/* Every collective on a communicator between two groups; its size is that of the other group. */
static void call_between_groups(void)
{
    MPI_Comm half, between;
    const int is_low = rank == 0, others = is_low ? size - 1 : 1;
    const int root = is_low ? MPI_ROOT : 0;
    int sum = -1;
    MPI_Comm_split(MPI_COMM_WORLD, is_low, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, is_low ? 1 : 0, 5, &between);
    for (int i = 0; i < N; i++)
        give[i] = 1;
    MPI_Bcast(give, 10, MPI_INT, root, between);
    MPI_Allreduce(give, &sum, 1, MPI_INT, MPI_SUM, between);
    expect(sum == others, "sum of the other group");
    MPI_Reduce(give, take, 1, MPI_INT, MPI_SUM, root, between);
    expect(!is_low || take[0] == others, "reduction of the other group");
    MPI_Reduce_scatter_block(give, take, is_low ? size - 1 : 1, MPI_INT, MPI_SUM, between);
    MPI_Allgather(give, 1, MPI_INT, take, 1, MPI_INT, between);
    MPI_Gather(give, 1, MPI_INT, take, 1, MPI_INT, root, between);
    MPI_Scatter(give, 1, MPI_INT, take, 1, MPI_INT, root, between);
    MPI_Alltoall(give, 1, MPI_INT, take, 1, MPI_INT, between);
    MPI_Alltoallv(give, few, places, MPI_INT, take, few, places, MPI_INT, between);
    MPI_Allgatherv(give, 1, MPI_INT, take, few, places, MPI_INT, between);
    expect(take[0] == 1, "blocks of the other group");
    MPI_Barrier(between);
#if MPI_VERSION >= 4
    MPI_Bcast_c(give, 10, MPI_INT, root, between);
    MPI_Allreduce_c(give, &sum, 1, MPI_INT, MPI_SUM, between);
    MPI_Reduce_c(give, take, 1, MPI_INT, MPI_SUM, root, between);
    MPI_Reduce_scatter_block_c(give, take, is_low ? size - 1 : 1, MPI_INT, MPI_SUM, between);
    MPI_Allgather_c(give, 1, MPI_INT, take, 1, MPI_INT, between);
    MPI_Gather_c(give, 1, MPI_INT, take, 1, MPI_INT, root, between);
    MPI_Scatter_c(give, 1, MPI_INT, take, 1, MPI_INT, root, between);
#endif
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
}

/* The last rank that was here first, with a rank that was started later: nobody knows its node. */
static void call_with_spawned(MPI_Comm between, int is_spawned)
{
    MPI_Comm all, pair;
    int place, members;
    MPI_Intercomm_merge(between, is_spawned, &all);
    MPI_Comm_rank(all, &place);
    MPI_Comm_size(all, &members);
    MPI_Comm_split(all, place >= members - 2, place, &pair);
    for (int call = 0; call < 3; call++) {
        sum_on(all);
        sum_on(pair);
    }
    MPI_Comm_free(&pair);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&between);
}

static void spawn(void)
{
    char *words[] = {"spawned", NULL};
    MPI_Comm between;
    MPI_Comm_spawn(program, words, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between,
                   MPI_ERRCODES_IGNORE);
    call_with_spawned(between, 0);
}

/* The second rank takes less than it is sent: it has an error, and those to which it passes the
 * data on have none. Calls that follow are right. */
static void truncate_message(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int call = 0; call < 3; call++) /* the first one is the library's */
        sum_on(comm);
    for (int round = 0; round < 3; round++) {
        int code = MPI_Bcast(give, rank == 1 ? N - 1 : N, MPI_INT, 0, comm);
        expect_class(code, rank == 1 ? MPI_ERR_TRUNCATE : MPI_SUCCESS, "class of truncation");
        for (int i = 0; i < N; i++)
            give[i] = rank == 0 ? round + i : -1;
        MPI_Bcast(give, N, MPI_INT, 0, comm);
        expect(give[0] == round && give[N - 1] == round + N - 1, "broadcast after truncation");
    }
    MPI_Comm_free(&comm);
}

/* Return whether the elements from `first` on are as they were. */
static int is_untouched(const int *values, int first)
{
    for (int i = first; i < 8 * N; i++)
        if (values[i] != -1)
            return 0;
    return 1;
}

static void forget_taken(void)
{
    for (int i = 0; i < 8 * N; i++)
        take[i] = -1;
}

/* Blocks of so many elements are longer than their places, which have FEW. */
static void give_too_much(MPI_Comm comm, int count, MPI_Datatype datatype)
{
    enum { FEW = 32 };
    int code;
    forget_taken();
    code = MPI_Allgather(give, count, datatype, take, FEW, MPI_INT, comm);
    expect_class(code, MPI_ERR_TRUNCATE, "class of a long block of an allgather");
    expect(is_untouched(take, size * FEW), "memory behind an allgather");
    code = MPI_Alltoall(give, count, datatype, take, FEW, MPI_INT, comm);
    expect_class(code, MPI_ERR_TRUNCATE, "class of long blocks of an all-to-all");
    expect(is_untouched(take, size * FEW), "memory behind an all-to-all");
}

/* The root of a scatter takes another number of elements than it gives each rank. */
static void take_apart(MPI_Comm comm, int count, int wanted, MPI_Datatype datatype, int class)
{
    forget_taken();
    int code = MPI_Scatter(give, count, MPI_INT, take, rank ? count : wanted,
                           rank ? MPI_INT : datatype, 0, comm);
    expect_class(code, rank ? MPI_SUCCESS : class, "class of another block of a scatter");
    expect(is_untouched(take, 2 * count), "memory behind a scatter");
    expect(class || take[0] == give[rank * count], "first element of a scatter");
}

/* What ranks give has not the length of its place. Calls that follow are right. */
static void have_other_lengths(void)
{
    MPI_Comm comm;
    MPI_Datatype every;
    MPI_Type_vector(2, 1, 2, MPI_INT, &every);
    MPI_Type_commit(&every);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int i = 0; i < 8 * N; i++)
        give[i] = i;
    for (int call = 0; call < 3; call++) /* the first one is the library's */
        sum_on(comm);
    for (int round = 0; round < 2; round++) {
        give_too_much(comm, 2 * N, MPI_INT);
        give_too_much(comm, N / 2, every);
        take_apart(comm, 32, 4 * N, MPI_INT, MPI_SUCCESS);
        take_apart(comm, 32, N, every, MPI_SUCCESS);
        take_apart(comm, 32, 16, MPI_INT, MPI_ERR_TRUNCATE);
        sum_on(comm);
    }
    MPI_Type_free(&every);
    MPI_Comm_free(&comm);
}

/* One rank alone has no datatype. */
static void have_no_datatype(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    const int last = rank == size - 1;
    const MPI_Datatype datatype = last ? MPI_DATATYPE_NULL : MPI_INT;
    int code = MPI_Bcast(give, 10, datatype, 0, comm);
    expect_class(code, last ? MPI_ERR_TYPE : MPI_SUCCESS, "class without a datatype");
    if (last) { /* where the others would wait */
        expect_class(MPI_Gather(give, 10, datatype, take, 10, MPI_INT, 0, comm), MPI_ERR_TYPE,
                     "class of a gather");
#ifdef OPEN_MPI /* MPICH ends the program */
        expect(MPI_Allreduce(give, take, 10, datatype, MPI_SUM, comm), "success of a reduction");
#endif
        expect_class(MPI_Allgather(give, 10, MPI_INT, take, 10, datatype, comm), MPI_ERR_TYPE,
                     "class of an allgather");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    sum_on(MPI_COMM_WORLD);
    MPI_Comm_free(&comm);
}

/* Counts that the library refuses, between others. */
static void have_wrong_counts(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int call = 0; call < 9; call++) {
        const int wrong[8] = {-1}, is_wrong = call % 3 == 1;
        const int *counts = is_wrong ? wrong : few;
        int code = MPI_Alltoallv(give, few, places, MPI_INT, take, counts, places, MPI_INT, comm);
        expect_class(code, is_wrong ? MPI_ERR_COUNT : MPI_SUCCESS, "class of wrong counts");
#ifndef OPEN_MPI /* 5.0.11 ends with a segmentation fault */
        code = MPI_Allgatherv(give, 1, MPI_INT, take, counts, places, MPI_INT, comm);
        expect_class(code, is_wrong ? MPI_ERR_COUNT : MPI_SUCCESS, "class of wrong blocks");
#endif
    }
#ifdef OPEN_MPI /* MPICH reads them */
    expect_class(MPI_Alltoallv(give, few, places, MPI_INT, take, NULL, places, MPI_INT, comm),
                 MPI_ERR_ARG, "class without counts");
#endif
    MPI_Comm_free(&comm);
    sum_on(MPI_COMM_WORLD);
}

/* More data than an int has bytes, of one page that is sent again and again. */
static void call_with_much_data(void)
{
    MPI_Datatype row, rows;
    char *data = calloc(1, MIB), *other = calloc(1, MIB);
    MPI_Type_contiguous(MIB, MPI_BYTE, &row);
    MPI_Type_create_hvector(3000, 1, 0, row, &rows);
    MPI_Type_commit(&rows);
    for (int call = 0; call < 3; call++) /* the first one is the library's */
        sum_on(MPI_COMM_SELF);
    expect(MPI_Bcast(data, 1, rows, 0, MPI_COMM_SELF) == MPI_SUCCESS, "large broadcast");
    expect(MPI_Allgather(data, 1, rows, other, 1, rows, MPI_COMM_SELF) == MPI_SUCCESS,
           "large allgather");
#if MPI_VERSION >= 4
    MPI_Datatype nothing;
    MPI_Type_contiguous(0, MPI_INT, &nothing);
    MPI_Type_commit(&nothing);
    MPI_Bcast_c(data, (MPI_Count)INT_MAX + 1, nothing, 0, MPI_COMM_WORLD);
    MPI_Type_free(&nothing);
#endif
    MPI_Type_free(&rows);
    MPI_Type_free(&row);
    free(data);
    free(other);
}

/* Bytes of memory that this process has mapped. */
static long mapped(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1)
        pages = -1;
    if (file)
        fclose(file);
    return pages * 4096;
}

/* What a large gather takes is not kept for each communicator. */
static void give_memory_back(void)
{
    enum { COMMS = 8, EACH = 32 * MIB };
    MPI_Comm comms[COMMS];
    char *mine = calloc(1, EACH), *all = rank == 0 ? calloc((size_t)size, EACH) : NULL;
    for (int i = 0; i < COMMS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    long before = 0;
    for (int i = 0; i < COMMS; i++) {
        MPI_Barrier(comms[i]);
        for (int call = 0; call < 2; call++)
            MPI_Gather(mine, EACH, MPI_BYTE, all, EACH, MPI_BYTE, 0, comms[i]);
        if (i == 0)
            before = mapped();
    }
    expect(before > 0 && mapped() - before < EACH, "memory of large gathers");
    for (int i = 0; i < COMMS; i++)
        MPI_Comm_free(&comms[i]);
    free(mine);
    free(all);
}

/* A few calls of each kind, of which each may fail for want of memory and no other reason. */
static void call_without_memory(void)
{
    MPI_Comm comm;
    MPI_Datatype every;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Type_vector(N, 1, 2, MPI_INT, &every);
    MPI_Type_commit(&every);
    for (int call = 0; call < 3; call++) {
        MPI_Comm used = call == 1 ? comm : MPI_COMM_WORLD;
        const int codes[] = {
            MPI_Reduce_scatter_block(give, take, N, MPI_INT, MPI_SUM, used),
            MPI_Bcast(give, 1, every, 0, used),
            MPI_Gather(give, 1, every, take, 1, every, 0, used),
            MPI_Scatter(give, N, MPI_INT, take, N, MPI_INT, 0, used),
            MPI_Allgather(give, 1, every, take, N, MPI_INT, used),
            MPI_Allreduce(give, take, N, MPI_INT, MPI_SUM, used),
            MPI_Reduce(give, take, N, MPI_INT, MPI_SUM, 0, used),
            MPI_Barrier(used),
        };
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
            if (codes[i] != MPI_SUCCESS)
                expect_class(codes[i], MPI_ERR_NO_MEM, "class without memory");
    }
    MPI_Type_free(&every);
    MPI_Comm_free(&comm);
}

/* Functions that a tool would call. */
static void call_profiled(void)
{
    MPI_Comm comm;
    PMPI_Comm_dup(MPI_COMM_WORLD, &comm);
    PMPI_Bcast(give, 10, MPI_INT, 0, comm);
    PMPI_Reduce(give, take, 10, MPI_INT, MPI_SUM, 0, comm);
    PMPI_Allreduce(give, take, 10, MPI_INT, MPI_SUM, comm);
    PMPI_Reduce_scatter_block(give, take, 10, MPI_INT, MPI_SUM, comm);
    PMPI_Allgather(give, 10, MPI_INT, take, 10, MPI_INT, comm);
    PMPI_Gather(give, 10, MPI_INT, take, 10, MPI_INT, 0, comm);
    PMPI_Scatter(give, 10, MPI_INT, take, 10, MPI_INT, 0, comm);
    PMPI_Alltoall(give, 10, MPI_INT, take, 10, MPI_INT, comm);
    PMPI_Alltoallv(give, few, places, MPI_INT, take, few, places, MPI_INT, comm);
    PMPI_Allgatherv(give, 1, MPI_INT, take, few, places, MPI_INT, comm);
    PMPI_Barrier(comm);
#if MPI_VERSION >= 4
    const MPI_Count large[] = {1, 1, 1, 1, 1, 1, 1, 1};
    const MPI_Aint apart[] = {0, 1, 2, 3, 4, 5, 6, 7};
    PMPI_Bcast_c(give, 10, MPI_INT, 0, comm);
    PMPI_Reduce_c(give, take, 10, MPI_INT, MPI_SUM, 0, comm);
    PMPI_Allreduce_c(give, take, 10, MPI_INT, MPI_SUM, comm);
    PMPI_Reduce_scatter_block_c(give, take, 10, MPI_INT, MPI_SUM, comm);
    PMPI_Allgather_c(give, 10, MPI_INT, take, 10, MPI_INT, comm);
    PMPI_Gather_c(give, 10, MPI_INT, take, 10, MPI_INT, 0, comm);
    PMPI_Scatter_c(give, 10, MPI_INT, take, 10, MPI_INT, 0, comm);
    PMPI_Alltoall_c(give, 10, MPI_INT, take, 10, MPI_INT, comm);
    MPI_Alltoallv_c(give, large, apart, MPI_INT, take, large, apart, MPI_INT, comm);
    PMPI_Alltoallv_c(give, large, apart, MPI_INT, take, large, apart, MPI_INT, comm);
    MPI_Allgatherv_c(give, 1, MPI_INT, take, large, apart, MPI_INT, comm);
    PMPI_Allgatherv_c(give, 1, MPI_INT, take, large, apart, MPI_INT, comm);
#endif
    sum_on(comm);
    PMPI_Comm_free(&comm);
}

/* What a program does when all is well. */
static void call_usually(void)
{
    MPI_Comm derived;
    call_profiled();
    MPI_Comm_dup(MPI_COMM_WORLD, &derived);
    for (int call = 0; call < 3; call++) {
        sum_on(MPI_COMM_WORLD);
        sum_on(derived);
    }
    MPI_Comm_free(&derived);
}

/* A locale with decimal commas, which is the program's own. */
static void print_commas(void)
{
    expect(setlocale(LC_ALL, "") && *localeconv()->decimal_point == ',', "locale");
    call_usually();
}

static const struct corner {
    const char *name;
    void (*call)(void);
} corners[] = {
    {"many", have_many},
    {"groups", call_between_groups},
    {"spawn", spawn},
    {"truncation", truncate_message},
    {"lengths", have_other_lengths},
    {"datatype", have_no_datatype},
    {"counts", have_wrong_counts},
    {"data", call_with_much_data},
    {"gathers", give_memory_back},
    {"memory", call_without_memory},
    {"locale", print_commas},
    {"threads", call_usually},
    {"profiled", call_usually},
    {"profiled-threads", call_usually},
};

int main(int argc, char **argv)
{
    MPI_Comm parent;
    int provided, total;
    const char *name = argc > 1 ? argv[1] : "";
    const int is_profiled = !strncmp(name, "profiled", 8);
    program = argv[0];
    if (!strcmp(name, "threads"))
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    else if (!strcmp(name, "profiled-threads"))
        PMPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
    else if (is_profiled)
        PMPI_Init(&argc, &argv);
    else
        MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL)
        call_with_spawned(parent, 1);
    for (size_t i = 0; i < sizeof corners / sizeof *corners; i++)
        if (!strcmp(corners[i].name, name))
            corners[i].call();
    PMPI_Reduce(&errors, &total, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && parent == MPI_COMM_NULL)
        puts(total ? "Errors" : "No Errors");
    is_profiled ? PMPI_Finalize() : MPI_Finalize();
    return 0;
}
