/* Calls that run one of our schedules: the instructions of this rank, over messages.
 *
 * Data that is moved is divided in bytes, because ranks may describe one signature by different
 * datatypes. Data that is reduced is divided in elements, whose datatype MPI requires to be the
 * same on all ranks. */

#include "tuner.h"

#include <stdlib.h>
#include <string.h>

/* A schedule on a vector of `count` units of `unit` bytes. */
struct run {
    const struct communicator *known;
    const struct variant *variant;
    char *buffer;        /* chunks from 0 on */
    char *given;         /* as many after them, where a rank gives its data there; else NULL */
    char *scratch;       /* those that follow */
    char *aside, *result;
    int64_t count, shorter, more, longer; /* see Schedule.chunk_sizes */
    size_t unit;
    MPI_Datatype datatype;
    MPI_Op op;
    bool commutes;
    int shift; /* by which the peers of the program are turned */
    int turn;  /* by which those of its chunks are that are shifted */
    int tag;
};

/* Divide the vector into chunks, as Schedule.chunk_sizes does. */
static void divide(struct run *run)
{
    const int64_t n = run->variant->n_chunks;
    const int64_t unit = run->unit ? (int64_t)run->unit : 1;
    const int64_t full = ((int64_t)run->variant->segment_bytes + unit - 1) / unit;
    if ((n - 1) * full < run->count && run->count < n * full) {
        run->shorter = run->count - (n - 1) * full;
        run->more = full - run->shorter;
        run->longer = n - 1;
    } else {
        run->shorter = run->count / n;
        run->more = 1;
        run->longer = run->count % n;
    }
}

static int64_t offset_of(const struct run *run, int64_t chunk)
{
    return chunk * run->shorter + (chunk < run->longer ? chunk : run->longer) * run->more;
}

/* Return the chunk of this rank for one of the program; it stays in the same buffer. */
static int64_t shifted(const struct run *run, int64_t chunk, bool is_shifted)
{
    const int64_t n = run->variant->n_chunks, first = chunk / n * n;
    return is_shifted ? first + (chunk - first + run->turn) % n : chunk;
}

static char *address_of(const struct run *run, int64_t chunk)
{
    const int64_t n = run->variant->n_chunks;
    if (chunk < n)
        return run->buffer + (size_t)offset_of(run, chunk) * run->unit;
    if (run->given && chunk < 2 * n)
        return run->given + (size_t)offset_of(run, chunk - n) * run->unit;
    const int64_t first = run->given ? 2 * n : n;
    return run->scratch + (size_t)offset_of(run, chunk - first) * run->unit;
}

static int64_t source_of(const struct run *run, const struct instruction *step)
{
    return shifted(run, step->source, step->shifted & SOURCE_SHIFTED);
}

static int64_t target_of(const struct run *run, const struct instruction *step)
{
    return shifted(run, step->target, step->shifted & TARGET_SHIFTED);
}

static int64_t units_of(const struct run *run, int64_t chunk, int64_t chunks)
{
    const int64_t first = chunk % run->variant->n_chunks;
    return offset_of(run, first + chunks) - offset_of(run, first);
}

/* Reduce `from` into `into`; `order` says which of them is the first operand. */
static int reduce(const struct run *run, char *from, char *into, int64_t units, int order)
{
    if (run->commutes || order == ARRIVING_OP_DST)
        return PMPI_Reduce_local(from, into, (int)units, run->datatype, run->op);
    size_t nbytes = (size_t)units * run->unit;
    memcpy(run->result, from, nbytes); /* Reduce_local writes its second operand */
    int code = PMPI_Reduce_local(into, run->result, (int)units, run->datatype, run->op);
    memcpy(into, run->result, nbytes);
    return code;
}

/* Start the message of an instruction; `aside` is where the next part that is set aside begins. */
static int start(const struct run *run, const struct instruction *step, char **aside)
{
    struct communicator const *known = run->known;
    const bool sends = step->kind == DO_SEND;
    const int64_t chunk = sends ? source_of(run, step) : target_of(run, step);
    const int64_t units = units_of(run, chunk, step->chunks);
    const int peer = (step->peer + run->shift) % known->size;
    const int nbytes = (int)((size_t)units * run->unit);
    MPI_Request *request = &known->requests[step->request];
    *request = MPI_REQUEST_NULL;
    if (step->kind == DO_RECEIVE_ASIDE) {
        known->slots[step->source] = *aside;
        *aside += nbytes;
    }
    if (nbytes == 0)
        return MPI_SUCCESS;
    if (sends)
        return PMPI_Isend(address_of(run, chunk), nbytes, MPI_BYTE, peer, run->tag,
                          known->messages, request);
    char *into = step->kind == DO_RECEIVE ? address_of(run, chunk) : known->slots[step->source];
    return PMPI_Irecv(into, nbytes, MPI_BYTE, peer, run->tag, known->messages, request);
}

