/* Performance guidelines (Traeff, Gropp and Thakur, 2010): a collective must not be slower than
 * other collectives that together do the same, than itself with twice the data, or than itself
 * twice with half of them.
 *
 * When a recorded program ends, the calls that took most time, of those up to MOST_BYTES with a
 * regular layout, are made again by the library, in turn with what they are compared with. */

#include "tuner.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CALLS = 8, LEAST_ROUNDS = 5, MOST_ROUNDS = 200 };
static const double CALL_SECONDS = 1.0; /* for the rounds of one call */
static const double MOST_SECONDS = 5.0; /* for the least number of rounds */
static const int64_t MOST_BYTES = 16 << 20; /* of a call: the program still holds its memory */

struct trial {
    MPI_Comm comm;
    int size;
    int64_t nbytes;
    MPI_Datatype datatype; /* of all sides, and the largest that the bytes are a multiple of */
    int64_t unit;          /* its bytes */
    char *from, *into;
};

/* Make a call of the library; blocks are rounded up, so that none moves less than asked for. */
static int make_call(const struct trial *trial, int collective, int64_t nbytes)
{
    const struct collective *record = &collectives[collective];
    const int64_t part = trial->unit * (record->has_blocks ? trial->size : 1);
    const MPI_Count count = (nbytes + part - 1) / part;
    const struct call call = {
        .collective = collective, .comm = trial->comm,
        .send = trial->from, .receive = trial->into,
        .send_count = count, .receive_count = count,
        .send_type = trial->datatype, .receive_type = trial->datatype,
        .op = trial->unit == 1 ? MPI_BOR : MPI_SUM,
    };
    return record->library(&call);
}

/* Return the seconds of one round of a side on this rank, after all ranks have met. */
static double time_side(const struct trial *trial, const struct side *side, int *code)
{
    const int64_t nbytes = (trial->nbytes * side->halves + 1) / 2;
    library_barrier(trial->comm);
    const double begun = PMPI_Wtime();
    *code |= make_call(trial, side->first, nbytes);
    if (side->second >= 0)
        *code |= make_call(trial, side->second, nbytes);
    return PMPI_Wtime() - begun;
}

/* Time all sides of a call in turn, each round beginning with another one; return the number of
 * rounds, which is the same on all ranks: 0 where they would take too long or a call failed.
 *
 * seconds     of each side in each round, on the rank that takes longest; on rank 0 */
static int time_rounds(const struct trial *trial, const struct side *side, int n_sides,
                       double *seconds)
{
    int rounds = MOST_ROUNDS, code = MPI_SUCCESS;
    double begun = 0.0, *longest = seconds + MOST_ROUNDS * n_sides;
    for (int round = -1; round < rounds; round++) { /* the first one warms up */
        for (int turn = 0; turn < n_sides; turn++) {
            const int i = (turn + round + 1) % n_sides;
            seconds[(round > 0 ? round : 0) * n_sides + i] = time_side(trial, &side[i], &code);
        }
        if (round == -1)
            begun = PMPI_Wtime();
        if (round == 0) {
            const double taken = PMPI_Wtime() - begun + 1e-9, most = CALL_SECONDS / taken;
            rounds = most < LEAST_ROUNDS ? LEAST_ROUNDS : most < rounds ? (int)most : rounds;
            if (taken * rounds > MOST_SECONDS)
                rounds = 0;
            library_bcast(&rounds, 1, MPI_INT, trial->comm);
        }
    }
    library_allreduce(&code, 1, MPI_INT, MPI_BOR, trial->comm);
    if (code != MPI_SUCCESS || rounds == 0)
        return 0;
    library_reduce(seconds, longest, rounds * n_sides, MPI_DOUBLE, MPI_MAX, trial->comm);
    memcpy(seconds, longest, sizeof *seconds * (size_t)(rounds * n_sides));
    return rounds;
}

static void print_side(FILE *file, const struct kind *kind, const struct side *side,
                       const double *seconds, int n_sides, int rounds)
{
    fprintf(file, "0 guideline %s %d %d %d %lld %s%s%s %d", collectives[kind->collective].name,
            kind->layout.nodes, kind->layout.ppn, kind->layout.is_cyclic, (long long)kind->nbytes,
            collectives[side->first].name, side->second < 0 ? "" : "+",
            side->second < 0 ? "" : collectives[side->second].name, side->halves);
    for (int round = 0; round < rounds; round++)
        fprintf(file, " %lld", (long long)(seconds[round * n_sides] * 1e9));
    fputc('\n', file);
}

