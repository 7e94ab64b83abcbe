/* Check the results of every blocking collective that tables know: with many sizes and roots, in
 * place, with derived datatypes and with an operator that does not commute, on MPI_COMM_WORLD, its
 * halves and itself in reversed order. Rank 0 prints "No Errors" at the end, where it is so. */

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size, errors;

static void expect(int is_right, const char *what, int count, int root)
{
    if (!is_right && errors++ < 3)
        printf("rank %d of %d: wrong %s of %d elements, root %d\n", rank, size, what, count, root);
}

/* The buffers of calls with `count` elements in each block. */
struct buffers {
    int count, root;
    int *one, *all;
};

static void fill(int *into, int count, int first)
{
    for (int i = 0; i < count; i++)
        into[i] = first + i;
}

static int has(const int *values, int count, int first)
{
    for (int i = 0; i < count; i++)
        if (values[i] != first + i)
            return 0;
    return 1;
}

/* Whether the values are the sum over all ranks of what `fill` with their rank gives. */
static int has_sum(const int *values, int count, int first)
{
    for (int i = 0; i < count; i++)
        if (values[i] != size * (first + i) + size * (size - 1) / 2)
            return 0;
    return 1;
}

static int has_blocks(const struct buffers *b)
{
    for (int peer = 0; peer < size; peer++)
        if (!has(b->all + peer * b->count, b->count, 1000 * peer))
            return 0;
    return 1;
}

/* What rank `from` sends to rank `to` begins with this number. */
static int between(int from, int to)
{
    return 100000 * (from + 1) + 1000 * to;
}

/* Every rank gives a block to every rank, and gets one from each. */
static void exchange(struct buffers *b, MPI_Comm comm)
{
    const int n = b->count;
    int *apart = malloc(sizeof *apart * (size_t)(2 * n * size + 1)), *given = apart + n * size;
    for (int peer = 0; peer < size; peer++)
        fill(given + n * peer, n, between(rank, peer));
    fill(b->all, n * size, -1);
    MPI_Alltoall(given, n, MPI_INT, b->all, n, MPI_INT, comm);
    for (int peer = 0; peer < size; peer++) {
        expect(has(b->all + n * peer, n, between(peer, rank)), "Alltoall", n, peer);
        expect(has(given + n * peer, n, between(rank, peer)), "Alltoall's operand", n, peer);
    }
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, given, n, MPI_INT, comm);
    for (int peer = 0; peer < size; peer++)
        expect(has(given + n * peer, n, between(peer, rank)), "Alltoall in place", n, peer);
#if MPI_VERSION >= 4
    fill(apart, n * size, -1);
    MPI_Alltoall_c(given, n, MPI_INT, apart, n, MPI_INT, comm);
    for (int peer = 0; peer < size; peer++)
        expect(has(apart + n * peer, n, between(rank, peer)), "Alltoall_c", n, peer);
#endif
    free(apart);
}

static void move(struct buffers *b, MPI_Comm comm)
{
    const int n = b->count, root = b->root;
    fill(b->one, n, rank == root ? 7 : -1);
    MPI_Bcast(b->one, n, MPI_INT, root, comm);
    expect(has(b->one, n, 7), "Bcast", n, root);
    fill(b->one, n, 1000 * rank);
    fill(b->all, n * size, -1);
    MPI_Allgather(b->one, n, MPI_INT, b->all, n, MPI_INT, comm);
    expect(has_blocks(b), "Allgather", n, root);
    fill(b->all, n * size, -1);
    fill(b->all + n * rank, n, 1000 * rank);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b->all, n, MPI_INT, comm);
    expect(has_blocks(b), "Allgather in place", n, root);
    fill(b->all, n * size, -1);
    MPI_Gather(b->one, n, MPI_INT, b->all, n, MPI_INT, root, comm);
    expect(rank != root || has_blocks(b), "Gather", n, root);
    fill(b->one, n, -1);
    MPI_Scatter(b->all, n, MPI_INT, b->one, n, MPI_INT, root, comm);
    expect(has(b->one, n, 1000 * rank), "Scatter", n, root);
    if (rank == root)
        MPI_Scatter(b->all, n, MPI_INT, MPI_IN_PLACE, n, MPI_INT, root, comm);
    else
        MPI_Scatter(NULL, 0, MPI_DATATYPE_NULL, b->one, n, MPI_INT, root, comm);
    expect(rank == root || has(b->one, n, 1000 * rank), "Scatter in place", n, root);
    exchange(b, comm);
    MPI_Barrier(comm);
}

static void reduce(struct buffers *b, MPI_Comm comm)
{
    const int n = b->count, root = b->root;
    fill(b->one, n, rank);
    MPI_Allreduce(b->one, b->all, n, MPI_INT, MPI_SUM, comm);
    expect(has_sum(b->all, n, 0), "Allreduce", n, root);
    MPI_Allreduce(MPI_IN_PLACE, b->one, n, MPI_INT, MPI_SUM, comm);
    expect(has_sum(b->one, n, 0), "Allreduce in place", n, root);
    fill(b->one, n, rank);
    fill(b->all, n, -1);
    MPI_Reduce(b->one, b->all, n, MPI_INT, MPI_SUM, root, comm);
    expect(rank != root || has_sum(b->all, n, 0), "Reduce", n, root);
    fill(b->all, n * size, rank);
    MPI_Reduce_scatter_block(b->all, b->one, n, MPI_INT, MPI_SUM, comm);
    expect(has_sum(b->one, n, n * rank), "Reduce_scatter_block", n, root);
}

