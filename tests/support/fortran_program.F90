! Check collectives that are called from Fortran, also in place; rank 0 prints "No Errors".
! BINDING is how it gets MPI's declarations: 1 mpif.h, 2 the module mpi, 3 the module mpi_f08.
program fortran_program
#if BINDING == 3
  use mpi_f08
  implicit none
#elif BINDING == 2
  use mpi
  implicit none
#else
  implicit none
  include 'mpif.h'
#endif
  integer :: rank, ranks, ierr, i, errors, total
  integer :: give(100), take(100)
  double precision :: values(50)

  errors = 0
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  give = [(rank + i, i = 1, 100)]
  call MPI_Allreduce(give, take, 100, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  errors = errors + count(take /= [(ranks * i + ranks * (ranks - 1) / 2, i = 1, 100)])
  call MPI_Allreduce(MPI_IN_PLACE, give, 100, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  errors = errors + count(give /= take)
  values = rank
  call MPI_Bcast(values, 50, MPI_DOUBLE_PRECISION, ranks - 1, MPI_COMM_WORLD, ierr)
  errors = errors + count(values /= ranks - 1)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call MPI_Reduce(errors, total, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, ierr)
  if (rank == 0 .and. total == 0) print '(a)', 'No Errors'
  if (rank == 0 .and. total /= 0) print '(i0, a)', total, ' errors'
  call MPI_Finalize(ierr)
end program fortran_program
