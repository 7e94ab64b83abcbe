/* Properties of datatypes and operators. Those of predefined ones are kept, since a library takes
 * up to ten nanoseconds to tell a size. */

#include "tuner.h"

#include <string.h>

struct predefined_datatype predefined_datatypes[PREDEFINED];
MPI_Op predefined_operators[PREDEFINED];

/* Return the bytes of a datatype; less than 0 where it has no size. */
int64_t measure_size(MPI_Datatype datatype)
{
    int size;
    if (datatype == MPI_DATATYPE_NULL || PMPI_Type_size(datatype, &size) || size == MPI_UNDEFINED)
        return -1;
    return size;
}

/* Say what a datatype is; false where the library does not know it. */
bool describe_element(MPI_Datatype datatype, struct element *element)
{
    const struct predefined_datatype *known =
        &predefined_datatypes[slot_of_predefined((uintptr_t)datatype)];
    MPI_Aint lower, extent;
    int integers, addresses, datatypes, combiner;
    if (known->datatype == datatype) {
        *element = (struct element){known->size, known->extent, true};
        return true;
    }
    *element = (struct element){.size = measure_size(datatype)};
    if (element->size < 0 || PMPI_Type_get_extent(datatype, &lower, &extent)
        || PMPI_Type_get_envelope(datatype, &integers, &addresses, &datatypes, &combiner))
        return false;
    element->extent = extent;
    element->is_predefined = combiner == MPI_COMBINER_NAMED && lower == 0;
    return true;
}

bool measure_commutative(MPI_Op op)
{
    int found = 0;
    return op != MPI_OP_NULL && PMPI_Op_commutative(op, &found) == MPI_SUCCESS && found;
}

void start_datatypes(void)
{
    const MPI_Datatype datatypes[] = {
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
    for (size_t i = 0; i < PREDEFINED; i++) {
        predefined_datatypes[i].datatype = MPI_DATATYPE_NULL;
        predefined_datatypes[i].size = -1;
        predefined_operators[i] = MPI_OP_NULL;
    }
    for (size_t i = 0; i < sizeof datatypes / sizeof *datatypes; i++) {
        struct element element;
        if (datatypes[i] != MPI_DATATYPE_NULL && describe_element(datatypes[i], &element)
            && element.is_predefined)
            predefined_datatypes[slot_of_predefined((uintptr_t)datatypes[i])] =
                (struct predefined_datatype){datatypes[i], (int32_t)element.size,
                                             (int32_t)element.extent};
    }
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        predefined_operators[slot_of_predefined((uintptr_t)operators[i])] = operators[i];
}

/* Say whether an operator is defined for a datatype, by a reduction of one element. */
bool is_reducible(MPI_Op op, MPI_Datatype datatype)
{
    _Alignas(max_align_t) char one[2][64];
    memset(one, 0, sizeof one);
    return PMPI_Reduce_local(one[0], one[1], 1, datatype, op) == MPI_SUCCESS;
}
