"""What calls take in two launches of the real library, without and with a tuning file."""

from tuner.validation.timing.paired import CONDITIONS, Side, Starter, TimedCall, Times, time_rounds
from tuner.validation.timing.program import TimingProgram, build

__all__ = [
    "CONDITIONS",
    "Side",
    "Starter",
    "TimedCall",
    "Times",
    "TimingProgram",
    "build",
    "time_rounds",
]
