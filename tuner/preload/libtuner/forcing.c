/* Algorithms of the library that a rule forces, by the library's control variables (MPI_T).
 *
 * Some variables are read when a communicator is created: each choice then has a duplicate of its
 * own. Others are read at each call: they are written before it and reset after it. */

#include "tuner.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 4096 };
enum { REFUSED = -3, SHARED, NO_MEMORY }; /* why a choice is left to the library; below LEAVE */
static const char *const reasons[] = {
    [REFUSED - REFUSED] = "this library has no such setting, or refuses it",
    [SHARED - REFUSED] = "under MPI_THREAD_MULTIPLE calls of other threads would follow it, too",
    [NO_MEMORY - REFUSED] = "no memory",
};

union value {
    int8_t one;
    int32_t four;
    int64_t eight;
};

/* A control variable, the value that a setting gives it, and the one that it had. */
struct variable {
    MPI_T_cvar_handle handle;
    int size; /* of an integer in bytes */
    int64_t wanted, usual;
    union value wanted_value, usual_value; /* as the library takes them */
};

struct plan *plans;
static bool has_variables;         /* whether the library's variables can be used */
static struct variable *variables; /* by setting */
static int32_t *actions;           /* by choice, what this rank can do, until the ranks agree */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const struct setting *first_setting(const struct choice *choice)
{
    return &table.settings[choice->first_setting];
}

static union value value_of(int64_t number, int size)
{
    union value value = {.eight = number};
    if (size == 1)
        value.one = (int8_t)number;
    else if (size == 4)
        value.four = (int32_t)number;
    return value;
}

static int write_variable(const struct variable *variable, bool usual)
{
    return MPI_T_cvar_write(variable->handle,
                            usual ? &variable->usual_value : &variable->wanted_value);
}

static int64_t number_in(const union value *value, int size)
{
    return size == 1 ? value->one : size == 4 ? value->four : value->eight;
}

/* Find the number of a value of an enumeration in the variable's description, which has "name -
 * explanation" for each value, in the order of their numbers. MPICH up to 4.0 joins the lines, so
 * that a name may follow the word before it without a space. */
static bool number_in_text(const char *text, const char *name, int64_t *number)
{
    const bool has_lines = strchr(text, '\n') != NULL;
    const size_t length = strlen(name);
    *number = -1;
    for (const char *dash = text; (dash = strstr(dash, "- ")) != NULL; dash += 2) {
        const char *end = dash;
        while (end > text && (end[-1] == ' ' || end[-1] == '\t'))
            end--;
        const char *begin = end;
        while (begin > text && strchr("_abcdefghijklmnopqrstuvwxyz0123456789", begin[-1]))
            begin--;
        const bool is_name = begin < end && end < dash;
        const bool is_whole = (size_t)(end - begin) == length;
        *number += is_name;
        if (is_name && (is_whole || (!has_lines && (size_t)(end - begin) > length))
            && memcmp(end - length, name, length) == 0)
            return true;
    }
    return false;
}

/* Open a variable and read its usual value; false where the library has none of this name. Its
 * description has up to MAX_TEXT characters. */
static bool open_variable(const char *name, struct variable *variable, char *description)
{
    int index, length = MAX_TEXT, count = 1;
    MPI_Datatype datatype;
    union value present = {.eight = 0};
    if (MPI_T_cvar_get_index(name, &index)
        || MPI_T_cvar_get_info(index, NULL, NULL, NULL, &datatype, NULL, description, &length,
                               NULL, NULL)
        || PMPI_Type_size(datatype, &variable->size)
        || MPI_T_cvar_handle_alloc(index, NULL, &variable->handle, &count) || count != 1
        || MPI_T_cvar_read(variable->handle, &present))
        return false;
    variable->usual = number_in(&present, variable->size);
    return true;
}

/* Open a setting's variable; false where the library has none, or not this value. */
static bool open_setting(const struct setting *setting, struct variable *variable)
{
    char description[MAX_TEXT];
    if (!open_variable(table.strings + setting->name, variable, description))
        return false;
    variable->wanted = setting->number;
    if (setting->text == NO_TEXT)
        return true;
    return number_in_text(description, table.strings + setting->text, &variable->wanted);
}

/* Try a setting; false where the library refuses it, or would not follow it. */
static bool try_setting(const struct setting *setting)
{
    if (setting->use == HINT)
        return true;
    struct variable *variable = &variables[setting - table.settings];
    if (!open_setting(setting, variable))
        return false;
    variable->wanted_value = value_of(variable->wanted, variable->size);
    variable->usual_value = value_of(variable->usual, variable->size);
    if (setting->use == MUST_BE || setting->use == MUST_NOT_BE)
        return (variable->usual == variable->wanted) == (setting->use == MUST_BE);
    if (variable->usual == variable->wanted)
        return true; /* some can be set in the environment only */
    return !write_variable(variable, false) && !write_variable(variable, true);
}

