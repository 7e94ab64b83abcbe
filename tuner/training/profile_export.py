"""Export of the collective calls of a predicted iteration as a profile."""

from __future__ import annotations

from pathlib import Path

from tuner.core.call_profile import CallProfile, ProfiledCall, write_call_profile
from tuner.core.collective import Collective
from tuner.core.path_classes import HOST
from tuner.training.iteration import PredictedIteration


def write_profile(
    path: Path, prediction: PredictedIteration, name: str = "training", memory: str = HOST
) -> None:
    """Write the calls of an iteration as a profile (`tuner.core.call_profile`).

    Left out are messages, which are no collective, and calls of one rank.

    name        name of the application
    memory      kind of memory that the buffers are in
    """
    calls = tuple(
        ProfiledCall(one.call.operation, one.nodes, one.ppn, one.call.nbytes, one.count, memory)
        for one in prediction.calls
        if one.call.operation in list(Collective) and one.call.group.size > 1 and one.call.nbytes
    )
    write_call_profile(path, CallProfile(name, calls))
