"""Linear algebra on one thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def single_threaded_blas(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Without the threads of BLAS.

    Those wait for one another by spinning. Of matrices of some hundred rows they save little where
    cores are idle; where another program has one of them, they make it take ten times as long.
    """

    @wraps(function)
    def alone(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with _threadpool_controller().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return alone


@cache
def _threadpool_controller() -> ThreadpoolController:
    """Looking for the libraries takes longer than predicting."""
    return ThreadpoolController()