/* Choose one datatype for all sides, so that they differ in nothing else. */
static void choose_datatype(struct trial *trial)
{
    const bool is_8 = trial->nbytes % 8 == 0, is_4 = trial->nbytes % 4 == 0;
    trial->unit = is_8 ? 8 : is_4 ? 4 : 1;
    trial->datatype = is_8 ? MPI_DOUBLE : is_4 ? MPI_FLOAT : MPI_BYTE;
}

/* Time a kind of calls and what it is compared with on ranks of its layout. */
static void compare_sides(FILE *file, const struct kind *kind, MPI_Comm comm)
{
    struct trial trial = {.comm = comm, .nbytes = kind->nbytes};
    int first = 0, n_sides = 0;
    PMPI_Comm_size(comm, &trial.size);
    while (sides[first].collective != kind->collective)
        first++;
    while (first + n_sides < N_SIDES && sides[first + n_sides].collective == kind->collective)
        n_sides++;
    if (!collectives[kind->collective].has_data)
        trial.nbytes = sizeof(int);
    choose_datatype(&trial);
    double *seconds = malloc(2 * sizeof *seconds * (size_t)(MOST_ROUNDS * n_sides));
    const size_t size = 2 * (size_t)trial.nbytes + sizeof(double) * (size_t)trial.size;
    trial.from = calloc(1, size);
    trial.into = calloc(1, size);
    int can = seconds && trial.from && trial.into;
    if (library_allreduce(&can, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && can) {
        const int rounds = time_rounds(&trial, &sides[first], n_sides, seconds);
        for (int i = 0; file && rounds && i < n_sides; i++)
            print_side(file, kind, &sides[first + i], seconds + i, n_sides, rounds);
    }
    free(seconds);
    free(trial.from);
    free(trial.into);
}

static int compare_kinds(const void *one, const void *other)
{
    const double a = ((const struct kind *)one)->seconds;
    const double b = ((const struct kind *)other)->seconds;
    return (a < b) - (a > b);
}

/* Return whether calls can be made again; the size of those that were refused is negative. */
static bool is_repeatable(const struct kind *kind)
{
    return kind->calls && !collectives[kind->collective].is_ragged && kind->layout.ppn
           && kind->layout.nodes * kind->layout.ppn > 1
           && (collectives[kind->collective].has_data
                   ? kind->nbytes > 0 && kind->nbytes <= MOST_BYTES
                   : true);
}

static bool is_chosen(const struct kind *kind, const struct kind *chosen, int n_chosen)
{
    for (int i = 0; i < n_chosen; i++)
        if (chosen[i].collective == kind->collective && chosen[i].nbytes == kind->nbytes
            && memcmp(&chosen[i].layout, &kind->layout, sizeof kind->layout) == 0)
            return true;
    return false;
}

/* Find guidelines that the library breaks in the calls with most time, and write the times;
 * collective over the communicator, which has all ranks and returns errors.
 *
 * file    NULL on ranks other than 0, and where there is none
 * kinds   calls of all ranks, on rank 0 */
void try_guidelines(FILE *file, struct kind *kinds, size_t n_kinds, MPI_Comm comm)
{
    const char *wanted = getenv("TUNER_GUIDELINES");
    struct kind chosen[MOST_CALLS];
    int n_chosen = 0, rank;
    PMPI_Comm_rank(comm, &rank);
    if (rank == 0 && wanted && *wanted && n_kinds) {
        qsort(kinds, n_kinds, sizeof *kinds, compare_kinds);
        for (size_t i = 0; i < n_kinds && n_chosen < MOST_CALLS; i++)
            if (is_repeatable(&kinds[i]) && !is_chosen(&kinds[i], chosen, n_chosen))
                chosen[n_chosen++] = kinds[i];
    }
    library_bcast(&n_chosen, 1, MPI_INT, comm);
    library_bcast(chosen, (int)(n_chosen * (int)sizeof *chosen), MPI_BYTE, comm);
    for (int i = 0; i < n_chosen; i++) {
        MPI_Comm made = create_with_layout(comm, chosen[i].layout);
        if (made != MPI_COMM_NULL) {
            compare_sides(file, &chosen[i], made);
            if (file)
                fflush(file); /* the user may not wait for the next ones */
            PMPI_Comm_free(&made);
        }
    }
}