/* Compose linear functions: x -> scale x + offset. */
static void compose(void *first, void *then, int *count, MPI_Datatype *datatype)
{
    const double *before = first;
    double *after = then;
    (void)datatype;
    for (int i = 0; i < *count; i++, before += 2, after += 2) {
        after[1] += after[0] * before[1];
        after[0] *= before[0];
    }
}

static void reduce_in_order(struct buffers *b, MPI_Comm comm)
{
    double *functions = malloc(32 * (size_t)b->count + 1), *composed = functions + 2 * b->count;
    double scale = 1, offset = 0;
    MPI_Op op;
    MPI_Datatype pair;
    MPI_Op_create(compose, 0, &op);
    MPI_Type_contiguous(2, MPI_DOUBLE, &pair);
    MPI_Type_commit(&pair);
    for (int i = 0; i < b->count; i++) {
        functions[2 * i] = 1 + rank % 2;
        functions[2 * i + 1] = rank;
    }
    for (int peer = 0; peer < size; peer++) {
        scale *= 1 + peer % 2;
        offset = (1 + peer % 2) * offset + peer;
    }
    MPI_Allreduce(functions, composed, b->count, pair, op, comm);
    for (int i = 0; i < b->count; i++)
        expect(composed[2 * i] == scale && composed[2 * i + 1] == offset, "Allreduce in order",
               b->count, 0);
    MPI_Reduce(functions, composed, b->count, pair, op, b->root, comm);
    for (int i = 0; i < b->count && rank == b->root; i++)
        expect(composed[2 * i] == scale && composed[2 * i + 1] == offset, "Reduce in order",
               b->count, b->root);
    MPI_Type_free(&pair);
    MPI_Op_free(&op);
    free(functions);
}

/* The same in words: the scale is in the upper half, the offset in the lower one. */
static void compose_words(void *first, void *then, int *count, MPI_Datatype *datatype)
{
    const uint32_t *before = first;
    uint32_t *after = then;
    (void)datatype;
    for (int i = 0; i < *count; i++) {
        const uint32_t scale = after[i] >> 16, offset = scale * (before[i] & 0xffff) + after[i];
        after[i] = scale * (before[i] >> 16) << 16 | (offset & 0xffff);
    }
}

static void reduce_words_in_order(struct buffers *b, MPI_Comm comm)
{
    uint32_t *give = (uint32_t *)b->all, *take = (uint32_t *)b->one, all = 1u << 16;
    MPI_Op op;
    MPI_Op_create(compose_words, 0, &op);
    for (int peer = 0; peer < size; peer++) {
        uint32_t mine = (3u + (uint32_t)peer) << 16 | (7u + (uint32_t)peer);
        compose_words(&all, &mine, &(int){1}, NULL);
        all = mine;
    }
    for (int i = 0; i < b->count * size; i++)
        give[i] = (3u + (uint32_t)rank) << 16 | (7u + (uint32_t)rank);
    MPI_Allreduce(give, take, b->count, MPI_UINT32_T, op, comm);
    for (int i = 0; i < b->count; i++)
        expect(take[i] == all, "Allreduce of words in order", b->count, 0);
    MPI_Reduce(give, take, b->count, MPI_UINT32_T, op, b->root, comm);
    for (int i = 0; i < b->count && rank == b->root; i++)
        expect(take[i] == all, "Reduce of words in order", b->count, b->root);
    MPI_Reduce_scatter_block(give, take, b->count, MPI_UINT32_T, op, comm);
    for (int i = 0; i < b->count; i++)
        expect(take[i] == all, "Reduce_scatter_block of words in order", b->count, 0);
    MPI_Op_free(&op);
}

