"""The kinds of jobs: one module each, which is imported when a job of its kind runs.

A job first computes and then stores: the function that its `work` returns runs inside the
transaction that also ends the job, so that a result is stored exactly when its job is done.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner import db
from tuner.base.progress import ProgressCallback

JOB_KINDS = ("calibrate", "tune", "study")
PROBE = "probe"  # the kind that only services run that may measure
FractionCallback = Callable[[float, str], None]  # (fraction done, what is happening)
LogCallback = Callable[[str, Any], None]  # (what happened, the same for programs or None)
JobSpec = Mapping[str, Any]  # the parameters of a job
StoreResult = Callable[[db.Session], dict[str, Any]]  # stores and returns the result of the job


@dataclass(frozen=True)
class JobReport:
    """Functions with which a job says how far it is, and adds to its log."""

    progress: FractionCallback
    log: LogCallback


JobFunction = Callable[[db.Engine, JobSpec, JobReport], StoreResult]


def load_job_function(kind: str) -> JobFunction:
    """Return the function that runs jobs of this kind."""
    found: JobFunction = importlib.import_module(f"tuner.jobs.{kind}").work
    return found


def counting_callback(tell: FractionCallback, text: str) -> ProgressCallback:
    """Return a callback (done, total) that reports the fraction done and `text` to `tell`."""

    def progress(done: int, total: int) -> None:
        tell(done / total if total else 1.0, text)

    return progress
