"""What kinds of jobs there are: one module each, imported when one is carried out.

A kind computes first and then stores: what its `work` returns is run inside the transaction that
also ends the job, so that a result is stored exactly when its job is done.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from tuner import db
from tuner.base.progress import ProgressCallback

JOB_KINDS = ("calibrate", "tune", "study")
FractionCallback = Callable[[float, str], None]  # (fraction done, what is happening)
JobSpec = Mapping[str, Any]  # what was asked for
StoreResult = Callable[[db.Session], dict[str, Any]]  # gives the result of the job
JobFunction = Callable[[db.Engine, JobSpec, FractionCallback], StoreResult]


def load_job_function(kind: str) -> JobFunction:
    """How jobs of this kind are carried out."""
    found: JobFunction = importlib.import_module(f"tuner.jobs.{kind}").work
    return found


def counting_callback(tell: FractionCallback, text: str) -> ProgressCallback:
    """A callback (done, of how many) that tells."""

    def progress(done: int, total: int) -> None:
        tell(done / total if total else 1.0, text)

    return progress
