/* Random all-to-alls and allgathers with counts of their own: ragged_calls CALLS SEED THREADS
 *
 * Every thread has a duplicate of MPI_COMM_WORLD and one of its halves. Some counts, and all of some
 * ranks, are 0. Elements lie in gaps and say whose they are; where the counts are symmetric, a call
 * may be in place. Odd ranks write an allgather in pairs of elements. Rank 0 prints
 * the number of wrong calls on all ranks. */

#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 16, GAP = 3, MOST = 20000, ELEMENTS = MOST_RANKS * (MOST + GAP) };

static int n_calls, seed;
static MPI_Datatype pair;

struct thread {
    pthread_t handle;
    MPI_Comm whole, half;
    uint64_t state; /* of random numbers, which are the same on all ranks */
    int wrong;
};

static int draw(struct thread *self, int below)
{
    self->state = self->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((self->state >> 33) % (uint64_t)below);
}

static void draw_counts(struct thread *self, int counts[MOST_RANKS][MOST_RANKS], int size)
{
    static const int limits[] = {1, 4, 200, MOST};
    const int most = limits[draw(self, 40) ? draw(self, 3) : 3];
    const int is_symmetric = draw(self, 4) == 0, silent = draw(self, 2 * size);
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++) {
            const int drawn = draw(self, 3) ? draw(self, most + 1) : 0;
            counts[i][j] = i == silent ? 0 : drawn;
            if (is_symmetric && j < i)
                counts[i][j] = counts[j][i];
        }
}

static int is_symmetric(int counts[MOST_RANKS][MOST_RANKS], int size)
{
    for (int i = 0; i < size; i++)
        for (int j = 0; j < i; j++)
            if (counts[i][j] != counts[j][i])
                return 0;
    return 1;
}

/* Fill the elements from one rank to another, in the buffer of either of them. */
static void fill(int *elements, int count, int from, int to)
{
    for (int i = 0; i < count; i++)
        elements[i] = (from * MOST_RANKS + to) * (MOST + 1) + i;
}

/* Make a call, with large counts where the library has them and this is asked for. */
static void exchange(const void *send, const int *sent, const int *from, void *receive,
                     const int *received, const int *to, int size, int large, MPI_Comm comm)
{
#if MPI_VERSION >= 4
    MPI_Count counts[2][MOST_RANKS];
    MPI_Aint places[2][MOST_RANKS];
    for (int i = 0; i < size; i++) {
        counts[0][i] = sent[i];
        counts[1][i] = received[i];
        places[0][i] = from[i];
        places[1][i] = to[i];
    }
    if (large) {
        MPI_Alltoallv_c(send, counts[0], places[0], MPI_INT, receive, counts[1], places[1], MPI_INT,
                        comm);
        return;
    }
#endif
    (void)size, (void)large;
    MPI_Alltoallv(send, sent, from, MPI_INT, receive, received, to, MPI_INT, comm);
}

/* Gather blocks, with large counts where the library has them and this is asked for. */
static void gather_blocks(const void *send, int count, MPI_Datatype datatype, void *receive,
                          const int *received, const int *to, int size, int large, MPI_Comm comm)
{
#if MPI_VERSION >= 4
    MPI_Count counts[MOST_RANKS];
    MPI_Aint places[MOST_RANKS];
    for (int i = 0; i < size; i++) {
        counts[i] = received[i];
        places[i] = to[i];
    }
    if (large) {
        MPI_Allgatherv_c(send, count, datatype, receive, counts, places, datatype, comm);
        return;
    }
#endif
    (void)size, (void)large;
    MPI_Allgatherv(send, count, datatype, receive, received, to, datatype, comm);
}

