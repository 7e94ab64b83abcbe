/* Performance guidelines (Traeff, Gropp and Thakur, 2010): a collective must not be slower than
 * other collectives that together do the same, than itself with twice the data, or than itself
 * twice with half of them.
 *
 * When a recorded program ends, the calls that took most time are made again by the library, in
 * turn with what they are compared with, for a second each at most. */

#include "tuner.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CALLS = 8, LEAST_ROUNDS = 5, MOST_ROUNDS = 200 };
static const double CALL_SECONDS = 1.0; /* for the rounds of one call */
static const int64_t MOST_BYTES = 1 << 30;

struct trial {
    MPI_Comm comm;
    int size;
    int64_t nbytes;
    char *from, *into;
};

/* Make a call of the library, on numbers that are summed where they fill the bytes. Blocks are
 * rounded up, so that no call moves less than asked for. */
static void make_call(const struct trial *trial, int collective, int64_t nbytes)
{
    const struct collective *record = &collectives[collective];
    const bool has_numbers = nbytes % sizeof(double) == 0;
    const int64_t part = (has_numbers ? (int64_t)sizeof(double) : 1)
                         * (record->has_blocks ? trial->size : 1);
    const MPI_Count count = (nbytes + part - 1) / part;
    const MPI_Datatype datatype = has_numbers ? MPI_DOUBLE : MPI_BYTE;
    const struct call call = {
        .collective = collective, .comm = trial->comm,
        .send = trial->from, .receive = trial->into,
        .send_count = count, .receive_count = count,
        .send_type = datatype, .receive_type = datatype,
        .op = has_numbers ? MPI_SUM : MPI_BOR,
    };
    record->library(&call);
}

/* Return the seconds of one round of a side on this rank, after all ranks have met. */
static double time_side(const struct trial *trial, const struct side *side)
{
    const int64_t nbytes = (trial->nbytes * side->halves + 1) / 2;
    library_barrier(trial->comm);
    const double begun = PMPI_Wtime();
    make_call(trial, side->first, nbytes);
    if (side->second >= 0)
        make_call(trial, side->second, nbytes);
    return PMPI_Wtime() - begun;
}

/* Time all sides of a call in turn; return the number of rounds, which is the same on all ranks.
 *
 * seconds     of each side in each round, on the rank that takes longest; on rank 0 */
static int time_rounds(const struct trial *trial, const struct side *side, int n_sides,
                       double *seconds)
{
    int rounds = MOST_ROUNDS;
    double begun = 0.0;
    for (int round = -1; round < rounds; round++) { /* the first one warms up */
        for (int i = 0; i < n_sides; i++) {
            const double taken = time_side(trial, &side[i]);
            if (round >= 0)
                seconds[round * n_sides + i] = taken;
        }
        if (round == -1)
            begun = PMPI_Wtime();
        if (round == 0) {
            const double most = CALL_SECONDS / (PMPI_Wtime() - begun + 1e-9);
            rounds = most < LEAST_ROUNDS ? LEAST_ROUNDS : most < rounds ? (int)most : rounds;
            library_bcast(&rounds, 1, MPI_INT, trial->comm);
        }
    }
    double *longest = seconds + MOST_ROUNDS * n_sides;
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
    double *seconds = malloc(2 * sizeof *seconds * (size_t)(MOST_ROUNDS * n_sides));
    const size_t size = 2 * (size_t)trial.nbytes + sizeof(double) * (size_t)trial.size;
    trial.from = calloc(1, size);
    trial.into = calloc(1, size);
    int can = seconds && trial.from && trial.into;
    if (library_allreduce(&can, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && can) {
        const int rounds = time_rounds(&trial, &sides[first], n_sides, seconds);
        for (int i = 0; file && i < n_sides; i++)
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

/* Find guidelines that the library breaks in the calls with most time on rank 0, and write the
 * times; collective over the communicator, which has all ranks.
 *
 * file    NULL on ranks other than 0, and where there is none */
void try_guidelines(FILE *file, struct kind *kinds, uint64_t n_kinds, MPI_Comm comm)
{
    const char *wanted = getenv("TUNER_GUIDELINES");
    struct kind chosen[MOST_CALLS];
    int n_chosen = 0, rank;
    PMPI_Comm_rank(comm, &rank);
    if (rank == 0 && wanted && *wanted) {
        qsort(kinds, n_kinds, sizeof *kinds, compare_kinds);
        for (uint64_t i = 0; i < n_kinds && n_chosen < MOST_CALLS; i++)
            if (kinds[i].layout.ppn && kinds[i].nbytes <= MOST_BYTES
                && kinds[i].layout.nodes * kinds[i].layout.ppn > 1
                && (kinds[i].nbytes || !collectives[kinds[i].collective].has_data))
                chosen[n_chosen++] = kinds[i];
    }
    library_bcast(&n_chosen, 1, MPI_INT, comm);
    library_bcast(chosen, (int)(n_chosen * (int)sizeof *chosen), MPI_BYTE, comm);
    for (int i = 0; i < n_chosen; i++) {
        MPI_Comm made = create_with_layout(comm, chosen[i].layout);
        if (made != MPI_COMM_NULL) {
            compare_sides(file, &chosen[i], made);
            PMPI_Comm_free(&made);
        }
    }
}
