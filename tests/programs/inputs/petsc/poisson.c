/* Solve Poisson's equation on a square by conjugate gradients, and say how good the result is. */

#include <petscksp.h>

/* Set the row of a point of the grid in the matrix of the five-point stencil. */
static PetscErrorCode set_row(Mat matrix, PetscInt n, PetscInt row)
{
    const PetscInt x = row % n, y = row / n;
    const PetscInt neighbours[4] = {x > 0 ? row - 1 : -1, x < n - 1 ? row + 1 : -1,
                                    y > 0 ? row - n : -1, y < n - 1 ? row + n : -1};
    const PetscScalar off_diagonal[4] = {-1.0, -1.0, -1.0, -1.0};
    PetscCall(MatSetValue(matrix, row, row, 4.0, INSERT_VALUES));
    PetscCall(MatSetValues(matrix, 1, &row, 4, neighbours, off_diagonal, INSERT_VALUES));
    return 0;
}

static PetscErrorCode create_matrix(PetscInt n, Mat *matrix)
{
    PetscInt first, last;
    PetscCall(MatCreateAIJ(PETSC_COMM_WORLD, PETSC_DECIDE, PETSC_DECIDE, n * n, n * n, 5, NULL, 5,
                           NULL, matrix));
    PetscCall(MatGetOwnershipRange(*matrix, &first, &last));
    for (PetscInt row = first; row < last; row++)
        PetscCall(set_row(*matrix, n, row));
    PetscCall(MatAssemblyBegin(*matrix, MAT_FINAL_ASSEMBLY));
    PetscCall(MatAssemblyEnd(*matrix, MAT_FINAL_ASSEMBLY));
    return 0;
}

/* Return the largest error of a solution that should be 1 everywhere. */
static PetscErrorCode largest_error(Vec solution, PetscReal *error)
{
    PetscCall(VecShift(solution, -1.0));
    PetscCall(VecNorm(solution, NORM_INFINITY, error));
    return 0;
}

int main(int argc, char **argv)
{
    PetscInt n = 120, iterations;
    PetscReal error;
    Mat matrix;
    Vec wanted, right;
    KSP solver;
    PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
    PetscCall(create_matrix(n, &matrix));
    PetscCall(MatCreateVecs(matrix, &wanted, &right));
    PetscCall(VecSet(wanted, 1.0));
    PetscCall(MatMult(matrix, wanted, right));
    PetscCall(KSPCreate(PETSC_COMM_WORLD, &solver));
    PetscCall(KSPSetOperators(solver, matrix, matrix));
    PetscCall(KSPSetTolerances(solver, 1e-10, PETSC_DEFAULT, PETSC_DEFAULT, PETSC_DEFAULT));
    PetscCall(KSPSetFromOptions(solver));
    PetscCall(KSPSolve(solver, right, wanted));
    PetscCall(KSPGetIterationNumber(solver, &iterations));
    PetscCall(largest_error(wanted, &error));
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "iterations: %d\nthe solution is %s\n",
                          (int)iterations, error < 1e-6 ? "right" : "wrong"));
    PetscCall(KSPDestroy(&solver));
    PetscCall(VecDestroy(&wanted));
    PetscCall(VecDestroy(&right));
    PetscCall(MatDestroy(&matrix));
    return PetscFinalize();
}
