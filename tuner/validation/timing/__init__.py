"""Times of calls in two launches of the real library, without and with a tuning file."""

from tuner.validation.timing.paired import (
    CONDITIONS,
    LaunchOptions,
    PairedTimes,
    ShapeStarter,
    TimedCall,
    time_pairs,
)
from tuner.validation.timing.program import TimingProgram, build_program

__all__ = [
    "CONDITIONS",
    "LaunchOptions",
    "PairedTimes",
    "ShapeStarter",
    "TimedCall",
    "TimingProgram",
    "build_program",
    "time_pairs",
]