/* Where chunks are that are not consecutive, as `Runs` says. */
struct places {
    int64_t ring, first; /* the first chunk of the ring, and how far from it the copy begins */
    int32_t length, step, modulus;
};

static struct places places_from(int64_t first, int32_t length, int32_t step, int32_t modulus)
{
    const int64_t ring = first / modulus * modulus;
    return (struct places){ring, first - ring, length, step, modulus};
}

/* Return the chunk that comes `within` chunks after the first; `left` becomes the number of chunks
 * that follow it there, at most. */
static int64_t place_of(const struct places *places, int64_t within, int64_t *left)
{
    const int64_t into_run = within % places->length;
    int64_t place = places->first + within / places->length * places->step + into_run;
    place = (place % places->modulus + places->modulus) % places->modulus;
    if (*left > places->length - into_run)
        *left = places->length - into_run;
    if (*left > places->modulus - place)
        *left = places->modulus - place;
    return places->ring + place;
}

static void copy(const struct run *run, const struct instruction *step)
{
    const int64_t from = source_of(run, step), into = target_of(run, step);
    if (step->runs < 0) {
        memcpy(address_of(run, into), address_of(run, from),
               (size_t)units_of(run, into, step->chunks) * run->unit);
        return;
    }
    const struct pattern *pattern = &table.patterns[step->runs];
    const struct places source = places_from(from, pattern->source_length, pattern->source_step,
                                             pattern->source_modulus);
    const struct places target = places_from(into, pattern->target_length, pattern->target_step,
                                             pattern->target_modulus);
    for (int64_t done = 0, together; done < step->chunks; done += together) {
        together = step->chunks - done;
        const int64_t source_chunk = place_of(&source, done, &together);
        const int64_t target_chunk = place_of(&target, done, &together);
        memcpy(address_of(run, target_chunk), address_of(run, source_chunk),
               (size_t)units_of(run, target_chunk, together) * run->unit);
    }
}

/* Carry out an instruction within the rank. */
static int compute(const struct run *run, const struct instruction *step, char **aside)
{
    char **slots = run->known->slots;
    if (step->kind == DO_COPY) {
        copy(run, step);
        return MPI_SUCCESS;
    }
    if (step->kind == DO_SET_ASIDE) {
        const int64_t chunk = source_of(run, step);
        const size_t nbytes = (size_t)units_of(run, chunk, step->chunks) * run->unit;
        slots[step->target] = *aside;
        *aside += nbytes;
        memcpy(slots[step->target], address_of(run, chunk), nbytes);
        return MPI_SUCCESS;
    }
    const int64_t chunk = target_of(run, step);
    const int64_t units = units_of(run, chunk, step->chunks);
    char *from = step->kind == DO_REDUCE ? address_of(run, source_of(run, step))
                                         : slots[step->source];
    char *into = address_of(run, chunk);
    if (units == 0)
        return MPI_SUCCESS;
    if (step->kind != DO_COPY_BACK)
        return reduce(run, from, into, units, step->peer);
    memcpy(into, from, (size_t)units * run->unit);
    return MPI_SUCCESS;
}

/* Carry out a program. After an error it goes on, with data of no use, so that no message is left
 * over and other ranks get those for which they wait. Returns the first error. */
static int run_instructions(const struct run *run, const struct program *program)
{
    const struct instruction *step = &table.instructions[program->first_instruction];
    const struct instruction *end = step + program->n_instructions;
    char *aside = run->aside;
    int failure = MPI_SUCCESS;
    for (; step < end; step++) {
        int code = MPI_SUCCESS;
        switch (step->kind) {
        case DO_SEND:
        case DO_RECEIVE:
        case DO_RECEIVE_ASIDE:
            code = start(run, step, &aside);
            break;
        case DO_WAIT:
            code = PMPI_Wait(&run->known->requests[step->request], MPI_STATUS_IGNORE);
            break;
        case DO_END_ROUND:
            aside = run->aside;
            break;
        default:
            code = compute(run, step, &aside);
        }
        failure = failure ? failure : code;
    }
    return failure;
}

