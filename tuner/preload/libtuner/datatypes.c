/* Properties of datatypes and operators. Those of predefined ones are kept, since a library takes
 * up to ten nanoseconds to tell a size. */

#include "tuner.h"

struct predefined_datatype predefined_datatypes[PREDEFINED];
MPI_Op predefined_operators[PREDEFINED];

/* For which datatypes the standard defines each operator; COUNTS are integers of Fortran, too. */
enum { INTEGER = 1, COUNTS = 2, FLOATING = 4, COMPLEX = 8, LOGICAL = 16, BYTES = 32, PAIRS = 64 };
static const struct {
    MPI_Op op;
    int classes;
} operators[] = {
    {MPI_SUM, INTEGER | COUNTS | FLOATING | COMPLEX},
    {MPI_MAX, INTEGER | COUNTS | FLOATING},
    {MPI_MIN, INTEGER | COUNTS | FLOATING},
    {MPI_PROD, INTEGER | COUNTS | FLOATING | COMPLEX},
    {MPI_LAND, INTEGER | LOGICAL},
    {MPI_LOR, INTEGER | LOGICAL},
    {MPI_LXOR, INTEGER | LOGICAL},
    {MPI_BAND, INTEGER | COUNTS | BYTES},
    {MPI_BOR, INTEGER | COUNTS | BYTES},
    {MPI_BXOR, INTEGER | COUNTS | BYTES},
    {MPI_MINLOC, PAIRS},
    {MPI_MAXLOC, PAIRS},
    {MPI_REPLACE, 0},
    {MPI_NO_OP, 0},
};
enum { N_OPERATORS = sizeof operators / sizeof *operators };
static struct classed_datatype {
    MPI_Datatype datatype;
    int classes;
} classed_datatypes[PREDEFINED];

/* Return where a datatype's classes are, the same on all ranks. */
static struct classed_datatype *class_of(MPI_Datatype datatype)
{
    size_t place = slot_of_predefined((uintptr_t)datatype);
    while (classed_datatypes[place].datatype != datatype
           && classed_datatypes[place].datatype != MPI_DATATYPE_NULL)
        place = (place + 1) % PREDEFINED;
    return &classed_datatypes[place];
}

/* Return the bytes of a datatype; less than 0 where it has no size. */
int64_t measure_size(MPI_Datatype datatype)
{
    MPI_Count size;
    if (datatype == MPI_DATATYPE_NULL || PMPI_Type_size_x(datatype, &size)
        || size == MPI_UNDEFINED)
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
        return known->size >= 0; /* unused slots have the null datatype */
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
    const struct classed_datatype datatypes[] = {
        {MPI_CHAR, 0},                  {MPI_CHARACTER, 0},           {MPI_BYTE, BYTES},
        {MPI_SIGNED_CHAR, INTEGER},     {MPI_UNSIGNED_CHAR, INTEGER}, {MPI_SHORT, INTEGER},
        {MPI_UNSIGNED_SHORT, INTEGER},  {MPI_INT, INTEGER},           {MPI_UNSIGNED, INTEGER},
        {MPI_LONG, INTEGER},            {MPI_UNSIGNED_LONG, INTEGER}, {MPI_LONG_LONG, INTEGER},
        {MPI_UNSIGNED_LONG_LONG, INTEGER}, {MPI_INT8_T, INTEGER},     {MPI_INT16_T, INTEGER},
        {MPI_INT32_T, INTEGER},         {MPI_INT64_T, INTEGER},       {MPI_UINT8_T, INTEGER},
        {MPI_UINT16_T, INTEGER},        {MPI_UINT32_T, INTEGER},      {MPI_UINT64_T, INTEGER},
        {MPI_INTEGER, COUNTS},          {MPI_INTEGER4, COUNTS},       {MPI_INTEGER8, COUNTS},
        {MPI_AINT, COUNTS},             {MPI_COUNT, COUNTS},          {MPI_OFFSET, COUNTS},
        {MPI_FLOAT, FLOATING},          {MPI_DOUBLE, FLOATING},       {MPI_LONG_DOUBLE, FLOATING},
        {MPI_REAL, FLOATING},           {MPI_REAL4, FLOATING},        {MPI_REAL8, FLOATING},
        {MPI_DOUBLE_PRECISION, FLOATING}, {MPI_COMPLEX, COMPLEX},     {MPI_DOUBLE_COMPLEX, COMPLEX},
        {MPI_C_FLOAT_COMPLEX, COMPLEX}, {MPI_C_DOUBLE_COMPLEX, COMPLEX}, {MPI_C_BOOL, LOGICAL},
        {MPI_LOGICAL, LOGICAL},         {MPI_2INT, PAIRS},            {MPI_FLOAT_INT, PAIRS},
        {MPI_DOUBLE_INT, PAIRS},        {MPI_LONG_INT, PAIRS},
    };
    for (size_t i = 0; i < PREDEFINED; i++) {
        predefined_datatypes[i].datatype = MPI_DATATYPE_NULL;
        predefined_datatypes[i].size = -1;
        classed_datatypes[i].datatype = MPI_DATATYPE_NULL;
        predefined_operators[i] = MPI_OP_NULL;
    }
    for (size_t i = 0; i < sizeof datatypes / sizeof *datatypes; i++) {
        const MPI_Datatype datatype = datatypes[i].datatype;
        struct element element;
        if (datatype != MPI_DATATYPE_NULL && describe_element(datatype, &element)
            && element.is_predefined && element.size) {
            predefined_datatypes[slot_of_predefined((uintptr_t)datatype)] =
                (struct predefined_datatype){datatype, (int32_t)element.size,
                                             (int32_t)element.extent};
            *class_of(datatype) = datatypes[i];
        }
    }
    for (size_t i = 0; i < N_OPERATORS; i++)
        if (operators[i].classes)
            predefined_operators[slot_of_predefined((uintptr_t)operators[i].op)] = operators[i].op;
}

/* Say whether an operator is defined for a datatype. It is not tried, since libraries end programs
 * for an error that is not one of a communicator. */
bool is_reducible(MPI_Op op, MPI_Datatype datatype)
{
    if (op == MPI_OP_NULL)
        return false;
    for (size_t i = 0; i < N_OPERATORS; i++)
        if (operators[i].op == op)
            return operators[i].classes & class_of(datatype)->classes;
    return true;
}

/* Say whether a derived datatype can be used in messages. */
bool is_committed(MPI_Datatype datatype)
{
    char nothing[8] = "";
    int position = 0;
    return PMPI_Pack(nothing, 0, datatype, nothing, sizeof nothing, &position, packing)
           == MPI_SUCCESS;
}
