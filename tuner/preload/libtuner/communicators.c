/* What is known of each communicator: which rules it has, and what was set up for them.
 *
 * It is kept as an attribute of the communicator, so that it goes with it however it is freed, and
 * in a cache by handle for the next call. Which rules a communicator has follows from its group
 * alone, without messages: the nodes of all ranks are known since MPI was initialised. */

#include "tuner.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HELD = 256 }; /* communicators of ours in a process; MPICH has some 2,000 in all */

_Atomic(struct communicator *) communicator_cache[CACHE_SIZE];
static struct communicator untuned; /* for all communicators without rules of their own */
static struct communicator *free_list;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int keyval = MPI_KEYVAL_INVALID;
static MPI_Group world_group;
static int *node_of_rank; /* number of the node of each rank of MPI_COMM_WORLD */
static int *ranks, *places, *firsts, *first_on_node; /* as many; for whoever holds the lock */
static int world_size, n_nodes;
static atomic_int held;
static _Thread_local MPI_Comm dying = MPI_COMM_NULL; /* what this thread is freeing */

/* Return a record for a communicator. Records are used again but never freed: other threads may be
 * looking at one, and find that it is not for theirs. */
static struct communicator *new_record(void)
{
    pthread_mutex_lock(&lock);
    struct communicator *made = free_list;
    if (made)
        free_list = made->next;
    pthread_mutex_unlock(&lock);
    return made ? made : calloc(1, sizeof *made);
}

static void free_comm(MPI_Comm *comm)
{
    if (*comm == MPI_COMM_NULL)
        return;
    PMPI_Comm_free(comm);
    atomic_fetch_sub(&held, 1);
}

static void release(struct communicator *known)
{
    for (size_t i = 0; known->bindings && i < table.n_choices; i++)
        if (known->bindings[i].comm != known->messages)
            free_comm(&known->bindings[i].comm);
    free_comm(&known->messages);
    free(known->bindings);
    free(known->requests);
    free(known->slots);
    give_back(known, 0);
}

/* Called by MPI when a communicator is freed; collective as that is. */
static int forget(MPI_Comm comm, int key, void *value, void *unused)
{
    (void)key, (void)unused;
    struct communicator *known = value;
    struct communicator *expected = known;
    atomic_compare_exchange_strong(&communicator_cache[slot_of_handle((uintptr_t)comm)], &expected,
                                   NULL);
    release(known);
    atomic_store(&known->handle, MPI_COMM_NULL);
    pthread_mutex_lock(&lock);
    struct communicator *rest = free_list;
    memset((char *)known + sizeof known->handle, 0, sizeof *known - sizeof known->handle);
    known->next = rest;
    free_list = known;
    pthread_mutex_unlock(&lock);
    return MPI_SUCCESS;
}

/* Return the layout of ranks whose nodes have the lowest ranks `firsts`: equally many on each node,
 * in blocks or cyclic. An irregular one has no ranks per node. */
static struct layout layout_on(int size)
{
    struct layout layout = {0};
    for (int rank = 0; rank < size; rank++)
        layout.nodes += firsts[rank] == rank;
    if (size % layout.nodes)
        return layout;
    const int ppn = size / layout.nodes;
    bool is_block = true, is_cyclic = true;
    for (int rank = 0; rank < size; rank++) {
        is_block = is_block && firsts[rank] == rank / ppn * ppn;
        is_cyclic = is_cyclic && firsts[rank] == rank % layout.nodes;
    }
    layout.ppn = is_block || is_cyclic ? ppn : 0;
    layout.is_cyclic = !is_block;
    return layout;
}

/* Find the lowest rank on the node of each rank by its place in MPI_COMM_WORLD; false where not all
 * have one. */
