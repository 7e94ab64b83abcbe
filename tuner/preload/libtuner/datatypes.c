/* Properties of datatypes and operators. Those of predefined ones are kept, since a library takes
 * up to ten nanoseconds to tell a size. */

#include "tuner.h"

#include <string.h>

enum { KNOWN = 128 }; /* a power of two; some forty handles are predefined */

struct known_element {
    MPI_Datatype datatype;
    bool is_used;
    struct element element;
};

static struct known_element known_elements[KNOWN];
static struct {
    MPI_Op op;
    bool is_used;
} commutative[KNOWN];

static size_t place(uintptr_t handle)
{
    return (handle ^ handle >> 5 ^ handle >> 11) % KNOWN;
}

static bool measure_element(MPI_Datatype datatype, struct element *element)
{
    MPI_Aint lower, extent;
    int size, integers, addresses, datatypes, combiner;
    if (PMPI_Type_size(datatype, &size) || size == MPI_UNDEFINED
        || PMPI_Type_get_extent(datatype, &lower, &extent)
        || PMPI_Type_get_envelope(datatype, &integers, &addresses, &datatypes, &combiner))
        return false;
    *element = (struct element){size, extent, combiner == MPI_COMBINER_NAMED && lower == 0};
    return true;
}

/* Say what a datatype is; false where the library does not know it. */
bool describe_element(MPI_Datatype datatype, struct element *element)
{
    const struct known_element *known = &known_elements[place((uintptr_t)datatype)];
    if (known->is_used && known->datatype == datatype) {
        *element = known->element;
        return true;
    }
    return datatype != MPI_DATATYPE_NULL && measure_element(datatype, element);
}

bool is_commutative(MPI_Op op)
{
    size_t at = place((uintptr_t)op);
    if (commutative[at].is_used && commutative[at].op == op)
        return true;
    int found = 0;
    return PMPI_Op_commutative(op, &found) == MPI_SUCCESS && found;
}

void start_datatypes(void)
{
    const MPI_Datatype predefined[] = {
        MPI_CHAR,        MPI_SIGNED_CHAR,   MPI_UNSIGNED_CHAR,      MPI_BYTE,     MPI_SHORT,
        MPI_INT,         MPI_LONG,          MPI_LONG_LONG,          MPI_UNSIGNED, MPI_UNSIGNED_SHORT,
        MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG, MPI_FLOAT,       MPI_DOUBLE,   MPI_LONG_DOUBLE,
        MPI_INT8_T,      MPI_INT16_T,       MPI_INT32_T,            MPI_INT64_T,  MPI_UINT8_T,
        MPI_UINT16_T,    MPI_UINT32_T,      MPI_UINT64_T,           MPI_C_BOOL,   MPI_C_FLOAT_COMPLEX,
        MPI_C_DOUBLE_COMPLEX, MPI_AINT,     MPI_COUNT,              MPI_OFFSET,   MPI_INTEGER,
        MPI_REAL,        MPI_DOUBLE_PRECISION, MPI_COMPLEX,         MPI_LOGICAL,  MPI_CHARACTER,
        MPI_DOUBLE_INT,  MPI_FLOAT_INT,     MPI_2INT,               MPI_LONG_INT, MPI_DOUBLE_COMPLEX,
    };
    const MPI_Op operators[] = {MPI_MAX,  MPI_MIN, MPI_SUM,  MPI_PROD, MPI_LAND,   MPI_BAND,
                                MPI_LOR,  MPI_BOR, MPI_LXOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC};
    for (size_t i = 0; i < sizeof predefined / sizeof *predefined; i++) {
        struct known_element *known = &known_elements[place((uintptr_t)predefined[i])];
        if (predefined[i] != MPI_DATATYPE_NULL && measure_element(predefined[i], &known->element)) {
            known->datatype = predefined[i];
            known->is_used = true;
        }
    }
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        commutative[place((uintptr_t)operators[i])].op = operators[i];
        commutative[place((uintptr_t)operators[i])].is_used = true;
    }
}

/* Say whether an operator is defined for a datatype, by a reduction of one element. */
bool is_reducible(MPI_Op op, MPI_Datatype datatype)
{
    _Alignas(max_align_t) char one[2][64];
    memset(one, 0, sizeof one);
    return PMPI_Reduce_local(one[0], one[1], 1, datatype, op) == MPI_SUCCESS;
}