/* Return the program of this rank, and by how much its peers and chunks are turned. */
static const struct program *program_of(struct run *run, int root)
{
    const struct variant *variant = run->variant;
    const int rank = run->known->rank, size = run->known->size;
    const struct program *programs = &table.programs[variant->first_program];
    run->shift = variant->turns ? rank : variant->rotates ? root : 0;
    run->turn = variant->turns ? (int)((int64_t)rank * variant->chunk_step % variant->n_chunks) : 0;
    if (variant->turns)
        return programs;
    if (variant->rotates)
        return &programs[(rank + size - root) % size];
    return &programs[(variant->n_roots > 1 ? root : 0) * size + rank];
}

/* Make room for the requests of a schedule. */
static bool reserve_requests(struct communicator *known, const struct variant *variant)
{
    if (!known->requests || variant->n_requests > known->n_requests
        || variant->n_slots > known->n_slots) {
        known->n_requests = variant->n_requests > known->n_requests ? variant->n_requests
                                                                    : known->n_requests;
        known->n_slots = variant->n_slots > known->n_slots ? variant->n_slots : known->n_slots;
        free(known->requests);
        free(known->slots);
        known->requests = malloc((known->n_requests + 1) * sizeof *known->requests);
        known->slots = malloc((known->n_slots + 1) * sizeof *known->slots);
    }
    return known->requests && known->slots;
}

/* Run the schedule in place on `whole`. Returns an error code. */
static int run_on(struct communicator *known, struct run *run, char *whole, int root)
{
    const struct variant *variant = run->variant;
    run->known = known;
    run->buffer = whole;
    run->tag = 1;
    const struct program *program = program_of(run, root);
    divide(run);
    const size_t nbytes = (size_t)run->count * run->unit;
    const int64_t longest = run->longer ? run->shorter + run->more : run->shorter;
    const size_t set_aside = (size_t)(longest * variant->slot_chunks) * run->unit;
    uint32_t ours = program->scratch_buffers;
    if (ours && run->given)
        ours--; /* the first is what the rank gives */
    const size_t scratch = (nbytes * ours + 63) / 64 * 64;
    const size_t result = run->commutes ? 0 : (nbytes + 63) / 64 * 64;
    struct memory *memory = &known->memories[SCRATCH];
    if (!reserve_requests(known, variant) || !reserve(memory, scratch + result + set_aside))
        return MPI_ERR_NO_MEM;
    run->scratch = memory->bytes;
    run->result = run->scratch + scratch;
    run->aside = run->result + result;
    return run_instructions(run, program);
}

/* Run the schedule after the rank has given its data with this code, also where that has failed:
 * other ranks wait for its messages. Without memory for the vector, which is NULL then, it cannot.
 * Returns the first error. */
static int run_after(int given, struct communicator *known, struct run *run, char *whole, int root)
{
    if (!whole && run->count && run->unit)
        return MPI_ERR_NO_MEM;
    const int code = run_on(known, run, whole, root);
    return given ? given : code;
}

static const struct variant *variant_for(const struct choice *choice, uint64_t nbytes)
{
    const struct variant *first = &table.variants[choice->first_variant];
    uint32_t low = 0, high = choice->n_variants;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (first[middle].start_bytes <= nbytes)
            low = middle;
        else
            high = middle;
    }
    return &first[low];
}

/* Return the schedule for a vector; NULL where it does not apply. The same on all ranks. */
static const struct variant *applicable(const struct call *call, const struct choice *choice,
                                        int64_t count, size_t unit, bool commutes)
{
    const struct collective *record = &collectives[call->collective];
    const struct variant *variant = variant_for(choice, (uint64_t)count * unit);
    const bool is_uneven = count % variant->n_chunks != 0;
    const double chunk = (double)count * (double)unit / variant->n_chunks;
    if (((record->has_blocks || variant->shifts) && is_uneven)
        || chunk * variant->message_chunks > INT32_MAX /* bytes of a message are an int */
        || chunk * variant->n_chunks * variant->most_scratch > MAX_SCRATCH_BYTES)
        return NULL;
    return record->reduces && !commutes && !variant->keeps_order ? NULL : variant;
}

static int barrier(struct communicator *known, const struct choice *choice)
{
    int32_t nothing = 0;
    struct run run = {.unit = sizeof nothing, .count = 1, .datatype = MPI_INT32_T, .op = MPI_BOR,
                      .commutes = true, .variant = variant_for(choice, sizeof nothing)};
    return run_on(known, &run, (char *)&nothing, 0);
}

/* What a rank gives or takes: elements of a datatype. */
struct data {
    void *buffer;
    MPI_Count count;
    MPI_Datatype datatype;
    bool is_on_device;
};