static bool find_firsts(int size)
{
    for (int node = 0; node < n_nodes; node++)
        first_on_node[node] = -1;
    for (int rank = 0; rank < size; rank++) {
        if (places[rank] == MPI_UNDEFINED)
            return false;
        int *first = &first_on_node[node_of_rank[places[rank]]];
        if (*first < 0)
            *first = rank;
        firsts[rank] = *first;
    }
    return true;
}

/* Return the layout of a communicator; without nodes where not all its ranks are known. */
static struct layout find_layout(MPI_Comm comm, int size)
{
    struct layout layout = {0};
    MPI_Group group;
    if (size > world_size || PMPI_Comm_group(comm, &group) != MPI_SUCCESS)
        return layout;
    pthread_mutex_lock(&lock);
    for (int rank = 0; rank < size; rank++)
        ranks[rank] = rank;
    if (PMPI_Group_translate_ranks(group, size, ranks, world_group, places) == MPI_SUCCESS
        && find_firsts(size))
        layout = layout_on(size);
    pthread_mutex_unlock(&lock);
    PMPI_Group_free(&group);
    return layout;
}

/* Create a communicator of the first ranks of a larger one that have a layout; MPI_COMM_NULL on
 * other ranks, and where there are too few. Collective over the larger one. */
MPI_Comm create_with_layout(MPI_Comm comm, struct layout layout)
{
    int rank, on_node = 0, is_member, members;
    MPI_Comm made = MPI_COMM_NULL;
    PMPI_Comm_rank(comm, &rank); /* the same as in MPI_COMM_WORLD */
    const int node = node_of_rank[rank];
    for (int i = 0; i < rank; i++)
        on_node += node_of_rank[i] == node;
    is_member = members = node < layout.nodes && on_node < layout.ppn;
    library_allreduce(&members, 1, MPI_INT, MPI_SUM, comm);
    const int key = layout.is_cyclic ? on_node * layout.nodes + node
                                     : node * layout.ppn + on_node;
    if (members == layout.nodes * layout.ppn
        && PMPI_Comm_split(comm, is_member ? 0 : MPI_UNDEFINED, key, &made) != MPI_SUCCESS)
        made = MPI_COMM_NULL;
    return made;
}

/* Return the rules for a layout; NULL where the table has none. */
static const struct shape *find_shape(struct layout layout)
{
    for (size_t i = 0; layout.ppn && i < table.n_shapes; i++) {
        const struct shape *shape = &table.shapes[i];
        if (shape->nodes == layout.nodes && shape->ppn == layout.ppn
            && shape->is_cyclic == layout.is_cyclic)
            return shape;
    }
    return NULL;
}

/* Return whether a layout of so many ranks is of use. */
static bool has_use(int size)
{
    for (size_t i = 0; i < table.n_shapes; i++)
        if ((int64_t)table.shapes[i].nodes * table.shapes[i].ppn == size)
            return true;
    return is_recording;
}

static void describe(struct communicator *known, MPI_Comm comm)
{
    PMPI_Comm_size(comm, &known->size);
    PMPI_Comm_rank(comm, &known->rank);
    known->messages = MPI_COMM_NULL;
    if (has_use(known->size))
        known->layout = find_layout(comm, known->size);
    known->shape = find_shape(known->layout);
    known->is_recorded = is_recording && known->layout.nodes;
    for (int i = 0; i < N_COLLECTIVES; i++)
        known->follows[i] = known->is_recorded;
    if (!known->shape)
        return;
    known->is_world = comm == MPI_COMM_WORLD;
    for (int i = 0; i < N_COLLECTIVES; i++)
        known->follows[i] = known->is_recorded || known->shape->n_rules[2 * i]
                            || known->shape->n_rules[2 * i + 1];
}

