"""How code that moves time forward is compiled."""

from functools import partial

from numba import njit

# Nothing is allocated in it, so numba need not count references to the arrays that calls pass on,
# which would take three quarters of its time. A division by zero gives infinity, as in numpy.
compiled = partial(njit, cache=True, error_model="numpy", _nrt=False)
