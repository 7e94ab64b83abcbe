/* A dispatcher of MPI's collectives that is loaded before a program: what its files share.
 *
 * The program's calls arrive in wrappers.c, which is generated. `find_communicator` says whether
 * the table has rules for a communicator; `follow` finds the rule of a call by its size and has the
 * library make the call, or the library under other settings (forcing.c), or one of our schedules
 * (schedule.c). Every choice depends only on what is the same on all ranks of a communicator. When
 * in doubt, the library makes the call as if we were not there. */

#ifndef TUNER_H
#define TUNER_H

#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "generated.h"

#define EXPORTED __attribute__((visibility("default"))) /* what programs call */

enum { DST_OP_ARRIVING = 1, ARRIVING_OP_DST = 2 }; /* codes of reductions in schedules */
enum { SOURCE_SHIFTED = 1, TARGET_SHIFTED = 2 };   /* bits of instructions */

struct call;
struct collective {
    const char *name;
    int (*library)(const struct call *); /* the library's own function */
    bool is_rooted, reduces, has_data, has_one_buffer, has_blocks;
    bool scatters;    /* each rank has its block after the call */
    bool exchanges;   /* each rank has a block for each rank before the call */
    bool is_ragged;   /* blocks have lengths of their own */
    bool others_give; /* ranks other than the root have data before the call */
    bool others_take; /* ranks other than the root have data after the call */
};

extern const struct collective collectives[N_COLLECTIVES];

/* Return for how many of the ranks the send buffer of a collective that moves data has a block. */
static inline int blocks_sent(const struct collective *record, int size)
{
    return record->scatters || record->exchanges ? size : 1;
}

/* Return whether a forced call of the library has the program's arguments. Others move bytes. */
static inline bool is_passed_on(const struct collective *record)
{
    return record->reduces || record->is_ragged || !record->has_data;
}

/* What a collective is compared with: others that do the same, or itself with other sizes. */
struct side {
    int collective, first, second; /* `second` is -1 for none */
    int halves;                    /* bytes of each call, as multiples of half of its bytes */
};
extern const struct side sides[N_SIDES];

/* The arguments of a call, and the function that passes them to the library. */
struct call {
    int (*library)(const struct call *);
    int collective;
    uint32_t choice; /* that it followed; LEFT_CHOICE until then */
    int root;
    const void *send;
    void *receive;
    MPI_Count send_count, receive_count;
    const void *send_counts, *send_places, *receive_counts, *receive_places; /* of ragged calls */
    MPI_Datatype send_type, receive_type;
    MPI_Op op;
    MPI_Comm comm;
    bool sends_from_device, receives_on_device; /* known where a schedule is to run */
};

/* Memory that grows and is kept for the next call. */
struct memory {
    char *bytes;
    size_t size;
};
enum { WHOLE, GIVEN, SCRATCH, PACKED_SEND, PACKED_RECEIVE, N_MEMORIES };

/* What a communicator has for one choice of the table. */
enum { UNTRIED, READY, LEFT_TO_LIBRARY };
struct binding {
    int state;
    MPI_Comm comm; /* whose collectives the library runs as the choice says, or for messages */
};

/* Ranks on nodes; none per node where they are irregular. */
struct layout {
    int32_t nodes, ppn, is_cyclic;
};

/* Bytes over the whole buffer. */
struct volume {
    int64_t least, most;
};

struct communicator {
    _Atomic(MPI_Comm) handle;
    bool follows[N_COLLECTIVES];
    const struct shape *shape; /* NULL where the table has no rules */
    struct layout layout;      /* where it is of use */
    bool is_recorded;          /* whether the times of calls are taken */
    uint64_t recorded;         /* calls so far */
    int rank, size;
    bool is_world;
    bool has_called;        /* the first call of a derived communicator is the library's */
    double library_seconds; /* that its calls have taken, by the table, while it is not set up */
    uint64_t ragged_calls;  /* so far */
    struct volume volume;   /* of those on this rank since the ranks have last agreed */
    const struct rule *ragged_rule; /* on which they then agreed; NULL for none */
    MPI_Comm messages;      /* for the messages of schedules; MPI_COMM_NULL until needed */
    struct binding *bindings; /* by choice; NULL until needed */
    struct memory memories[N_MEMORIES];
    MPI_Request *requests;
    char **slots;
    uint32_t n_requests, n_slots;
    struct communicator *next; /* in the list of those that are free */
};