/* Find out whether this rank can force a choice, and what that takes. Returns an action, or why it
 * cannot. */
static int plan_forcing(const struct choice *choice, struct plan *plan)
{
    int action = FORCE_HERE;
    plan->writes = calloc(choice->n_settings + 1, sizeof *plan->writes);
    for (uint32_t i = 0; plan->writes && i < choice->n_settings; i++) {
        const struct setting *setting = first_setting(choice) + i;
        const struct variable *variable = &variables[setting - table.settings];
        if (!try_setting(setting))
            return REFUSED;
        if (setting->use == AROUND_CALL && thread_level == MPI_THREAD_MULTIPLE)
            return SHARED;
        if (setting->use == AROUND_CALL && variable->usual != variable->wanted)
            plan->writes[plan->n_writes++] = variable;
        if (setting->use == AT_CREATION)
            action = FORCE_ON_DUPLICATE;
    }
    return plan->writes ? action : NO_MEMORY;
}

/* Return whether programs may go on after the end of a rank (ULFM): what the program revokes is its
 * own communicator, and ranks that wait for one another on ours would never hear of it. */
static bool is_fault_tolerant(void)
{
    static const char *const names[] = {"mpi_ft_enable", "MPIR_CVAR_ENABLE_FT"};
    char description[MAX_TEXT];
    struct variable variable;
    bool is_on = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is_on = is_on || (open_variable(names[i], &variable, description) && variable.usual);
    return is_on;
}

/* Make room for plans, and begin to use the library's variables. Returns NULL, or why not. */
const char *open_plans(void)
{
    int provided;
    variables = calloc(table.n_settings + 1, sizeof *variables);
    plans = calloc(table.n_choices, sizeof *plans);
    actions = calloc(table.n_choices, sizeof *actions);
    if (!variables || !plans || !actions)
        return "no memory";
    has_variables = MPI_T_init_thread(thread_level, &provided) == MPI_SUCCESS;
    if (!has_variables)
        return "it does not give access to its variables (MPI_T_init_thread)";
    if (!is_fault_tolerant())
        return NULL;
    return "where ranks may fail (ULFM), calls stay on the program's communicators";
}

/* Say which choices some rank cannot force, and why. */
static void say_refused(void)
{
    const size_t n = table.n_choices;
    size_t first = n, number = 0;
    for (size_t i = n; i-- > 0;)
        if (actions[i] < LEAVE) {
            first = i;
            number++;
        }
    if (number)
        say("choices that cannot be forced, so that the library decides: %zu, such as %s %s (%s)",
            number, collectives[table.choices[first].collective].name,
            table.strings + table.choices[first].name, reasons[actions[first] - REFUSED]);
}

/* Find out what every rank can do for each choice; collective over MPI_COMM_WORLD. */
void start_plans(int rank)
{
    const size_t n = table.n_choices;
    for (size_t i = 0; i < n; i++) {
        const struct choice *choice = &table.choices[i];
        actions[i] = choice->kind == SCHEDULE_KIND ? RUN_SCHEDULE
                     : choice->kind == FORCED_KIND ? plan_forcing(choice, &plans[i])
                                                   : LEAVE;
    }
    library_allreduce(actions, (int)n, MPI_INT32_T, MPI_MIN, MPI_COMM_WORLD);
    if (rank == 0)
        say_refused();
    for (size_t i = 0; i < n; i++) /* the least: less than LEAVE where one rank cannot */
        plans[i].action = actions[i] < LEAVE ? LEAVE : actions[i];
    free(actions);
}

/* Give up the variables, before MPI_Finalize: Open MPI would otherwise keep its connection to the
 * launcher, which would take a spawned program for one that has died, and end its parents. */
void end_plans(void)
{
    if (has_variables)
        MPI_T_finalize();
    has_variables = false;
}

/* Write the variables that are read when a communicator is created, or their usual values. */
static int write_for_creation(const struct choice *choice, bool usual)
{
    int failure = MPI_SUCCESS;
    for (uint32_t i = 0; i < choice->n_settings; i++) {
        const struct setting *setting = first_setting(choice) + i;
        const struct variable *variable = &variables[setting - table.settings];
        if (setting->use == AT_CREATION && variable->usual != variable->wanted) {
            int code = write_variable(variable, usual);
            failure = failure ? failure : code;
        }
    }
    return failure;
}

