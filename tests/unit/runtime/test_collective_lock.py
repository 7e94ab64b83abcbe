"""The lock that all ranks take together, or none of them."""

from types import SimpleNamespace
from typing import Any

import pytest
from mpi4py import MPI

from tuner.runtime.collective_lock import VARIABLES_LOCK, collective_lock


def lost(*_: object) -> None:
    raise MPI.Exception(MPI.ERR_OTHER)


def fail(comm: Any) -> None:
    with collective_lock(comm):
        assert VARIABLES_LOCK.locked()
        raise ZeroDivisionError


def test_a_lock_that_could_not_be_agreed_on_is_given_back() -> None:
    """Else whoever wants it next, over ranks that are all well, would try for ever."""
    with pytest.raises(MPI.Exception):
        fail(SimpleNamespace(Barrier=lambda: None, Allreduce=lost))
    assert not VARIABLES_LOCK.locked()


def test_it_is_given_back_by_who_fails() -> None:
    with pytest.raises(ZeroDivisionError):
        fail(MPI.COMM_SELF)
    assert not VARIABLES_LOCK.locked()