/* communicators.c */
enum { CACHE_SIZE = 64 };
extern _Atomic(struct communicator *) communicator_cache[CACHE_SIZE];
struct communicator *look_up_communicator(MPI_Comm comm);
int set_up(struct communicator *known, const struct choice *choice, bool has_device);
bool start_communicators(void);
MPI_Comm create_with_layout(MPI_Comm comm, struct layout layout);
void end_communicators(void);
void resolve_communicators(void);

static inline size_t slot_of_handle(uintptr_t handle)
{
    return (handle ^ handle >> 6 ^ handle >> 12) % CACHE_SIZE;
}

static inline struct communicator *find_communicator(MPI_Comm comm)
{
    struct communicator *known = atomic_load_explicit(
        &communicator_cache[slot_of_handle((uintptr_t)comm)], memory_order_acquire);
    if (known && atomic_load_explicit(&known->handle, memory_order_relaxed) == comm)
        return known;
    return look_up_communicator(comm);
}

/* table.c */
struct table {
    const struct header *header;
    const struct shape *shapes;
    const struct rule *rules;
    const struct choice *choices;
    const struct setting *settings;
    const struct variant *variants;
    const struct program *programs;
    const struct pattern *patterns;
    const struct instruction *instructions;
    const char *strings;
    size_t n_shapes, n_choices, n_rules, n_settings;
};
extern struct table table;
extern _Atomic uint64_t *rule_calls; /* how often each was followed; then, how often none was */
const char *open_table(const char *path, const void **content, size_t *size);
const char *use_table(const void *content, size_t size);

/* datatypes.c */
struct element {
    int64_t size;   /* bytes of data */
    int64_t extent; /* bytes from one to the next */
    bool is_predefined;
};
/* Say whether elements follow one another without gaps, in the order of their bytes. */
static inline bool is_dense(const struct element *element)
{
    return element->is_predefined && element->size == element->extent;
}

enum { PREDEFINED = 128 }; /* a power of two; some forty handles are predefined */
struct predefined_datatype {
    MPI_Datatype datatype;
    int32_t size, extent;
};
extern struct predefined_datatype predefined_datatypes[PREDEFINED];
extern MPI_Op predefined_operators[PREDEFINED]; /* all of them commute */
void start_datatypes(void);
bool describe_element(MPI_Datatype datatype, struct element *element);
int64_t measure_size(MPI_Datatype datatype);
bool measure_commutative(MPI_Op op);
bool is_reducible(MPI_Op op, MPI_Datatype datatype);
bool is_committed(MPI_Datatype datatype);

static inline size_t slot_of_predefined(uintptr_t handle)
{
    return (handle ^ handle >> 5 ^ handle >> 11) % PREDEFINED;
}

static inline bool is_commutative(MPI_Op op)
{
    return predefined_operators[slot_of_predefined((uintptr_t)op)] == op || measure_commutative(op);
}

/* Return the bytes of a signature; less than 0 for arguments that the library refuses. */
static inline int64_t signature_bytes(MPI_Count count, MPI_Datatype datatype)
{
    const struct predefined_datatype *known =
        &predefined_datatypes[slot_of_predefined((uintptr_t)datatype)];
    const int64_t size = known->datatype == datatype ? known->size : measure_size(datatype);
    return count < 0 || size < 0 ? -1 : count * size;
}

