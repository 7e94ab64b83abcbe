"""What-if studies: the best algorithms as a machine, which need not exist, varies along a few axes.

A `Study` is a machine, the axes along which it varies, collectives and sizes. `run_study` simulates
every candidate at every point, in this process, over the cores of this computer
(`make_parallel_executor`) or over those of a cluster (`dask_executor`, which needs Dask). The
result says which candidate is best, where the best one changes (crossovers), what each step along
an axis gains, and what following an existing tuning table would cost.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.whatif.axes import AXES, apply_axes, place_ranks
    from tuner.whatif.executors import make_parallel_executor, run_serial
    from tuner.whatif.study_checkpoint import checkpoint_file
    from tuner.whatif.study_result import (
        AxisStep,
        Crossover,
        MachineValue,
        StudyPoint,
        StudyResult,
        TableRegret,
        TimedCandidate,
        result_from_record,
        result_record,
    )
    from tuner.whatif.study_runner import CancelledError, run_study
    from tuner.whatif.study_spec import (
        ResourceResolver,
        Study,
        read_study,
        study_from_record,
        study_record,
    )

_MODULES = {
    "AXES": "axes",
    "apply_axes": "axes",
    "place_ranks": "axes",
    "make_parallel_executor": "executors",
    "run_serial": "executors",
    "checkpoint_file": "study_checkpoint",
    "AxisStep": "study_result",
    "Crossover": "study_result",
    "MachineValue": "study_result",
    "StudyPoint": "study_result",
    "StudyResult": "study_result",
    "TableRegret": "study_result",
    "TimedCandidate": "study_result",
    "result_from_record": "study_result",
    "result_record": "study_result",
    "CancelledError": "study_runner",
    "run_study": "study_runner",
    "ResourceResolver": "study_spec",
    "Study": "study_spec",
    "read_study": "study_spec",
    "study_from_record": "study_spec",
    "study_record": "study_spec",
}

__all__ = [
    "AXES",
    "AxisStep",
    "CancelledError",
    "Crossover",
    "MachineValue",
    "ResourceResolver",
    "Study",
    "StudyPoint",
    "StudyResult",
    "TableRegret",
    "TimedCandidate",
    "apply_axes",
    "checkpoint_file",
    "make_parallel_executor",
    "place_ranks",
    "read_study",
    "result_from_record",
    "result_record",
    "run_serial",
    "run_study",
    "study_from_record",
    "study_record",
]


def __getattr__(name: str) -> Any:
    """Import a name on first use: what describes machines does without the simulation."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