static struct data sent_data(const struct call *call, int blocks)
{
    return (struct data){(void *)call->send, call->send_count * blocks, call->send_type,
                         call->sends_from_device};
}

static struct data received_data(const struct call *call, int blocks)
{
    return (struct data){call->receive, call->receive_count * blocks, call->receive_type,
                         call->receives_on_device};
}

/* Return whether a schedule can run in place, on the bytes of a buffer. */
static bool has_bytes(const struct data *data)
{
    struct element element;
    return !data->is_on_device && describe_element(data->datatype, &element) && is_dense(&element);
}

static size_t bytes_of(const struct data *data)
{
    struct element element;
    describe_element(data->datatype, &element);
    return (size_t)(data->count * element.size);
}

/* Copy what a rank gives into the vector. */
static int give(const struct communicator *known, const struct data *from, char *into)
{
    const size_t nbytes = bytes_of(from);
    if (nbytes && from->is_on_device)
        return copy_by_message(known, from->buffer, from->count, from->datatype, into,
                               (MPI_Count)nbytes, MPI_PACKED);
    if (!has_bytes(from))
        return pack(from->buffer, from->count, from->datatype, into, nbytes);
    if (nbytes && from->buffer != into)
        memmove(into, from->buffer, nbytes);
    return MPI_SUCCESS;
}

/* Copy what a rank takes out of the vector. */
static int take(const struct communicator *known, const char *from, const struct data *into)
{
    const size_t nbytes = bytes_of(into);
    if (nbytes && into->is_on_device)
        return copy_by_message(known, from, (MPI_Count)nbytes, MPI_PACKED, into->buffer,
                               into->count, into->datatype);
    if (!has_bytes(into))
        return unpack(from, nbytes, into->buffer, into->count, into->datatype);
    if (nbytes && from != into->buffer)
        memmove(into->buffer, from, nbytes);
    return MPI_SUCCESS;
}

/* Copy what a rank gives into its place of so many bytes. What is longer is cut off, an error as
 * in the library. A message would not do: Open MPI 5.0.11 writes all of one to this rank itself. */
static int give_within(struct communicator *known, const struct data *from, char *into, size_t room)
{
    const size_t nbytes = bytes_of(from);
    if (nbytes <= room)
        return give(known, from, into);
    char *all = reserve(&known->memories[PACKED_SEND], nbytes);
    const int code = all ? give(known, from, all) : MPI_ERR_NO_MEM;
    if (all)
        memcpy(into, all, room);
    return code ? code : MPI_ERR_TRUNCATE;
}

/* Copy a block of so many bytes to where a rank takes it. What follows in a longer buffer stays. */
static int take_block(struct communicator *known, const char *block, size_t held,
                      const struct data *into)
{
    const size_t nbytes = bytes_of(into);
    if (nbytes <= held) {
        const int code = take(known, block, into);
        return code || nbytes == held ? code : MPI_ERR_TRUNCATE;
    }
    char *all = reserve(&known->memories[PACKED_RECEIVE], nbytes);
    int code = all ? give(known, into, all) : MPI_ERR_NO_MEM;
    if (code == MPI_SUCCESS) {
        memcpy(all, block, held);
        code = take(known, all, into);
    }
    return code;
}

static int broadcast(struct call *call, struct communicator *known, const struct choice *choice)
{
    const bool is_source = call->root == known->rank;
    const struct data data = received_data(call, 1);
    const size_t nbytes = bytes_of(&data);
    const bool is_here = has_bytes(&data);
    struct run run = {.unit = 1, .count = (int64_t)nbytes, .commutes = true};
    run.variant = applicable(call, choice, run.count, run.unit, true);
    if (!run.variant)
        return NOT_APPLICABLE;
    char *whole = is_here ? call->receive : reserve(&known->memories[WHOLE], nbytes);
    int code = MPI_SUCCESS;
    if (whole && !is_here && is_source)
        code = give(known, &data, whole);
    code = run_after(code, known, &run, whole, call->root);
    if (!is_here && !is_source && code == MPI_SUCCESS)
        code = take(known, whole, &data);
    return code;
}

/* Let the schedule read what a rank gives where it is, or in a copy if it is overwritten there or
 * has another length. */
static int give_apart(struct communicator *known, const struct data *from, const struct call *call,
                      struct run *run)
{
    const size_t nbytes = (size_t)run->count;
    if (call->send != MPI_IN_PLACE && has_bytes(from) && bytes_of(from) == nbytes) {
        run->given = from->buffer;
        return MPI_SUCCESS;
    }
    run->given = reserve(&known->memories[GIVEN], nbytes);
    return run->given ? give_within(known, from, run->given, nbytes) : MPI_ERR_NO_MEM;
}

