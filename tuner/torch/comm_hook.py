"""A communication hook of DDP, for programs that keep their backend."""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from tuner.base.errors import InputError
from tuner.torch.options import Options
from tuner.torch.ranks import start_with_store

_gradient_groups: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


@dataclass(frozen=True)
class HookState:
    """The state of `allreduce_hook`.

    group       process group of the module; None: all ranks
    options     None: the environment says where the table is
    """

    group: Any = None
    options: Options | None = None


def allreduce_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average the gradients of a bucket over the ranks of a module by MPI under the table.

        model.register_comm_hook(None, tuner.torch.allreduce_hook)

    state   a tuner.torch.HookState, or only its options; None: its defaults

    All other calls of the program stay with its own backend. The first call for a group is
    collective, and its options hold. `destroy_process_group()` posts the times of the calls.
    """
    tensor = bucket.buffer()
    reducing = _gradient_group(_hook_state(state))
    work = dist.all_reduce(tensor, dist.ReduceOp.AVG, reducing, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def _hook_state(state: Any) -> HookState:
    if isinstance(state, HookState):
        return state
    if state is None or isinstance(state, Options):
        return HookState(options=state)
    raise InputError(
        "the state of allreduce_hook is a tuner.torch.HookState, a tuner.torch.Options or None,"
        f" not a {type(state).__name__}"
    )


def _gradient_group(state: HookState) -> Any:
    """Return the group of this backend with the ranks of the module's group.

    PyTorch destroys it with all others.
    """
    group = dist.group.WORLD if state.group is None else state.group
    if group not in _gradient_groups:
        start_with_store(
            dist.PrefixStore("tuner", dist.distributed_c10d._get_default_store()),
            dist.get_rank(),
            dist.get_world_size(),
        )
        _gradient_groups[group] = dist.new_group(
            dist.get_process_group_ranks(group),
            backend="tuner",
            pg_options=state.options or Options(),
            use_local_synchronization=True,
        )
    return _gradient_groups[group]
