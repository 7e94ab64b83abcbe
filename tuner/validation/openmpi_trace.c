/* Record which collective algorithm Open MPI runs. Preloaded into every rank.
 *
 * `ompi_coll_tuned_<collective>_intra_do_this` takes an algorithm by number;
 * `ompi_coll_base_<collective>_intra_<algorithm>` is that algorithm. An algorithm that does not
 * suit a call hands it to another one of the same collective, so the last one that is entered
 * counts. Calls inside a call (an allreduce made of a reduce and a bcast) are not recorded. Calls
 * into which a component before `tuned` divides a call, on communicators of its own, are recorded
 * and marked as such.
 *
 * `tuner_watch` limits this to the calls of one communicator. On request they are only recorded and
 * succeed without running, which shows the library's decisions without moving data.
 *
 * Counts are an int up to Open MPI 5 and a size_t from 6 on; both travel in one register, so all
 * integers in registers are declared size_t here and passed on unchanged.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = -1 };
enum { /* the library's numbers */
    ALLGATHER = 0,
    ALLREDUCE = 2,
    ALLTOALL = 3,
    BARRIER = 6,
    BCAST = 7,
    GATHER = 9,
    REDUCE = 11,
    REDUCE_SCATTER = 12,
    SCATTER = 15
};

/* One call: whether it is on the communicator given to `tuner_expect`, its arguments, the algorithm
 * that was entered last, and the radix or the number of chains of that algorithm, or the most
 * requests in flight. */
struct call {
    int own, collective, asked, faninout, segsize, ran, shape;
};
enum { MOST = 32 }; /* largest number of different calls kept */

static struct call seen[MOST], record;
static int calls;         /* number of calls in `seen` */
static int inside = NONE; /* the collective that is being recorded */
static void *expected;    /* the communicator that calls are expected on */
static void *watched;     /* the communicator whose calls are recorded; NULL: all */
static int dry;           /* whether these calls are only recorded, not run */

/* Mark the calls on this communicator in the records. */
void tuner_expect(void *comm)
{
    expected = comm;
}

/* Record only the calls on this communicator (NULL: all), and run them or not. All its ranks must
 * pass the same `run`. */
void tuner_watch(void *comm, int run)
{
    watched = comm;
    dry = comm && !run;
}

/* Return the library's function of this name: in libmpi, or in the component's own file. */
static void *original(const char *name)
{
    static const char *const files[] = {"libmpi.so.40", "mca_coll_tuned.so"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        void *library = dlopen(files[i], RTLD_NOLOAD | RTLD_LAZY);
        void *function = library ? dlsym(library, name) : NULL;
        if (function)
            return function;
    }
    fprintf(stderr, "interpose: no %s in Open MPI\n", name);
    abort();
}

/* Copy the different calls since the last request, at most 32, to `out`; return their number and
 * clear them. */
int tuner_executed(struct call *out)
{
    int number = calls;
    memcpy(out, seen, number * sizeof *seen);
    calls = 0;
    return number;
}

static int enter(int collective, void *comm, int algorithm, int faninout, int segsize, int shape)
{
    if (inside != NONE || algorithm == 0) /* 0: the library decides and calls again */
        return 0;
    if (watched && comm != watched)
        return 0;
    inside = collective;
    record = (struct call){comm == expected, collective, algorithm, faninout, segsize, NONE, shape};
    return 1;
}

static void leave(int entered)
{
    if (!entered)
        return;
    inside = NONE;
    for (int i = 0; i < calls; i++)
        if (!memcmp(&seen[i], &record, sizeof record))
            return;
    if (calls < MOST)
        seen[calls++] = record;
}

#define FORWARD(name, parameters, arguments)                                                  \
    static int (*real) parameters;                                                            \
    if (!real)                                                                                \
        real = (int(*) parameters) original(name);                                            \
    return real arguments;

