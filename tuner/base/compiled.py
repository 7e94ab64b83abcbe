"""Functions that numba compiles, and whose machine code it keeps in its cache.

Machine code contains what a function calls from other modules, so it is used only as long as no
module of the package `tuner` that has the function changes; numba itself looks at one module.

Before numba loads anything from its cache it fills the registries of its compiler, which takes
longer than most predictions. Functions decorated here are loaded without; the compiler fills the
registries by itself when it needs them.

What was compiled where this package is installed is used by all users, who may be unable to write
there: numba itself ignores what is beside a module unless it can write to that folder.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import event
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    _CacheLocator,
    _SourceFileBackedLocatorMixin,
)
from numba.core.runtime.nrt import _nrt, ll  # type: ignore[attr-defined]  # an extension

from tuner.base.code_digest import PACKAGE, code_digest
from tuner.base.signals import DEFERRED_INTERRUPT

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Decorate a function so that numba compiles it with these options when it is first called."""

    def decorate(function: Function) -> Function:
        dispatcher: Any = njit(**options)(function)
        dispatcher._cache = _MachineCodeCache(function)
        return cast(Function, dispatcher)

    return decorate


class _Installed(_SourceFileBackedLocatorMixin, _CacheLocator):
    """The folder beside a module, whether it can be written to or not."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file, self._lineno = file, function.__code__.co_firstlineno

    def get_source_stamp(self) -> Any:
        """Return a digest of the sources of the function and of all that it may call."""
        path = Path(self._py_file).resolve()
        if PACKAGE in path.parents:
            return code_digest(PACKAGE / path.relative_to(PACKAGE).parts[0])
        return super().get_source_stamp()  # type: ignore[no-untyped-call]

    def get_cache_path(self) -> str:
        return str(Path(self._py_file).parent / "__pycache__")

    def ensure_cache_path(self) -> None:
        """Accept the folder as it is."""


class _MachineCode(CompileResultCacheImpl):
    """A store of machine code, in a folder of this user where there is one."""

    _locator_classes = [*CompileResultCacheImpl._locator_classes, _Installed]  # noqa: RUF012


class _MachineCodeCache(FunctionCache):
    """The cache that numba itself uses, without what only its compiler needs."""

    _impl_class = _MachineCode

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        installed = _Installed(function, inspect.getfile(function))
        self._cache_file, self._installed = (
            IndexDataCacheFile(
                locator.get_cache_path(), self._impl.filename_base, installed.get_source_stamp()
            )
            for locator in (self._impl.locator, installed)
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the machine code for a signature, None if it must be compiled."""
        _register_allocator()
        with suppress(OSError):
            found = self._load_overload(sig, target_context)
            if found is not None:
                return found
        with suppress(OSError):
            data = self._installed.load(self._index_key(sig, target_context.codegen()))
            return None if data is None else self._impl.rebuild(target_context, data)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the machine code; where it cannot be written, every process compiles it."""
        with suppress(OSError):
            self._save_overload(sig, data)


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
