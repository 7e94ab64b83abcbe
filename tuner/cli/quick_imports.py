"""Imports that cost nothing but the modules themselves."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

BLAS_THREADS = "OPENBLAS_NUM_THREADS"


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import without collecting garbage, and with one thread for BLAS.

    What is imported stays, so that later collections leave it out. The other threads that OpenBLAS
    starts with numpy would spin while a short command runs.
    """
    collected, is_chosen = gc.isenabled(), BLAS_THREADS in os.environ
    gc.disable()
    os.environ.setdefault(BLAS_THREADS, "1")
    try:
        yield
    finally:
        if not is_chosen:
            del os.environ[BLAS_THREADS]  # programs that a command starts choose for themselves
        if collected:
            gc.freeze()  # else the next allocation would start a collection of all these objects
            gc.enable()