/* dispatch.c: the first choice of a table is the library's default */
enum { LEFT_CHOICE = 0 };
extern double tune_after_seconds;
int follow(struct call *call, struct communicator *known, const struct rule *rule, int64_t nbytes);
void prepare_world(void);

/* Return the rule for a call of `nbytes` bytes over the whole buffer; NULL for none. */
static inline const struct rule *find_rule(const struct communicator *known, int list,
                                           int64_t nbytes)
{
    if (!known->shape || known->shape->n_rules[list] == 0 || nbytes < 0)
        return NULL;
    const struct rule *rules = &table.rules[known->shape->first_rule[list]];
    uint32_t low = 0, high = known->shape->n_rules[list];
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (rules[middle].start_bytes <= (uint64_t)nbytes)
            low = middle;
        else
            high = middle;
    }
    return &rules[low];
}

/* ragged.c */
extern int64_t agreement_interval; /* calls from one agreement to the next, on average; 0: none */
extern _Atomic uint64_t undecided_agreements; /* that found several choices for the sizes */
int64_t add_up_bytes(const void *counts, size_t count_size, int size, MPI_Datatype datatype);
const struct rule *find_ragged_rule(const struct call *call, struct communicator *known, int list,
                                    size_t count_size, int64_t *nbytes);

/* forcing.c */
enum { LEAVE, RUN_SCHEDULE, FORCE_HERE, FORCE_ON_DUPLICATE };
struct plan {
    int action;        /* the same on all ranks */
    uint32_t n_writes; /* variables to write around each call */
    const struct variable **writes;
};
extern struct plan *plans; /* by choice */
const char *open_plans(void);
void start_plans(int rank);
void end_plans(void);
MPI_Comm duplicate_forced(MPI_Comm comm, const struct choice *choice);
int call_forced(struct call *call, struct communicator *known, const struct plan *plan);

/* schedule.c */
enum { NOT_APPLICABLE = -1 }; /* where other functions return an error code of MPI */
int call_scheduled(struct call *call, struct communicator *known, const struct choice *choice,
                   int64_t nbytes);

/* devices.c */
void find_devices(struct call *call);
int copy_by_message(const struct communicator *known, const void *from, MPI_Count count,
                    MPI_Datatype datatype, void *into, MPI_Count into_count,
                    MPI_Datatype into_datatype);

/* record.c */
/* Calls of one kind on one rank; times in seconds. */
struct kind {
    int64_t nbytes;
    struct layout layout;
    int32_t collective, commutes;
    uint32_t choice; /* of the table, that they followed */
    uint64_t calls, samples;
    double seconds, least, median, most;
    double sampled, waiting; /* of the samples: whole times, and until the last rank arrived */
};
extern bool is_recording;
int record(struct call *call, struct communicator *known, const struct rule *rule, int64_t nbytes);
bool start_recording(bool has_table);
void write_record(void);

/* guidelines.c */
void try_guidelines(FILE *file, struct kind *kinds, size_t n_kinds, MPI_Comm comm);

/* packing.c */
extern MPI_Comm packing; /* of this process alone; errors on it are not the program's */
void start_packing(void);
void end_packing(void);
char *reserve(struct memory *memory, size_t size);
void give_back(struct communicator *known, size_t limit);
int pack(const void *buffer, MPI_Count count, MPI_Datatype datatype, char *into, size_t nbytes);
int unpack(const char *from, size_t nbytes, void *buffer, MPI_Count count, MPI_Datatype datatype);

/* report.c */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void write_report(double seconds);

/* start.c, wrappers.c */
extern int thread_level;
void resolve(const char *name, void **library, void **tool);
void resolve_collectives(void);
int library_allreduce(void *values, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm);
int library_allgather(const void *mine, void *all, int count, MPI_Datatype datatype,
                      MPI_Comm comm);
int library_barrier(MPI_Comm comm);
int library_bcast(void *values, int count, MPI_Datatype datatype, MPI_Comm comm);
int library_reduce(const void *values, void *sums, int count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm);

#endif
