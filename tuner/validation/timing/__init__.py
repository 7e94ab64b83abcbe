"""Times of calls in two launches of the real library, without and with a tuning file."""

from tuner.validation.timing.paired import (
    CONDITIONS,
    LaunchOptions,
    PairedTimes,
    ShapeStarter,
    TimedCall,
    Verdict,
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
    "Verdict",
    "build_program",
    "time_pairs",
]
