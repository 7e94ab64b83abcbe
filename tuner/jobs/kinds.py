"""What kinds of jobs there are: one module each, imported when one is carried out.

A kind computes first and then stores: what its `work` returns is run inside the transaction that
also ends the job, so that a result is stored exactly when its job is done.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from tuner import db
from tuner.base.progress import Counted

KINDS = ("calibrate", "tune", "study")
Tell = Callable[[float, str], None]  # (fraction done, what is happening)
Spec = Mapping[str, Any]  # what was asked for
Store = Callable[[db.Session], dict[str, Any]]  # gives the result of the job
Work = Callable[[db.Engine, Spec, Tell], Store]


def work(kind: str) -> Work:
    """How jobs of this kind are carried out."""
    found: Work = importlib.import_module(f"tuner.jobs.{kind}").work
    return found


def counted(tell: Tell, text: str) -> Counted:
    """A callback (done, of how many) that tells."""

    def progress(done: int, total: int) -> None:
        tell(done / total if total else 1.0, text)

    return progress
