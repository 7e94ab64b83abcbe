"""What if: the best algorithm over a few axes of a machine that need not exist.

A `Study` is a machine, the axes along which it varies, collectives and sizes. `run` prices every
candidate at every point, here or over the cores of this computer (`locally`) or of a cluster
(`on_cluster`), and says which is best, where the best one changes, and what it would cost to keep
the choices of an existing table.
"""

from tuner.whatif.axes import AXES, placed, varied
from tuner.whatif.dask_executor import on_cluster
from tuner.whatif.executors import locally, serially
from tuner.whatif.study_checkpoint import kept_in
from tuner.whatif.study_result import (
    Kept,
    StudyPoint,
    StudyResult,
    Switch,
    Timing,
    result_from_record,
    result_record,
)
from tuner.whatif.study_runner import CancelledError, run
from tuner.whatif.study_spec import References, Study, read_study, study_from, study_record

__all__ = [
    "AXES",
    "CancelledError",
    "Kept",
    "References",
    "Study",
    "StudyPoint",
    "StudyResult",
    "Switch",
    "Timing",
    "kept_in",
    "locally",
    "on_cluster",
    "placed",
    "read_study",
    "result_from_record",
    "result_record",
    "run",
    "serially",
    "study_from",
    "study_record",
    "varied",
]
