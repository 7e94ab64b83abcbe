"""Single-threaded linear algebra."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def single_threaded_blas(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function so that BLAS uses one thread in it.

    The threads of BLAS spin while they wait for each other. For matrices of some hundred rows they
    save little where cores are idle; where another program uses one of the cores, the computation
    takes ten times as long.
    """

    @wraps(function)
    def alone(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with _threadpool_controller().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return alone


@cache
def _threadpool_controller() -> ThreadpoolController:
    """Return the controller, created once: finding the libraries takes longer than predicting."""
    return ThreadpoolController()
