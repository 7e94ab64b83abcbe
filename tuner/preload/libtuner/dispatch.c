/* The choice for a call, by what MPI requires to be the same on all ranks of the communicator: the
 * collective, the bytes of its data, its root, and whether its operator commutes. */

#include "tuner.h"

/* Bytes of each memory that a communicator keeps for its next call. From 32 MiB on, glibc maps
 * memory anew for each allocation: 0.5 ns a byte (2 us a page). What is smaller it uses again. */
enum { MOST_KEPT = 1 << 24 };

double tune_after_seconds;

/* Count a call. Threads may count at once, and then some calls are lost. */
static void count(_Atomic uint64_t *calls)
{
    atomic_store_explicit(calls, atomic_load_explicit(calls, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* Have the library make a call that could not follow its rule. */
static int leave(struct call *call)
{
    count(&rule_calls[table.n_rules]);
    return call->library(call);
}

/* Return whether a communicator's calls are still the library's. Setting up takes messages, so it
 * is put off until the calls that rules would change have taken long, by the table's times, which
 * are the same on all ranks. */
static bool waits(struct communicator *known, const struct rule *rule)
{
    if (known->is_world || known->messages != MPI_COMM_NULL)
        return false;
    if (known->has_called && known->library_seconds >= tune_after_seconds)
        return false;
    known->library_seconds += known->has_called ? rule->library_seconds : 0.0;
    known->has_called = true;
    return true;
}

/* Return whether a choice is ready for a call, after setting it up where that pays; collective. */
static bool is_ready(struct call *call, struct communicator *known, const struct rule *rule,
                     int action)
{
    if (action == FORCE_HERE)
        return true;
    if (action == LEAVE || waits(known, rule))
        return false;
    int state = known->bindings ? known->bindings[rule->choice].state : UNTRIED;
    if (state == UNTRIED && action == FORCE_ON_DUPLICATE && thread_level == MPI_THREAD_MULTIPLE)
        return false; /* a communicator that another thread is creating would be forced, too */
    if (state == LEFT_TO_LIBRARY)
        return false;
    if (action == RUN_SCHEDULE && collectives[call->collective].has_data)
        find_devices(call);
    const bool has_device = call->sends_from_device || call->receives_on_device;
    return state == READY
           || set_up(known, &table.choices[rule->choice], has_device) == READY;
}

/* Set up what cannot be set up once the program has threads; collective over MPI_COMM_WORLD. */
void prepare_world(void)
{
    struct communicator *known = find_communicator(MPI_COMM_WORLD);
    for (int list = 0; known->shape && list < 2 * N_COLLECTIVES; list++)
        for (uint32_t i = 0; i < known->shape->n_rules[list]; i++) {
            const uint32_t place = table.rules[known->shape->first_rule[list] + i].choice;
            if (plans[place].action == FORCE_ON_DUPLICATE
                && (!known->bindings || known->bindings[place].state == UNTRIED)
                && set_up(known, &table.choices[place], false) != READY
                && known->messages == MPI_COMM_NULL)
                return;
        }
}

/* Have the program's error handler called for an error on a communicator of ours. */
static int end_call(MPI_Comm comm, int code)
{
    if (code != MPI_SUCCESS)
        PMPI_Comm_call_errhandler(comm, code);
    return code;
}

static bool is_sound_buffer(const void *buffer, MPI_Count count, MPI_Datatype datatype)
{
    struct element element;
    if (buffer == MPI_IN_PLACE || count < 0 || !describe_element(datatype, &element))
        return false;
    return element.is_predefined ? buffer || count * element.size == 0 : is_committed(datatype);
}

/* Return whether the arguments are right as far as a library looks. It refuses others before any
 * message, while one of our ranks could wait for another that has noticed something wrong. */
static bool is_sound(const struct call *call, const struct communicator *known)
{
    const struct collective *record = &collectives[call->collective];
    const bool at_root = !record->is_rooted || call->root == known->rank;
    const bool takes = at_root || record->others_take;
    const bool divides = record->scatters && !record->reduces; /* the received block is in place */
    if (!record->has_data)
        return true;
    if (call->root < 0 || call->root >= known->size
        || (record->reduces && !is_reducible(call->op, call->receive_type)))
        return false;
    if (record->has_one_buffer)
        return is_sound_buffer(call->receive, call->receive_count, call->receive_type);
    const bool sends = (at_root || record->others_give)
                       && !(takes && !divides && call->send == MPI_IN_PLACE);
    const bool receives = takes && !(at_root && divides && call->receive == MPI_IN_PLACE);
    return (!sends || is_sound_buffer(call->send, call->send_count, call->send_type))
           && (!receives
               || is_sound_buffer(call->receive, call->receive_count, call->receive_type));
}

/* Make a call as its rule says. */
int follow(struct call *call, struct communicator *known, const struct rule *rule, int64_t nbytes)
{
    const struct plan *plan = &plans[rule->choice];
    const struct collective *record = &collectives[call->collective];
    /* the library itself looks at the arguments that it is given as they are */
    const bool looks = plan->action == RUN_SCHEDULE || !is_passed_on(record);
    if ((looks && !is_sound(call, known)) || !is_ready(call, known, rule, plan->action))
        return leave(call);
    const MPI_Comm comm = call->comm;
    int code = NOT_APPLICABLE;
    if (plan->action == RUN_SCHEDULE) {
        code = call_scheduled(call, known, &table.choices[rule->choice], nbytes);
        if (code == NOT_APPLICABLE)
            return leave(call);
    }
    call->choice = rule->choice;
    count(&rule_calls[rule - table.rules]);
    if (plan->action == FORCE_ON_DUPLICATE)
        call->comm = known->bindings[rule->choice].comm;
    if (plan->action != RUN_SCHEDULE)
        code = call_forced(call, known, plan);
    if (looks)
        give_back(known, MOST_KEPT);
    return plan->action == FORCE_HERE ? code : end_call(comm, code);
}