/* Move blocks: the schedule runs on the blocks of all ranks, in the receive buffer where that has
 * them all, else in memory of our own. */
static int move(struct call *call, struct communicator *known, const struct choice *choice,
                int64_t nbytes)
{
    const struct collective *record = &collectives[call->collective];
    const bool at_root = !record->is_rooted || call->root == known->rank;
    const bool gives = at_root || record->others_give, takes = at_root || record->others_take;
    struct run run = {.unit = 1, .count = nbytes, .commutes = true};
    run.variant = applicable(call, choice, run.count, run.unit, true);
    if (!run.variant)
        return NOT_APPLICABLE;
    const size_t block = (size_t)(nbytes / known->size), own = block * (size_t)known->rank;
    const struct data sent = sent_data(call, blocks_sent(record, known->size));
    const struct data received = received_data(call, record->scatters ? 1 : known->size);
    const bool is_here = takes && !record->scatters && has_bytes(&received);
    char *whole = is_here ? call->receive : reserve(&known->memories[WHOLE], (size_t)nbytes);
    int code = MPI_SUCCESS;
    if (record->exchanges)
        code = give_apart(known, call->send == MPI_IN_PLACE ? &received : &sent, call, &run);
    else if (whole && gives && call->send == MPI_IN_PLACE && !record->scatters)
        code = is_here ? MPI_SUCCESS : give(known, &received, whole);
    else if (whole && gives)
        code = record->scatters ? give(known, &sent, whole)
                                : give_within(known, &sent, whole + own, block);
    code = run_after(code, known, &run, whole, call->root);
    if (code || !takes || call->receive == MPI_IN_PLACE)
        return code;
    return record->scatters ? take_block(known, whole + own, block, &received)
                            : take(known, whole, &received);
}

/* Copy operands or results, whose datatype may leave gaps between their bytes. */
static int copy_elements(const struct communicator *known, const void *from, void *into,
                         MPI_Count count, const struct run *run, bool is_on_device)
{
    if (count && is_on_device)
        return copy_by_message(known, from, count, run->datatype, into, count, run->datatype);
    if (count && from != into)
        memcpy(into, from, (size_t)count * run->unit);
    return MPI_SUCCESS;
}

/* Reduce: the schedule runs on the whole vector, in the receive buffer where the result is as long,
 * else in memory of our own. */
static int combine(struct call *call, struct communicator *known, const struct choice *choice)
{
    const struct collective *record = &collectives[call->collective];
    const bool takes = record->others_take || call->root == known->rank;
    const int64_t blocks = record->has_blocks ? known->size : 1;
    struct element element;
    struct run run = {.datatype = call->receive_type, .op = call->op,
                      .commutes = is_commutative(call->op)};
    describe_element(call->receive_type, &element);
    run.unit = (size_t)element.extent;
    run.count = call->receive_count * blocks;
    run.variant = applicable(call, choice, run.count, run.unit, run.commutes);
    if (!element.is_predefined || !run.variant || run.count * element.extent > INT32_MAX)
        return NOT_APPLICABLE;
    const size_t nbytes = (size_t)run.count * run.unit;
    const bool is_in_place = call->send == MPI_IN_PLACE, on_device = call->receives_on_device;
    const bool is_here = takes && !record->scatters && !on_device;
    char *whole = is_here ? call->receive : reserve(&known->memories[WHOLE], nbytes);
    const void *operand = is_in_place ? call->receive : call->send;
    int code = MPI_SUCCESS;
    if (whole)
        code = copy_elements(known, operand, whole, run.count, &run,
                             is_in_place ? on_device : call->sends_from_device);
    code = run_after(code, known, &run, whole, call->root);
    if (code || !takes || is_here)
        return code;
    char *result = record->scatters ? whole + nbytes / (size_t)blocks * (size_t)known->rank : whole;
    return copy_elements(known, result, call->receive, call->receive_count, &run, on_device);
}

/* Make a call of `nbytes` bytes by our schedule; NOT_APPLICABLE, on all ranks, where none fits. */
int call_scheduled(struct call *call, struct communicator *known, const struct choice *choice,
                   int64_t nbytes)
{
    const struct collective *record = &collectives[call->collective];
    if (!record->has_data)
        return barrier(known, choice);
    if (record->has_one_buffer)
        return broadcast(call, known, choice);
    return record->reduces ? combine(call, known, choice) : move(call, known, choice, nbytes);
}
