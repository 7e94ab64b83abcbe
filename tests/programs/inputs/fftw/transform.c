/* Transform a cube by FFTW forth and back, and say whether it is then as before. */

#include <fftw3-mpi.h>
#include <math.h>
#include <stdio.h>

enum { SIDE = 48, ROUNDS = 10 };

/* Give each point of this rank's planes a value that depends on its place alone. */
static void fill(fftw_complex *values, ptrdiff_t number, ptrdiff_t first)
{
    for (ptrdiff_t i = 0; i < number; i++) {
        values[i][0] = (double)((first + i) * 7919 % 1009) / 1009.0;
        values[i][1] = (double)((first + i) * 104729 % 997) / 997.0;
    }
}

/* Return the largest difference of values, which a round trip multiplies, from what they were. */
static double largest_error(const fftw_complex *values, ptrdiff_t number, ptrdiff_t first)
{
    double error = 0.0;
    fftw_complex *wanted = fftw_alloc_complex(number);
    fill(wanted, number, first);
    for (ptrdiff_t i = 0; i < number; i++)
        for (int part = 0; part < 2; part++)
            error = fmax(error, fabs(values[i][part] - wanted[i][part]));
    fftw_free(wanted);
    MPI_Allreduce(MPI_IN_PLACE, &error, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return error;
}

int main(int argc, char **argv)
{
    int rank;
    ptrdiff_t planes, start;
    MPI_Init(&argc, &argv);
    fftw_mpi_init();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const ptrdiff_t size = fftw_mpi_local_size_3d(SIDE, SIDE, SIDE, MPI_COMM_WORLD, &planes, &start);
    const ptrdiff_t number = planes * SIDE * SIDE, first = start * SIDE * SIDE;
    fftw_complex *values = fftw_alloc_complex(size);
    fftw_plan forth = fftw_mpi_plan_dft_3d(SIDE, SIDE, SIDE, values, values, MPI_COMM_WORLD,
                                           FFTW_FORWARD, FFTW_MEASURE);
    fftw_plan back = fftw_mpi_plan_dft_3d(SIDE, SIDE, SIDE, values, values, MPI_COMM_WORLD,
                                          FFTW_BACKWARD, FFTW_MEASURE);
    fill(values, number, first);
    for (int round = 0; round < ROUNDS; round++) {
        fftw_execute(forth);
        fftw_execute(back);
        for (ptrdiff_t i = 0; i < number; i++)
            for (int part = 0; part < 2; part++)
                values[i][part] /= (double)SIDE * SIDE * SIDE;
    }
    const double error = largest_error(values, number, first);
    if (rank == 0)
        printf("the cube is %s\n", error < 1e-12 ? "as before" : "another one");
    fftw_destroy_plan(forth);
    fftw_destroy_plan(back);
    fftw_free(values);
    fftw_mpi_cleanup();
    MPI_Finalize();
    return 0;
}
