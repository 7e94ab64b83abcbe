"""Single-threaded linear algebra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Make BLAS use one thread in a block, or as a decorator in a function.

    The threads of BLAS spin while they wait for each other. For matrices of some hundred rows they
    save little where cores are idle; where another program uses one of the cores, the computation
    takes ten times as long.
    """
    with _threadpool_controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _threadpool_controller() -> ThreadpoolController:
    """Return the controller, created once: finding the libraries takes longer than predicting."""
    return ThreadpoolController()
