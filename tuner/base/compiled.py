"""Functions that numba compiles, and whose machine code it keeps in its cache.

Before numba loads anything from its cache it fills the registries of its compiler, which takes
longer than most predictions. Functions decorated here are loaded without; the compiler fills the
registries by itself when it needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import event
from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import _nrt, ll  # type: ignore[attr-defined]  # an extension

from tuner.base.signals import DEFERRED_INTERRUPT

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Decorate a function so that numba compiles it with these options when it is first called."""

    def decorate(function: Function) -> Function:
        dispatcher: Any = njit(**options)(function)
        dispatcher._cache = _MachineCodeCache(function)
        return cast(Function, dispatcher)

    return decorate


class _MachineCodeCache(FunctionCache):
    """The cache that numba itself uses, without what only its compiler needs."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the machine code for a signature, None if it must be compiled."""
        _register_allocator()
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


@cache
def _register_allocator() -> None:
    """Tell LLVM where the functions are that machine code calls to allocate arrays."""
    for name, address in _nrt.c_helpers.items():
        ll.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


class _SignalBlocker(event.Listener):
    """Listener that defers signals while numba holds its compiler lock.

    LLVM hands over compiled code in callbacks, where an exception would be lost together with the
    code.
    """

    def on_start(self, _event: event.Event) -> None:
        """Defer signals when the compiler lock is taken."""
        DEFERRED_INTERRUPT.enter_critical_section()

    def on_end(self, _event: event.Event) -> None:
        """Deliver signals again when the compiler lock is released."""
        DEFERRED_INTERRUPT.leave_critical_section()


event.register("numba:compiler_lock", _SignalBlocker())
