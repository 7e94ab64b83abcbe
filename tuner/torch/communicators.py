"""The communicators of process groups: that of all ranks, and those of some of them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

from tuner.runtime import tune
from tuner.runtime.entry import UntunedComm
from tuner.torch.options import Options

_MAX_TAG = 32767  # that every MPI library has


@dataclass(frozen=True)
class _World:
    """The communicators of all ranks.

    maker       has no calls but those that make communicators, which may come from any thread
    tuned       follows the table
    """

    maker: MPI.Intracomm
    tuned: Any
    options: Options


_world: _World | None = None


def world_comm(options: Options) -> Any:
    """Return the communicator of the default group, whose table other groups follow; collective."""
    global _world
    _world = _World(MPI.COMM_WORLD.Dup(), tune(MPI.COMM_WORLD.Dup(), **vars(options)), options)
    return _world.tuned


def group_comm(ranks: Sequence[int], name: str, options: Options | None) -> Any:
    """Return a new communicator of some of the ranks; collective over these.

    ranks       in MPI.COMM_WORLD
    name        of the process group, the same on all ranks of it
    options     None: the table of the default group, where that is of this backend
    """
    maker = MPI.COMM_WORLD if _world is None else _world.maker
    group = maker.group.Incl(list(ranks))
    made = maker.Create_group(group, zlib.crc32(name.encode()) % _MAX_TAG)
    group.Free()
    if options is not None or _world is None:
        return tune(made, **vars(options or Options()))
    if isinstance(_world.tuned, UntunedComm) or not hasattr(_world.tuned, "tune_derived"):
        return made
    if made.size == _world.maker.size:
        return tune(made, **vars(_world.options))
    return _world.tuned.tune_derived(made)


def release_comm_of_group(comm: Any) -> None:
    """Post the times of calls, and free a communicator of this module; collective."""
    global _world
    if hasattr(comm, "finalize"):
        comm.finalize()
    if _world is not None and comm is _world.tuned:
        _world.maker.Free()
        _world = None
    comm.Free()
