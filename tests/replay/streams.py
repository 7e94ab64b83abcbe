"""The two streams of a rank: one computes in a thread, the other one communicates."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence

from tests.replay.replay_plan import ReplayStep
from tuner.base.arrays import FloatArray

SLEEP, SPIN = COMPUTE_KINDS = ("sleep", "spin")
SPUN_BYTES = bytes(1 << 14)  # hashed at once, some 20 us in which other threads run Python


class StreamFailedError(RuntimeError):
    """The other stream of this rank has failed."""


class Progress:
    """How often each step has ended, for streams that wait for one another.

    steps       number of steps
    """

    def __init__(self, steps: int) -> None:
        self._ended = [0] * steps
        self._changed = threading.Condition()
        self._failed = False

    def mark(self, step: int) -> None:
        """Count one more end of a step."""
        with self._changed:
            self._ended[step] += 1
            self._changed.notify_all()

    def fail(self) -> None:
        """Let the other stream stop waiting: this one has failed."""
        with self._changed:
            self._failed = True
            self._changed.notify_all()

    def has_ended(self, step: int, times: int) -> bool:
        """Return whether a step has ended some number of times; raise as `wait` does."""
        with self._changed:
            return self._is_over([(step, times)])

    def wait(self, steps: Sequence[tuple[int, int]]) -> bool:
        """Wait for steps, each with the number of times; return whether that was necessary.

        Raises StreamFailedError when the other stream has failed.
        """
        with self._changed:
            if self._is_over(steps):
                return False
            self._changed.wait_for(lambda: self._is_over(steps))
            return True

    def _is_over(self, steps: Sequence[tuple[int, int]]) -> bool:
        if self._failed:
            raise StreamFailedError("the other stream of this rank has failed")
        return all(self._ended[step] >= times for step, times in steps)


def sleep_until(moment: float) -> None:
    """Sleep until time.monotonic() shows a moment."""
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)


def spin_until(moment: float) -> None:
    """Occupy a core until time.monotonic() shows a moment, and let other threads run Python."""
    while time.monotonic() < moment:
        hashlib.sha256(SPUN_BYTES)


def awaited(step: ReplayStep, iteration: int) -> list[tuple[int, int]]:
    """Return the steps that a step waits for, and how often each must have ended."""
    own = [(other, iteration + 1) for other in step.after]
    return own + [(other, iteration) for other in step.before]


class ComputeStream(threading.Thread):
    """The computation of a rank, in a thread, as its steps one after the other.

    A step begins when the one before was due, if nothing holds it up, so that sleeping too long
    does not add up.

    slowdown    factor of the compute time of each iteration, shape (iterations,)
    ends        when each iteration ended, as time.monotonic() shows it
    """

    def __init__(
        self,
        steps: Sequence[ReplayStep],
        progress: Progress,
        slowdown: FloatArray,
        wait_until: Callable[[float], None],
    ) -> None:
        super().__init__(name="compute", daemon=True)
        self._steps = [(number, step) for number, step in enumerate(steps) if step.computes]
        self._progress, self._slowdown, self._wait_until = progress, slowdown, wait_until
        self.ends: list[float] = []

    def run(self) -> None:
        try:
            due = time.monotonic()
            for iteration, factor in enumerate(self._slowdown):
                for number, step in self._steps:
                    if self._progress.wait(awaited(step, iteration)):
                        due = time.monotonic()
                    due += step.seconds * float(factor)
                    self._wait_until(due)
                    self._progress.mark(number)
                self.ends.append(due)
        except StreamFailedError:
            return
        except BaseException:
            self._progress.fail()
            raise
