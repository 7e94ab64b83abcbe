/* The choice for a call: by what MPI requires to be the same on all ranks of the communicator, which
 * are its kind, the bytes of its data, its root, and whether its operator commutes. */

#include "tuner.h"

double tune_after_seconds;

/* Count a call that follows a rule. Threads may count at once, and then some calls are lost. */
static void count_call(const struct rule *rule)
{
    _Atomic uint64_t *calls = &rule_calls[rule - table.rules];
    atomic_store_explicit(calls, atomic_load_explicit(calls, memory_order_relaxed) + 1,
                          memory_order_relaxed);
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
static bool is_ready(struct communicator *known, const struct rule *rule, int action)
{
    if (action == FORCE_HERE)
        return true;
    if (action == LEAVE || waits(known, rule))
        return false;
    int state = known->bindings ? known->bindings[rule->choice].state : UNTRIED;
    if (state == UNTRIED && action == FORCE_ON_DUPLICATE && thread_level == MPI_THREAD_MULTIPLE)
        return false; /* another thread may be creating a communicator, which would be forced, too */
    return (state == UNTRIED ? set_up(known, &table.choices[rule->choice]) : state) == READY;
}

/* Set up what cannot be set up once the program has threads; collective over MPI_COMM_WORLD. */
void prepare_world(void)
{
    struct communicator *known = find_communicator(MPI_COMM_WORLD);
    for (int list = 0; known->shape && list < 2 * N_COLLECTIVES; list++)
        for (uint32_t i = 0; i < known->shape->n_rules[list]; i++) {
            const uint32_t place = table.rules[known->shape->first_rule[list] + i].choice;
            if (plans[place].action == FORCE_ON_DUPLICATE
                && !(known->bindings && known->bindings[place].state != UNTRIED))
                set_up(known, &table.choices[place]);
        }
}

/* Have the program's error handler called for an error on a communicator of ours. */
static int end_call(MPI_Comm comm, int code)
{
    if (code != MPI_SUCCESS)
        PMPI_Comm_call_errhandler(comm, code);
    return code;
}

/* Make a call as its rule says. */
int follow(struct call *call, struct communicator *known, const struct rule *rule, int64_t nbytes)
{
    const struct plan *plan = &plans[rule->choice];
    if (call->root < 0 || call->root >= known->size || !is_ready(known, rule, plan->action))
        return call->library(call);
    count_call(rule);
    if (plan->action == FORCE_HERE)
        return call_forced(call, known, plan);
    const MPI_Comm comm = call->comm;
    if (plan->action == RUN_SCHEDULE) {
        int code = call_scheduled(call, known, &table.choices[rule->choice], nbytes);
        return code == NOT_APPLICABLE ? call->library(call) : end_call(comm, code);
    }
    call->comm = known->bindings[rule->choice].comm;
    return end_call(comm, call_forced(call, known, plan));
}
