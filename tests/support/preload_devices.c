/* Collectives whose buffers are on a device on some ranks and on the host on others.
 *
 * preload_devices DRIVER late|first
 *
 * With `late` the first calls have buffers on the host, and later ones have some on the device, which
 * the library copies in messages of a rank to itself; any other access ends the program. With `first`
 * the first calls have buffers on the device, which the library may work on. Rank 0 prints "No
 * Errors" at the end, where the results are right. */

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 600, MOST_RANKS = 8 };
typedef struct {
    double value;
    int place;
} ranked; /* MPI_DOUBLE_INT, which has a gap at its end */

static int rank, size, errors, is_closing;
static void (*open_device)(int);
static void *(*allocate_on_device)(size_t);
static int (*library_Sendrecv)(const void *, int, MPI_Datatype, int, int, void *, int, MPI_Datatype,
                               int, int, MPI_Comm, MPI_Status *);

/* Keep the program, and what runs in its calls, from the memory of the device, or no longer. */
static void close_device(void)
{
    if (is_closing)
        open_device(0);
}

static void reopen_device(void)
{
    if (is_closing)
        open_device(1);
}

/* The library takes buffers of devices, as one that is aware of CUDA does. */
int PMPI_Sendrecv(const void *from, int count, MPI_Datatype datatype, int target, int tag,
                  void *into, int into_count, MPI_Datatype into_datatype, int source, int into_tag,
                  MPI_Comm comm, MPI_Status *status)
{
    if (!library_Sendrecv)
        library_Sendrecv = dlsym(RTLD_NEXT, "PMPI_Sendrecv");
    reopen_device();
    int code = library_Sendrecv(from, count, datatype, target, tag, into, into_count,
                                into_datatype, source, into_tag, comm, status);
    close_device();
    return code;
}

static void expect(int is_right, const char *what)
{
    if (!is_right && errors++ < 5)
        printf("rank %d of %d: wrong: %s\n", rank, size, what);
}

static int has(const int *values, int count, int value)
{
    for (int i = 0; i < count; i++)
        if (values[i] != value)
            return 0;
    return 1;
}

static void fill(int *values, int count, int value)
{
    for (int i = 0; i < count; i++)
        values[i] = value;
}

#define CALL(call, is_right) \
    (close_device(), call, reopen_device(), expect(is_right, #call))

/* Every collective, with N elements of each rank. */
static void move(int *give, int *take, int root)
{
    const int sum = size * (size + 1) / 2;
    fill(give, N, rank == root ? 7 : 0);
    CALL(MPI_Bcast(give, N, MPI_INT, root, MPI_COMM_WORLD), has(give, N, 7));
    fill(give, N, rank + 1);
    CALL(MPI_Allreduce(give, take, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD), has(take, N, sum));
    fill(take, N, rank + 1);
    CALL(MPI_Allreduce(MPI_IN_PLACE, take, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD),
         has(take, N, sum));
    fill(take, N, -1);
    CALL(MPI_Reduce(give, take, N, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD),
         has(take, N, rank == root ? sum : -1));
    CALL(MPI_Allgather(give, N, MPI_INT, take, N, MPI_INT, MPI_COMM_WORLD),
         has(take + N * (size - 1), N, size) && has(take, N, 1));
    fill(take, N * size, -1);
    fill(take + N * rank, N, rank + 1);
    CALL(MPI_Allgather(MPI_IN_PLACE, 0, MPI_INT, take, N, MPI_INT, MPI_COMM_WORLD),
         has(take + N * (size - 1), N, size) && has(take, N, 1));
    fill(take, N * size, -1);
    CALL(MPI_Gather(give, N, MPI_INT, take, N, MPI_INT, root, MPI_COMM_WORLD),
         has(take + N * (size - 1), N, rank == root ? size : -1));
    for (int peer = 0; peer < size; peer++)
        fill(give + N * peer, N, peer + 3);
    CALL(MPI_Scatter(give, N, MPI_INT, take, N, MPI_INT, root, MPI_COMM_WORLD),
         has(take, N, rank + 3));
    CALL(MPI_Reduce_scatter_block(give, take, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD),
         has(take, N, size * (rank + 3)));
}

/* Every second integer of the memory is sent, and the others stay as they are. */
static void move_apart(int *give)
{
    MPI_Datatype apart;
    MPI_Type_vector(N, 1, 2, MPI_INT, &apart);
    MPI_Type_commit(&apart);
    for (int i = 0; i < 2 * N; i++)
        give[i] = i % 2 ? -rank : rank == 0 ? i : -1;
    close_device();
    MPI_Bcast(give, 1, apart, 0, MPI_COMM_WORLD);
    reopen_device();
    for (int i = 0; i < 2 * N; i++)
        expect(give[i] == (i % 2 ? -rank : i), "broadcast of every second integer");
    MPI_Type_free(&apart);
}

static void find_greatest(ranked *give, ranked *take)
{
    for (int i = 0; i < N; i++)
        give[i] = (ranked){(rank + i) % size, rank};
    close_device();
    MPI_Allreduce(give, take, N, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    reopen_device();
    for (int i = 0; i < N; i++)
        expect(take[i].value == size - 1 && (take[i].place + i) % size == size - 1, "greatest");
}

static void call_all(void *give, void *take)
{
    for (int root = 0; root < size; root++)
        move(give, take, root);
    move_apart(give);
    find_greatest(give, take);
}

int main(int argc, char **argv)
{
    static ranked host[2][N * MOST_RANKS];
    void *device[2];
    int total;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strcmp(argv[2], "late") == 0)
        call_all(host[0], host[1]);
    void *driver = dlopen(argv[1], RTLD_NOW);
    *(void **)&open_device = dlsym(driver, "open_device");
    *(void **)&allocate_on_device = dlsym(driver, "allocate_on_device");
    for (int i = 0; i < 2; i++)
        device[i] = allocate_on_device(sizeof host[i]);
    is_closing = strcmp(argv[2], "late") == 0;
    call_all(rank % 2 ? host[0] : device[0], device[1]);
    call_all(device[0], rank % 2 ? device[1] : host[1]);
    is_closing = 0;
    MPI_Allreduce(&errors, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        puts(total ? "Errors" : "No Errors");
    MPI_Finalize();
    return 0;
}
