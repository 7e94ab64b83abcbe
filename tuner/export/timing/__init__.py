"""What calls take in two launches of the real library, without and with a tuning file."""

from tuner.export.timing.paired import CONDITIONS, Side, Starter, TimedCall, Times, time_rounds
from tuner.export.timing.program import TimingProgram, build

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