#define ASKED(collective, number, shape, parameters, arguments)                               \
    static int real_##collective parameters                                                   \
    {                                                                                         \
        FORWARD("ompi_coll_tuned_" #collective "_intra_do_this", parameters, arguments)       \
    }                                                                                         \
    int ompi_coll_tuned_##collective##_intra_do_this parameters                               \
    {                                                                                         \
        int entered = enter(number, comm, algorithm, faninout, segsize, shape);               \
        int code = entered && dry ? 0 : real_##collective arguments;                          \
        leave(entered);                                                                       \
        return code;                                                                          \
    }

ASKED(bcast, BCAST, NONE,
      (void *buffer, size_t count, void *datatype, size_t root, void *comm, void *module,
       int algorithm, int faninout, int segsize),
      (buffer, count, datatype, root, comm, module, algorithm, faninout, segsize))
ASKED(allreduce, ALLREDUCE, NONE,
      (const void *send, void *receive, size_t count, void *datatype, void *op, void *comm,
       void *module, int algorithm, int faninout, int segsize),
      (send, receive, count, datatype, op, comm, module, algorithm, faninout, segsize))
ASKED(allgather, ALLGATHER, NONE,
      (const void *send, size_t sent, void *sent_type, void *receive, size_t received,
       void *received_type, void *comm, void *module, int algorithm, int faninout, int segsize),
      (send, sent, sent_type, receive, received, received_type, comm, module, algorithm, faninout,
       segsize))
ASKED(reduce, REDUCE, NONE,
      (const void *send, void *receive, size_t count, void *datatype, void *op, size_t root,
       void *comm, void *module, int algorithm, int faninout, int segsize, int requests),
      (send, receive, count, datatype, op, root, comm, module, algorithm, faninout, segsize,
       requests))
/* None of the algorithms of the others hands a call to another one. */
ASKED(reduce_scatter, REDUCE_SCATTER, NONE,
      (const void *send, void *receive, const void *counts, void *datatype, void *op, void *comm,
       void *module, int algorithm, int faninout, int segsize),
      (send, receive, counts, datatype, op, comm, module, algorithm, faninout, segsize))
#define ASKED_ROOTED(collective, number)                                                      \
    ASKED(collective, number, NONE,                                                           \
          (const void *send, size_t sent, void *sent_type, void *receive, size_t received,    \
           void *received_type, size_t root, void *comm, void *module, int algorithm,         \
           int faninout, int segsize),                                                        \
          (send, sent, sent_type, receive, received, received_type, root, comm, module,       \
           algorithm, faninout, segsize))
ASKED_ROOTED(gather, GATHER)
ASKED_ROOTED(scatter, SCATTER)
ASKED(barrier, BARRIER, NONE,
      (void *comm, void *module, int algorithm, int faninout, int segsize),
      (comm, module, algorithm, faninout, segsize))
ASKED(alltoall, ALLTOALL, requests,
      (const void *send, size_t sent, void *sent_type, void *receive, size_t received,
       void *received_type, void *comm, void *module, int algorithm, int faninout, int segsize,
       int requests),
      (send, sent, sent_type, receive, received, received_type, comm, module, algorithm, faninout,
       segsize, requests))

#define RAN(collective, number, algorithm, id, given, parameters, arguments)                  \
    int ompi_coll_base_##collective##_intra_##algorithm parameters                            \
    {                                                                                         \
        if (inside == number) {                                                               \
            record.ran = id;                                                                  \
            record.shape = given;                                                             \
        }                                                                                     \
        FORWARD("ompi_coll_base_" #collective "_intra_" #algorithm, parameters, arguments)    \
    }
#define PLAIN_BCAST(algorithm, id)                                                            \
    RAN(bcast, BCAST, algorithm, id, NONE,                                                    \
        (void *buffer, size_t count, void *datatype, size_t root, void *comm, void *module),  \
        (buffer, count, datatype, root, comm, module))
#define SEGMENTED_BCAST(algorithm, id)                                                        \
    RAN(bcast, BCAST, algorithm, id, NONE,                                                    \
        (void *buffer, size_t count, void *datatype, size_t root, void *comm, void *module,   \
         uint32_t segsize),                                                                   \
        (buffer, count, datatype, root, comm, module, segsize))
#define SHAPED_BCAST(algorithm, id)                                                           \
    RAN(bcast, BCAST, algorithm, id, shape,                                                   \
        (void *buffer, size_t count, void *datatype, size_t root, void *comm, void *module,   \
         uint32_t segsize, int shape),                                                        \
        (buffer, count, datatype, root, comm, module, segsize, shape))
#define PLAIN_ALLREDUCE(algorithm, id)                                                        \
    RAN(allreduce, ALLREDUCE, algorithm, id, NONE,                                            \
        (const void *send, void *receive, size_t count, void *datatype, void *op, void *comm, \
         void *module),                                                                       \
        (send, receive, count, datatype, op, comm, module))

PLAIN_BCAST(basic_linear, 1)
SHAPED_BCAST(chain, 2)
SEGMENTED_BCAST(pipeline, 3)
SEGMENTED_BCAST(split_bintree, 4)
SEGMENTED_BCAST(bintree, 5)
SEGMENTED_BCAST(binomial, 6)
SHAPED_BCAST(knomial, 7)
SEGMENTED_BCAST(scatter_allgather, 8)
SEGMENTED_BCAST(scatter_allgather_ring, 9)
PLAIN_ALLREDUCE(basic_linear, 1)
PLAIN_ALLREDUCE(nonoverlapping, 2)
PLAIN_ALLREDUCE(recursivedoubling, 3)
PLAIN_ALLREDUCE(ring, 4)
RAN(allreduce, ALLREDUCE, ring_segmented, 5, NONE,
    (const void *send, void *receive, size_t count, void *datatype, void *op, void *comm,
     void *module, uint32_t segsize),
    (send, receive, count, datatype, op, comm, module, segsize))
PLAIN_ALLREDUCE(redscat_allgather, 6)

/* Only those that others hand calls to. */
#define PLAIN_ALLGATHER(algorithm, id)                                                        \
    RAN(allgather, ALLGATHER, algorithm, id, NONE,                                            \
        (const void *send, size_t sent, void *sent_type, void *receive, size_t received,      \
         void *received_type, void *comm, void *module),                                      \
        (send, sent, sent_type, receive, received, received_type, comm, module))

PLAIN_ALLGATHER(bruck, 2)
RAN(allgather, ALLGATHER, k_bruck, 2, NONE, /* its name from Open MPI 6 on */
    (const void *send, size_t sent, void *sent_type, void *receive, size_t received,
     void *received_type, void *comm, void *module, int radix),
    (send, sent, sent_type, receive, received, received_type, comm, module, radix))
PLAIN_ALLGATHER(ring, 4)
RAN(reduce, REDUCE, basic_linear, 1, NONE,
    (const void *send, void *receive, size_t count, void *datatype, void *op, size_t root,
     void *comm, void *module),
    (send, receive, count, datatype, op, root, comm, module))
