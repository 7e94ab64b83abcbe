"""How much faster a single call becomes with each resource of a machine twice as fast."""

from __future__ import annotations

from collections.abc import Callable

from tuner.base.errors import LimitExceededError, MissingCostError
from tuner.machines import Machine
from tuner.whatif.machine_resources import studied_resources, with_faster


def call_sensitivities(
    machine: Machine, seconds_on: Callable[[Machine, str], float], of_nccl: bool
) -> dict[str, float]:
    """Return by resource how many times as fast a call is with the resource twice as fast.

    seconds_on      returns the time of the call on a machine in which a resource is faster, or ""
    of_nccl         that time is predicted from NCCL's cost model

    It is empty where the call cannot be simulated on one of the faster machines.
    """
    before = seconds_on(machine, "")
    found = dict[str, float]()
    for resource in studied_resources(machine, of_nccl) if before > 0.0 else ():
        try:
            found[resource] = before / seconds_on(with_faster(machine, resource), resource)
        except (MissingCostError, LimitExceededError):  # costs may be of paths of one rate alone
            return {}
    return found