/* Gather blocks of the lengths on the diagonal, rounded down to pairs of elements. */
static void gather(struct thread *self, int *buffers[3], MPI_Comm comm, int in_place, int large)
{
    int counts[MOST_RANKS][MOST_RANKS], received[MOST_RANKS], places[MOST_RANKS];
    int rank, size, end = 0, *send = buffers[0], *receive = buffers[1], *expected = buffers[2];
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    draw_counts(self, counts, size);
    const int unit = rank % 2 ? 1 : 2, own = counts[rank][rank] / 2;
    for (int i = 0; i < size; i++) {
        received[i] = counts[i][i] / 2 * unit;
        places[i] = end * unit;
        end += counts[i][i] / 2 + GAP;
    }
    const size_t nbytes = 2 * (size_t)end * sizeof *receive;
    memset(receive, 0xff, nbytes);
    memset(expected, 0xff, nbytes);
    for (int i = 0; i < size; i++)
        fill(expected + places[i] / unit * 2, counts[i][i] / 2 * 2, i, i);
    int *mine = in_place ? receive + places[rank] / unit * 2 : send;
    fill(mine, 2 * own, rank, rank);
    /* Open MPI multiplies the counts to receive by the size of the datatype to send: if the two
     * differ on a rank, it chooses another algorithm than others, and hangs. MPICH's own choice for long blocks is a
     * ring of pieces of 32 KiB in whole elements: with elements of 12 bytes on some ranks it ends
     * the program with truncated messages */
    const MPI_Datatype datatype = rank % 2 ? pair : MPI_INT;
    gather_blocks(in_place ? MPI_IN_PLACE : send, own * unit, datatype, receive, received, places,
                  size, large, comm);
    self->wrong += memcmp(receive, expected, nbytes) != 0;
}

static void call(struct thread *self, int *buffers[3])
{
    int counts[MOST_RANKS][MOST_RANKS], sent[MOST_RANKS], received[MOST_RANKS];
    int from_place[MOST_RANKS], to_place[MOST_RANKS], rank, size;
    int *send = buffers[0], *receive = buffers[1], *expected = buffers[2];
    MPI_Comm comm = draw(self, 3) ? self->whole : self->half;
    /* both halves draw the same numbers; their sizes may differ */
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    const int may_be_in_place = draw(self, 2), large = draw(self, 4) == 0;
    const int gathers = draw(self, 4) == 0;
    const uint64_t begin = self->state;
    if (gathers) {
        gather(self, buffers, comm, may_be_in_place, large);
        self->state = begin + 1;
        return;
    }
    draw_counts(self, counts, size);
    self->state = begin + 1;
    const int in_place = may_be_in_place && is_symmetric(counts, size);
    for (int i = 0, out = 0, in = 0; i < size; i++) {
        sent[i] = counts[rank][i];
        received[i] = counts[i][rank];
        from_place[i] = out;
        to_place[i] = in;
        out += sent[i] + GAP;
        in += received[i] + GAP;
    }
    const size_t nbytes = sizeof *receive * (size_t)(to_place[size - 1] + received[size - 1] + GAP);
    memset(receive, 0xff, nbytes);
    memset(expected, 0xff, nbytes);
    for (int i = 0; i < size; i++) {
        fill(in_place ? receive + to_place[i] : send + from_place[i], sent[i], rank, i);
        fill(expected + to_place[i], received[i], i, rank);
    }
    exchange(in_place ? MPI_IN_PLACE : send, sent, from_place, receive, received, to_place, size,
             large, comm);
    self->wrong += memcmp(receive, expected, nbytes) != 0;
}

static void *make_calls(void *argument)
{
    struct thread *self = argument;
    int *buffers[3];
    for (int i = 0; i < 3; i++)
        buffers[i] = malloc(ELEMENTS * sizeof **buffers);
    for (int i = 0; i < n_calls; i++)
        call(self, buffers);
    for (int i = 0; i < 3; i++)
        free(buffers[i]);
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, rank, wrong = 0, all_wrong;
    n_calls = argc > 1 ? atoi(argv[1]) : 100;
    seed = argc > 2 ? atoi(argv[2]) : 1;
    const int n_threads = argc > 3 ? atoi(argv[3]) : 1;
    struct thread *threads = calloc((size_t)n_threads, sizeof *threads);
    MPI_Init_thread(&argc, &argv, n_threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
                    &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    for (int i = 0; i < n_threads; i++) {
        threads[i].state = (uint64_t)(seed * 1000 + i);
        MPI_Comm_dup(MPI_COMM_WORLD, &threads[i].whole);
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &threads[i].half);
    }
    for (int i = 1; i < n_threads; i++)
        pthread_create(&threads[i].handle, NULL, make_calls, &threads[i]);
    make_calls(&threads[0]);
    for (int i = 0; i < n_threads; i++) {
        if (i)
            pthread_join(threads[i].handle, NULL);
        wrong += threads[i].wrong;
        MPI_Comm_free(&threads[i].whole);
        MPI_Comm_free(&threads[i].half);
    }
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d wrong\n", all_wrong);
    free(threads);
    MPI_Type_free(&pair);
    MPI_Finalize();
    return all_wrong != 0;
}
