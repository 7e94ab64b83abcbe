"""Errors whose message is written for the person at the terminal: what, where, what to do."""

from reprlib import Repr

_SHORT_REPR = Repr()
_SHORT_REPR.maxlevel, _SHORT_REPR.maxstring, _SHORT_REPR.maxother = 1, 80, 80


class TunerError(Exception):
    """Something the user can act on. The command line prints it and exits with 1, or with 2 where
    its own words are wrong."""


class InputError(TunerError):
    """A file, argument or environment that cannot be used as it is."""


class LimitExceededError(InputError):
    """What was asked is meant, but there is too much of it for this computer."""


class MissingCostError(InputError):
    """Nobody said what a message costs that has to be sent."""


class ScheduleError(TunerError):
    """A schedule that is malformed or does not do what its collective promises."""


class ProbeError(TunerError):
    """Measuring failed: no launcher, too few slots, a rank that died, a wrong result."""


class LaunchFailedError(ProbeError):
    """Ranks that ended with an error."""


class LaunchTimeoutError(ProbeError):
    """Ranks that did not end in time.

    stderr      what they and their launcher wrote there until they were ended
    """

    def __init__(self, message: str, stderr: str) -> None:
        super().__init__(message)
        self.stderr = stderr


def shortened_repr(value: object) -> str:
    """What somebody wrote, as a message quotes it: on one line and short, however large it is."""
    return _SHORT_REPR.repr(value)