/* Duplicate a communicator while the variables have a choice's values; MPI_COMM_NULL for none. */
MPI_Comm duplicate_forced(MPI_Comm comm, const struct choice *choice)
{
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Info hints;
    PMPI_Info_create(&hints);
    for (uint32_t i = 0; i < choice->n_settings; i++) {
        const struct setting *setting = &first_setting(choice)[i];
        if (setting->use == HINT)
            PMPI_Info_set(hints, table.strings + setting->name, table.strings + setting->text);
    }
    pthread_mutex_lock(&lock);
    int failure = write_for_creation(choice, false);
    int code = PMPI_Comm_dup_with_info(comm, hints, &made);
    write_for_creation(choice, true);
    pthread_mutex_unlock(&lock);
    PMPI_Info_free(&hints);
    if (code == MPI_SUCCESS && failure != MPI_SUCCESS)
        PMPI_Comm_free(&made);
    return code == MPI_SUCCESS ? made : MPI_COMM_NULL;
}

/* Describe a buffer as bytes, since ranks may describe one signature by different datatypes, and
 * algorithms may divide data at whole elements of each rank's own. Returns an error code. */
static int as_bytes(const void **buffer, MPI_Count *count, MPI_Datatype *datatype, int blocks,
                    bool is_source, struct memory *packed, size_t *nbytes)
{
    struct element element;
    describe_element(*datatype, &element);
    int code = MPI_SUCCESS;
    *nbytes = (size_t)(*count * element.size) * (size_t)blocks;
    if (!is_dense(&element)) {
        char *bytes = reserve(packed, *nbytes);
        if (!bytes)
            return MPI_ERR_NO_MEM;
        if (is_source)
            code = pack(*buffer, *count * blocks, *datatype, bytes, *nbytes);
        *buffer = bytes;
    }
    *count *= element.size;
    *datatype = MPI_BYTE;
    return code;
}

/* Let the library move data with its forced algorithm, as bytes; as it is where a rank alone has no
 * memory for that, since the others are in the call. */
static int move_bytes(const struct call *call, struct communicator *known)
{
    const struct collective *record = &collectives[call->collective];
    const bool at_root = !record->is_rooted || call->root == known->rank;
    const bool gives = at_root || record->others_give, takes = at_root || record->others_take;
    const int whole = record->has_blocks ? known->size : 1;
    struct call bytes = *call;
    size_t sent, received = 0;
    int code = MPI_SUCCESS;
    if (record->has_one_buffer) {
        bool is_source = call->root == known->rank;
        const void *buffer = call->receive;
        code = as_bytes(&buffer, &bytes.receive_count, &bytes.receive_type, 1, is_source,
                        &known->memories[PACKED_RECEIVE], &received);
        bytes.receive = (void *)buffer;
        code = call->library(code ? call : &bytes);
        return code || is_source || buffer == call->receive
                   ? code
                   : unpack(buffer, received, call->receive, call->receive_count,
                            call->receive_type);
    }
    const bool is_in_place = call->send == MPI_IN_PLACE || call->receive == MPI_IN_PLACE;
    if (takes && call->receive != MPI_IN_PLACE) {
        const void *buffer = call->receive;
        code = as_bytes(&buffer, &bytes.receive_count, &bytes.receive_type,
                        record->scatters ? 1 : whole, is_in_place, &known->memories[PACKED_RECEIVE],
                        &received);
        bytes.receive = (void *)buffer;
    }
    if (code == MPI_SUCCESS && gives && call->send != MPI_IN_PLACE)
        code = as_bytes(&bytes.send, &bytes.send_count, &bytes.send_type,
                        blocks_sent(record, known->size), true, &known->memories[PACKED_SEND],
                        &sent);
    if (code)
        return call->library(call);
    code = call->library(&bytes);
    if (code || !takes || bytes.receive == call->receive)
        return code;
    return unpack(bytes.receive, received, call->receive,
                  call->receive_count * (record->scatters ? 1 : whole), call->receive_type);
}

/* Make a call with the algorithm that a choice forces. */
int call_forced(struct call *call, struct communicator *known, const struct plan *plan)
{
    const struct collective *record = &collectives[call->collective];
    /* No algorithm of MPICH exchanges blocks in place, and MPICH 3.4 would begin all the same. */
    const bool is_left = record->exchanges && call->send == MPI_IN_PLACE;
    const uint32_t n_writes = is_left ? 0 : plan->n_writes;
    for (uint32_t i = 0; i < n_writes; i++)
        write_variable(plan->writes[i], false); /* they could be written when the job began */
    int code = is_passed_on(record) ? call->library(call) : move_bytes(call, known);
    for (uint32_t i = 0; i < n_writes; i++)
        write_variable(plan->writes[i], true);
    return code;
}