/* Every second integer on odd ranks, consecutive ones on the others: one signature. */
static void move_apart(struct buffers *b, MPI_Comm comm)
{
    if (b->count == 0) /* one block without data and no elements do not fit each other in MPICH */
        return;
    const int n = b->count, stride = rank % 2 ? 2 : 1;
    int *apart = malloc(sizeof *apart * (size_t)(2 * n * size + 1));
    MPI_Datatype every, block;
    MPI_Type_vector(n, 1, stride, MPI_INT, &every);
    MPI_Type_create_resized(every, 0, (MPI_Aint)sizeof(int) * stride * n, &block);
    MPI_Type_commit(&block);
    for (int i = 0; i < n; i++)
        apart[stride * i] = rank == b->root ? i : -1;
    MPI_Bcast(apart, 1, block, b->root, comm);
    for (int i = 0; i < n; i++)
        expect(apart[stride * i] == i, "Bcast of vectors", n, b->root);
    fill(b->one, n, 1000 * rank);
    MPI_Allgather(b->one, n, MPI_INT, apart, 1, block, comm);
    for (int i = 0; i < n * size; i++)
        expect(apart[stride * i] == 1000 * (i / n) + i % n, "Allgather of vectors", n, 0);
    for (int i = 0; i < n * size; i++)
        apart[stride * i] = i / n == rank ? 1000 * rank + i % n : -1;
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, apart, 1, block, comm);
    for (int i = 0; i < n * size; i++)
        expect(apart[stride * i] == 1000 * (i / n) + i % n, "Allgather of vectors in place", n, 0);
    const void *own = rank == b->root ? MPI_IN_PLACE : apart + stride * n * rank;
    for (int i = 0; i < n * size; i++)
        apart[stride * i] -= rank == b->root && i / n != rank;
    MPI_Gather(own, 1, block, apart, 1, block, b->root, comm);
    for (int i = 0; i < n * size; i++)
        expect(apart[stride * i] == 1000 * (i / n) + i % n, "Gather of vectors", n, b->root);
    MPI_Scatter(apart, 1, block, b->one, n, MPI_INT, b->root, comm);
    expect(has(b->one, n, 1000 * rank), "Scatter of vectors", n, b->root);
    for (int i = 0; i < n * size; i++)
        apart[stride * i] = between(rank, i / n) + i % n;
    MPI_Alltoall(apart, 1, block, b->all, n, MPI_INT, comm);
    for (int i = 0; i < n * size; i++)
        expect(b->all[i] == between(i / n, rank) + i % n, "Alltoall of vectors", n, 0);
    MPI_Alltoall(b->all, n, MPI_INT, apart, 1, block, comm);
    for (int i = 0; i < n * size; i++)
        expect(apart[stride * i] == between(rank, i / n) + i % n, "Alltoall to vectors", n, 0);
    MPI_Alltoall(MPI_IN_PLACE, 1, MPI_INT, apart, 1, block, comm);
    for (int i = 0; i < n * size; i++)
        expect(apart[stride * i] == between(i / n, rank) + i % n, "Alltoall of vectors in place", n,
               0);
    MPI_Type_free(&every);
    MPI_Type_free(&block);
    free(apart);
}

#if MPI_VERSION >= 4
static void call_with_large_counts(struct buffers *b, MPI_Comm comm)
{
    const int n = b->count;
    fill(b->one, n, rank == b->root ? 7 : -1);
    MPI_Bcast_c(b->one, n, MPI_INT, b->root, comm);
    expect(has(b->one, n, 7), "Bcast_c", n, b->root);
    fill(b->one, n, rank);
    MPI_Allreduce_c(b->one, b->all, n, MPI_INT, MPI_SUM, comm);
    expect(has_sum(b->all, n, 0), "Allreduce_c", n, b->root);
    MPI_Reduce_c(b->one, b->all, n, MPI_INT, MPI_SUM, b->root, comm);
    expect(rank != b->root || has_sum(b->all, n, 0), "Reduce_c", n, b->root);
    fill(b->all, n * size, rank);
    MPI_Reduce_scatter_block_c(b->all, b->one, n, MPI_INT, MPI_SUM, comm);
    expect(has_sum(b->one, n, n * rank), "Reduce_scatter_block_c", n, b->root);
    fill(b->one, n, 1000 * rank);
    MPI_Allgather_c(b->one, n, MPI_INT, b->all, n, MPI_INT, comm);
    expect(has_blocks(b), "Allgather_c", n, b->root);
    MPI_Gather_c(b->one, n, MPI_INT, b->all, n, MPI_INT, b->root, comm);
    expect(has_blocks(b), "Gather_c", n, b->root);
    MPI_Scatter_c(b->all, n, MPI_INT, b->one, n, MPI_INT, b->root, comm);
    expect(has(b->one, n, 1000 * rank), "Scatter_c", n, b->root);
}
#endif

static void check(MPI_Comm comm)
{
    const int counts[] = {0, 1, 2, 3, 5, 16, 17, 64, 100, 1000, 5000, 40000};
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const size_t nbytes = sizeof(int) * (size_t)(counts[i] * size + 1);
        struct buffers b = {.count = counts[i], .one = malloc(nbytes), .all = malloc(nbytes)};
        for (b.root = 0; b.root < size; b.root++) {
            move(&b, comm);
            reduce(&b, comm);
            reduce_in_order(&b, comm);
            reduce_words_in_order(&b, comm);
            move_apart(&b, comm);
#if MPI_VERSION >= 4
            call_with_large_counts(&b, comm);
#endif
        }
        free(b.one);
        free(b.all);
    }
}

int main(int argc, char **argv)
{
    MPI_Comm half, reversed;
    int total, place;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &place);
    check(MPI_COMM_WORLD);
    MPI_Comm_split(MPI_COMM_WORLD, place % 2, place, &half);
    check(half);
    MPI_Comm_free(&half);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -place, &reversed);
    check(reversed);
    MPI_Comm_free(&reversed);
    check(MPI_COMM_SELF);
    MPI_Allreduce(&errors, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (place == 0)
        puts(total ? "Errors" : "No Errors");
    MPI_Finalize();
    return 0;
}