/* Return what is known of a communicator that is not in the cache. */
struct communicator *look_up_communicator(MPI_Comm comm)
{
    struct communicator *known = NULL;
    int is_found = 0, is_inter = 0;
    if (keyval == MPI_KEYVAL_INVALID || comm == MPI_COMM_NULL
        || PMPI_Comm_get_attr(comm, keyval, &known, &is_found) != MPI_SUCCESS)
        return &untuned;
    if (!is_found) {
        if (comm == dying || PMPI_Comm_test_inter(comm, &is_inter) != MPI_SUCCESS || is_inter)
            return &untuned;
        known = new_record();
        if (!known)
            return &untuned;
        describe(known, comm);
        if (PMPI_Comm_set_attr(comm, keyval, known) != MPI_SUCCESS) {
            forget(comm, keyval, known, NULL);
            return &untuned;
        }
        atomic_store(&known->handle, comm);
    }
    atomic_store(&communicator_cache[slot_of_handle((uintptr_t)comm)], known);
    return known;
}

/* Return whether all ranks say yes; collective. */
static bool all_agree(MPI_Comm comm, bool yes)
{
    int value = yes;
    return library_allreduce(&value, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && value;
}

/* Create a communicator on all ranks or on none; collective. The program hears of no error, unless
 * its threads could meanwhile have errors of their own on the communicator. */
static MPI_Comm create(MPI_Comm comm, const struct choice *forced)
{
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    if (!all_agree(comm, atomic_load(&held) < MAX_HELD))
        return MPI_COMM_NULL;
    if (thread_level != MPI_THREAD_MULTIPLE) {
        PMPI_Comm_get_errhandler(comm, &handler);
        PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    }
    if (forced)
        made = duplicate_forced(comm, forced);
    else {
        int rank;
        PMPI_Comm_rank(comm, &rank); /* a split has none of the program's attributes */
        if (PMPI_Comm_split(comm, 0, rank, &made) != MPI_SUCCESS)
            made = MPI_COMM_NULL;
    }
    bool agree = all_agree(comm, made != MPI_COMM_NULL);
    if (made != MPI_COMM_NULL && !agree)
        PMPI_Comm_free(&made);
    if (handler != MPI_ERRHANDLER_NULL) {
        PMPI_Comm_set_errhandler(comm, handler);
        PMPI_Errhandler_free(&handler);
    }
    if (agree) {
        PMPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
        atomic_fetch_add(&held, 1);
    }
    return agree ? made : MPI_COMM_NULL;
}

/* Give a communicator what all its choices need; collective. Where a rank cannot, the library makes
 * all calls on it from now on. */
static bool prepare(struct communicator *known, MPI_Comm comm)
{
    known->bindings = malloc(table.n_choices * sizeof *known->bindings);
    for (size_t i = 0; known->bindings && i < table.n_choices; i++)
        known->bindings[i] = (struct binding){UNTRIED, MPI_COMM_NULL};
    if (all_agree(comm, known->bindings != NULL))
        known->messages = create(comm, NULL);
    if (known->messages != MPI_COMM_NULL)
        return true;
    known->shape = NULL;
    for (int i = 0; i < N_COLLECTIVES; i++)
        known->follows[i] = known->is_recorded;
    if (known->rank == 0)
        say("no further communicators: calls on %d ranks are left to the library", known->size);
    return false;
}

/* Return the communicator on which a choice runs; MPI_COMM_NULL, on all ranks, where it cannot. */
static MPI_Comm communicator_for(struct communicator *known, const struct choice *choice,
                                 bool has_device)
{
    if (choice->kind != SCHEDULE_KIND)
        return create(known->messages, choice);
    return all_agree(known->messages, !has_device) ? known->messages : MPI_COMM_NULL;
}

/* Set up a choice on a communicator; collective. Returns its state, the same on all ranks.
 * `has_device` says whether buffers of this rank's first call are on a device: then the library,
 * which moves data of devices without the host, makes all calls of a schedule. Device buffers of
 * later calls are copied. */
int set_up(struct communicator *known, const struct choice *choice, bool has_device)
{
    if (known->messages == MPI_COMM_NULL && !prepare(known, atomic_load(&known->handle)))
        return LEFT_TO_LIBRARY;
    struct binding *binding = &known->bindings[choice - table.choices];
    binding->comm = communicator_for(known, choice, has_device);
    binding->state = binding->comm == MPI_COMM_NULL ? LEFT_TO_LIBRARY : READY;
    if (binding->state == LEFT_TO_LIBRARY && known->rank == 0)
        say("%s cannot be %s: its calls on %d ranks are left to the library",
            table.strings + choice->name,
            choice->kind == SCHEDULE_KIND ? "run on buffers that may be on a device" : "forced",
            known->size);
    return binding->state;
}

/* Find out on which node each rank is; collective over MPI_COMM_WORLD. */
bool start_communicators(void)
{
    int rank, first;
    MPI_Comm node;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &world_size);
    node_of_rank = malloc(5 * sizeof *node_of_rank * (size_t)world_size);
    if (!all_agree(MPI_COMM_WORLD, node_of_rank != NULL)
        || PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node))
        return false;
    ranks = node_of_rank + world_size;
    places = ranks + world_size;
    firsts = places + world_size;
    first_on_node = firsts + world_size;
    first = rank;
    library_bcast(&first, 1, MPI_INT, node);
    PMPI_Comm_free(&node);
    library_allgather(&first, node_of_rank, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < world_size; i++) /* the lowest rank on a node comes before the others */
        node_of_rank[i] = node_of_rank[i] == i ? n_nodes++ : node_of_rank[node_of_rank[i]];
    PMPI_Comm_group(MPI_COMM_WORLD, &world_group);
    return PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &keyval, NULL) == MPI_SUCCESS;
}

