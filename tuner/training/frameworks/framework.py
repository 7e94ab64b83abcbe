"""The protocol of all frameworks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tuner.base.file_settings import declared_settings
from tuner.training.job import TrainingJob
from tuner.training.timeline import Timeline


class Framework(ABC):
    """A framework of training; one that is data-parallel has a whole model on each rank.

    Its settings are the fields that have a kind.
    """

    @property
    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in declared_settings(type(self))}

    @property
    def replica_ranks(self) -> int:
        """Number of ranks over which one replica of the model is divided."""
        return 1

    def compute_seconds(self, job: TrainingJob) -> float:
        """Return the seconds that a rank computes in an iteration, without noise."""
        return job.compute

    @abstractmethod
    def add_iteration(
        self, job: TrainingJob, timeline: Timeline, ready: Sequence[int | None]
    ) -> list[int | None]:
        """Add an iteration; return the operation after which each layer can be used again."""
