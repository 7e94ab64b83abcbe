/* Calls whose blocks have lengths of their own.
 *
 * Where each rank states all of them, their sum is the same on all ranks, and decides. Where none
 * knows those of others, each rank keeps the least and the most bytes of its calls. In some calls
 * the ranks of a communicator exchange them: until the next such call they follow the choice for
 * these sizes, if it is one, else the library decides. Ranks make the same sequence of calls on a
 * communicator, as MPI requires, and count them alike: all agree in the same call, or none does. */

#include "tuner.h"

#include <limits.h>

int64_t agreement_interval;
_Atomic uint64_t undecided_agreements;

/* Return one of a call's counts, which are ints or, with large counts, MPI_Count. */
static int64_t count_of(const void *counts, size_t count_size, int rank)
{
    return count_size == sizeof(int) ? ((const int *)counts)[rank]
                                     : (int64_t)((const MPI_Count *)counts)[rank];
}

/* Return the bytes of all blocks; less than 0 for arguments that the library refuses. */
int64_t add_up_bytes(const void *counts, size_t count_size, int size, MPI_Datatype datatype)
{
    int64_t total = counts ? 0 : -1;
    for (int rank = 0; total >= 0 && rank < size; rank++) {
        const int64_t count = count_of(counts, count_size, rank);
        total = count < 0 ? -1 : total + count;
    }
    return signature_bytes((MPI_Count)total, datatype);
}

/* Add the bytes of one side of a call; false for arguments that the library refuses. As with blocks
 * of one length, the largest block stands for one to each rank: what is sent to few ranks takes
 * longer than as much to all. */
static bool add_side(struct volume *volume, int size, const void *counts, size_t count_size,
                     MPI_Datatype datatype)
{
    int64_t total = 0, largest = 0;
    struct element element;
    if (!counts || !describe_element(datatype, &element))
        return false;
    for (int rank = 0; rank < size; rank++) {
        const int64_t count = count_of(counts, count_size, rank);
        if (count < 0)
            return false;
        total += count;
        largest = count > largest ? count : largest;
    }
    total *= element.size;
    largest *= element.size * size;
    volume->least = total < volume->least ? total : volume->least;
    volume->most = largest > volume->most ? largest : volume->most;
    return true;
}

/* Return the least and the most bytes of a call on this rank; all sizes for arguments that the
 * library refuses. */
static struct volume measure_volume(const struct call *call, int size, size_t count_size)
{
    struct volume volume = {INT64_MAX, 0};
    if (add_side(&volume, size, call->receive_counts, count_size, call->receive_type)
        && (call->send == MPI_IN_PLACE
            || add_side(&volume, size, call->send_counts, count_size, call->send_type)))
        return volume;
    return (struct volume){0, INT64_MAX};
}

/* Return the rule for all sizes of a volume; NULL where several choices are for them. */
static const struct rule *find_common_rule(const struct communicator *known, int list,
                                           struct volume volume)
{
    const struct rule *first = find_rule(known, list, volume.least);
    const struct rule *last = find_rule(known, list, volume.most);
    for (const struct rule *rule = first; rule && rule <= last; rule++)
        if (rule->choice != first->choice)
            return NULL;
    return first;
}

/* Return whether the ranks agree in this call: in irregular intervals, since programs repeat
 * sequences of calls. */
static bool is_due(struct communicator *known)
{
    const uint64_t number = ++known->ragged_calls;
    return number * 0x9e3779b97f4a7c15u >> 32 < (1ull << 32) / (uint64_t)agreement_interval;
}

/* Return the rule that all ranks follow from now on; collective. */
static const struct rule *agree_on_rule(const struct communicator *known, int list)
{
    int64_t sizes[2] = {-known->volume.least, known->volume.most};
    const MPI_Comm comm = atomic_load(&known->handle);
    const bool agree = library_allreduce(sizes, 2, MPI_INT64_T, MPI_MAX, comm) == MPI_SUCCESS;
    const struct volume all = {-sizes[0], sizes[1]};
    const struct rule *common = agree ? find_common_rule(known, list, all) : NULL;
    if (agree && !common)
        atomic_fetch_add(&undecided_agreements, 1);
    return common;
}

/* Return the rule for a ragged call, and its most bytes on this rank, less than 0 for arguments that
 * the library refuses. Without agreements a choice for all sizes counts. */
const struct rule *find_ragged_rule(const struct call *call, struct communicator *known, int list,
                                    size_t count_size, int64_t *nbytes)
{
    const struct volume own = measure_volume(call, known->size, count_size);
    *nbytes = own.most == INT64_MAX ? -1 : own.most;
    if (!known->shape || known->shape->n_rules[list] == 0)
        return NULL;
    if (agreement_interval == 0)
        return find_common_rule(known, list, (struct volume){0, INT64_MAX});
    if (known->ragged_calls == 0)
        known->volume = own;
    known->volume.least = own.least < known->volume.least ? own.least : known->volume.least;
    known->volume.most = own.most > known->volume.most ? own.most : known->volume.most;
    if (is_due(known)) {
        known->ragged_rule = agree_on_rule(known, list);
        known->volume = (struct volume){INT64_MAX, 0};
    }
    return known->ragged_rule;
}