/* Leave all calls to the library from now on; collective over MPI_COMM_WORLD. */
void end_communicators(void)
{
    const MPI_Comm predefined[] = {MPI_COMM_SELF, MPI_COMM_WORLD};
    for (int i = 0; i < 2; i++) {
        struct communicator *known;
        int is_found = 0;
        PMPI_Comm_get_attr(predefined[i], keyval, &known, &is_found);
        if (is_found)
            PMPI_Comm_delete_attr(predefined[i], keyval);
    }
    PMPI_Group_free(&world_group);
    keyval = MPI_KEYVAL_INVALID;
    for (int i = 0; i < CACHE_SIZE; i++)
        atomic_store(&communicator_cache[i], NULL);
    free(node_of_rank);
}

static int (*library_Comm_free)(MPI_Comm *), (*tool_Comm_free)(MPI_Comm *);
static int (*library_Comm_disconnect)(MPI_Comm *), (*tool_Comm_disconnect)(MPI_Comm *);

void resolve_communicators(void)
{
    resolve("Comm_free", (void **)&library_Comm_free, (void **)&tool_Comm_free);
    resolve("Comm_disconnect", (void **)&library_Comm_disconnect, (void **)&tool_Comm_disconnect);
}

/* Free a communicator. Attributes of the program may be deleted after ours, by functions that call
 * collectives: the handle, which is soon another communicator's, must not be described anew. */
static int end_communicator(MPI_Comm *comm, int (*library)(MPI_Comm *))
{
    const MPI_Comm outer = dying;
    dying = comm ? *comm : MPI_COMM_NULL;
    int code = library(comm);
    dying = outer;
    return code;
}

EXPORTED int PMPI_Comm_free(MPI_Comm *comm)
{
    return end_communicator(comm, library_Comm_free);
}

EXPORTED int MPI_Comm_free(MPI_Comm *comm)
{
    return tool_Comm_free ? tool_Comm_free(comm) : PMPI_Comm_free(comm);
}

EXPORTED int PMPI_Comm_disconnect(MPI_Comm *comm)
{
    return end_communicator(comm, library_Comm_disconnect);
}

EXPORTED int MPI_Comm_disconnect(MPI_Comm *comm)
{
    return tool_Comm_disconnect ? tool_Comm_disconnect(comm) : PMPI_Comm_disconnect(comm);
}
