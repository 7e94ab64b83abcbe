/* Uses MPI without starting it. */

#include <mpi.h>
#include <stdio.h>

int main(void)
{
    int version, part;
    MPI_Get_version(&version, &part);
    puts(version > 2 ? "No Errors" : "Errors");
    return 0;
}
